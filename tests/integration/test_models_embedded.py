"""The models inside packages, for real: the text model's child process and the embeddings."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from stepwell.adapters.models.answer import problems_of
from stepwell.adapters.models.embedded_text import BUILT_IN, CONTEXT, EmbeddedText
from stepwell.adapters.models.embeddings import LocalEmbedder
from stepwell.adapters.models.labels import cosine
from stepwell.errors import StepFailed
from stepwell.ports import ModelRequest

pytestmark = pytest.mark.models

SCHEMA = {
    "type": "object",
    "properties": {"label": {"enum": ["refund", "bug", "other"]}, "urgent": {"type": "boolean"}},
    "required": ["label", "urgent"],
    "additionalProperties": False,
}


@pytest.fixture
async def model():
    model = EmbeddedText()
    yield model
    await model.aclose()


def gone(pid: int, seconds: float = 10) -> bool:
    """Whether a process ends, and is no zombie, within the time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not psutil.pid_exists(pid):
            return True
        time.sleep(0.05)
    return False


async def test_callers_share_one_process_which_ends_when_closed():
    model = EmbeddedText()
    replies = await asyncio.gather(
        *(model.complete(ModelRequest("", f"Say {word}", max_tokens=4)) for word in ("yes", "no", "hello"))
    )
    assert all(reply.text and reply.output_tokens and reply.model == BUILT_IN for reply in replies)
    pid = model.pid
    assert [child.pid for child in psutil.Process().children()].count(pid) == 1
    await model.aclose()
    assert not psutil.pid_exists(pid)
    assert model.pid is None
    await model.aclose()
    with pytest.raises(StepFailed, match="has been closed"):
        await model.complete(ModelRequest("", "hi"))


async def test_a_schema_is_kept_by_grammar(model):
    reply = await model.complete(ModelRequest("", "My mug came broken, I want my money back.", schema=SCHEMA))
    assert problems_of(json.loads(reply.text), SCHEMA) == []
    assert reply.input_tokens > 0


async def test_a_dead_process_is_a_connection_error_and_the_next_request_starts_another(model):
    await model.complete(ModelRequest("", "hi", max_tokens=2))
    first = model.pid
    running = asyncio.create_task(model.complete(ModelRequest("", "Tell a long story", max_tokens=400)))
    await asyncio.sleep(0.3)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(StepFailed, match="its process ended") as caught:
        await running
    assert caught.value.kind == "connection_error"
    assert caught.value.retryable
    await model.complete(ModelRequest("", "hi", max_tokens=2))
    assert model.pid != first
    assert gone(first), "the dead process was left as a zombie"


async def test_a_prompt_that_is_too_long_is_refused_with_the_limit(model):
    with pytest.raises(StepFailed, match=f"longer than {CONTEXT} tokens") as caught:
        await model.complete(ModelRequest("", "word " * 2 * CONTEXT))
    assert (caught.value.kind, caught.value.retryable) == ("invalid_request", False)


async def test_an_answer_has_a_bound_even_if_none_is_asked_for(model):
    reply = await model.complete(ModelRequest("", "Count from 1 to 1000, one number per line.", max_tokens=16))
    assert reply.finish_reason == "length"
    assert reply.output_tokens == 16


async def test_a_timeout_is_one_and_a_cancelled_request_frees_the_model(model):
    await model.complete(ModelRequest("", "hi", max_tokens=2))
    with pytest.raises(StepFailed) as caught:
        await model.complete(ModelRequest("", "Tell a long story", max_tokens=500, timeout=0.3))
    assert caught.value.kind == "timeout"
    begun = time.monotonic()
    await model.complete(ModelRequest("", "hi", max_tokens=2))
    assert time.monotonic() - begun < 10


async def test_a_streamed_answer_is_the_same_as_a_whole_one(model):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    for asked in ({"prompt": "Count to five."}, {"prompt": "Give a number.", "schema": schema}):
        told: list[str] = []
        whole = await model.complete(ModelRequest("", max_tokens=24, **asked))
        streamed = await model.complete(ModelRequest("", max_tokens=24, on_text=told.append, **asked))
        assert "".join(told) == streamed.text == whole.text
        assert (streamed.finish_reason, streamed.output_tokens) == (whole.finish_reason, whole.output_tokens)
        assert len(told) > 2


async def test_a_cancelled_stream_stops_the_generation(model):
    begun = asyncio.Event()
    long = ModelRequest("", "Tell a very long story.", max_tokens=512, timeout=120, on_text=lambda _: begun.set())
    tasks = [asyncio.create_task(model.complete(long)) for _ in range(2)]  # as many as are served at once
    await asyncio.wait_for(begun.wait(), 60)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    asked = time.monotonic()
    await model.complete(ModelRequest("", "hi", max_tokens=2))
    assert time.monotonic() - asked < 10


async def test_nobody_without_the_key_is_answered(model):
    await model.complete(ModelRequest("", "hi", max_tokens=2))
    assert model._child is not None
    from stepwell.adapters.models.openai_compatible import OpenAICompatible

    stranger = OpenAICompatible("stranger", model._child.model.base_url, BUILT_IN, api_key="wrong-key")
    with pytest.raises(StepFailed) as caught:
        await stranger.complete(ModelRequest("", "hi"))
    assert caught.value.kind == "auth_error"
    await stranger.aclose()
    process = psutil.Process(model.pid)
    assert model._child.model._key not in " ".join(process.cmdline())


@pytest.mark.parametrize(("content", "words"), [(None, "does not exist"), (b"no model", "cannot be loaded")])
async def test_a_file_that_is_no_model_is_told(tmp_path, content, words):
    file = tmp_path / "model.gguf"
    if content is not None:
        file.write_bytes(content)
    model = EmbeddedText(gguf=file)
    with pytest.raises(StepFailed, match=words) as caught:
        await model.complete(ModelRequest("", "hi"))
    assert (caught.value.kind, caught.value.retryable) == ("not_found", False)
    assert bool(model.available()) == (content is None)
    assert not [child for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE]
    await model.aclose()


async def test_a_file_of_the_users_own_may_be_asked_to_classify(tmp_path):
    assert EmbeddedText(gguf=tmp_path / "better.gguf").judges
    assert not EmbeddedText().judges


PARENT = """
import asyncio, os, sys
from stepwell.adapters.models.embedded_text import EmbeddedText
from stepwell.ports import ModelRequest
async def main():
    model = EmbeddedText()
    await model.complete(ModelRequest("", "hi", max_tokens=2))
    print(model.pid, flush=True)
    {then}
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("then", "kill"),
    [
        ("await asyncio.sleep(60)", signal.SIGKILL),
        ("await asyncio.sleep(60)", signal.SIGINT),
        ("os._exit(1)", None),
        ("return", None),
        ("raise SystemExit(3)", None),
    ],
    ids=["SIGKILL", "ctrl-C", "os._exit", "not closed", "exception"],
)
def test_no_child_outlives_its_parent(then, kill):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(then=then)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    pid = int(parent.stdout.readline())
    if kill is not None:
        assert psutil.pid_exists(pid)
        parent.send_signal(kill)
    parent.wait(20)
    parent.stdout.close()
    assert gone(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="stops what Linux does, to see what the end of input does alone")
def test_the_end_of_input_alone_ends_the_child():
    script = Path(sys.modules["stepwell.adapters.models.embedded_text"].__file__).with_name("embedded_server.py")
    from stepwell.adapters.models.embedded_text import built_in_file

    child = subprocess.Popen(
        [sys.executable, "-P", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    settings = {
        "gguf": str(built_in_file()), "alias": "m", "context": 512, "slots": 1, "threads": 1, "max_tokens": 8,
        "key": "k", "parent": os.getpid(),
    }  # fmt: skip
    child.stdin.write(json.dumps(settings) + "\n")
    child.stdin.flush()
    assert "address" in json.loads(child.stdout.readline())
    child.stdin.close()
    assert child.wait(10) == 0
    child.stdout.close()


def test_a_model_started_in_a_thread_that_ends_goes_on():
    model, found = EmbeddedText(), []

    def ask():
        async def once():
            found.append((await model.complete(ModelRequest("", "hi", max_tokens=2)), model.pid))
            await model._child.model.aclose()  # connections belong to the loop, which ends here

        asyncio.run(once())

    for _ in range(2):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert found[0][1] == found[1][1]
    asyncio.run(model.aclose())


async def test_vectors_have_norm_one_and_stand_whatever_is_in_the_text():
    embedder = LocalEmbedder()
    texts = ["refund", "", "a\0b", "\ud800", "审批步骤", "x y " * 300, "naïve café"]
    vectors = await embedder.queries(texts) + await embedder.passages(texts)
    assert {len(vector) for vector in vectors} == {384}
    assert all(cosine(vector, vector) == pytest.approx(1, abs=1e-4) for vector in vectors)
    assert vectors[0] != vectors[len(texts)]
    assert await embedder.queries([]) == []
    await embedder.aclose()


async def test_the_event_loop_goes_on_while_texts_are_embedded():
    embedder, ticks = LocalEmbedder(), 0
    await embedder.queries(["warm"])
    task = asyncio.create_task(embedder.passages([f"sentence {number} of a text" for number in range(40)]))
    while not task.done():
        await asyncio.sleep(0.005)
        ticks += 1
    assert len(await task) == 40
    assert ticks > 10
    await embedder.aclose()


async def test_loading_the_embeddings_leaves_the_environment_alone():
    before = dict(os.environ)
    embedder = LocalEmbedder()
    await embedder.queries(["x"])
    assert dict(os.environ) == before
    await embedder.aclose()
