"""A language model of a provider, through pydantic-ai's direct requests: what all providers have in common.

The law of the file: one request, one HTTP attempt; retries belong to the engine. The one exception is a refusal, before
anything was generated, of the way in which it was asked (the schema's form, or streaming): the request is put again in
the next way, and so from then on.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias
from urllib.parse import urlsplit

from stepwell.adapters.errors import classify
from stepwell.adapters.models.conversation import ToolNames, Way, listed_price, messages, parameters, reply
from stepwell.adapters.models.price import price_for
from stepwell.adapters.models.stream import MISSHAPEN, broken_off, has_ended, refused_for_size, streamed
from stepwell.errors import Problem, StepFailed
from stepwell.extras import installing
from stepwell.ports import ModelReply, ModelRequest

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

    from stepwell.adapters.models.price import Price

Json: TypeAlias = Any

CONNECT_TIMEOUT = 10.0
"""Seconds in which a connection must stand, whatever the step's timeout."""
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_REFUSALS = frozenset({400, 404, 415, 422, 501})
"""Statuses with which servers refuse what they do not know."""


@dataclass(slots=True)
class _Connection:
    """An HTTP client, which belongs to the event loop in which it was made, and the models that use it, by name."""

    loop: asyncio.AbstractEventLoop
    client: httpx2.AsyncClient
    models: dict[str, Model] = field(default_factory=dict)


class ProviderModel(ABC):
    """A `LanguageModel` over one base URL and key; `model` answers unless a request names another one of the provider.

    `name` is what the settings call it and what failures say. Cancelling `complete` closes the connection, which stops
    the generation. Keys are never part of a failure.
    """

    library: ClassVar[str]
    """The package that talks to the provider, besides pydantic-ai."""
    form_words: ClassVar[tuple[str, ...]]
    """Words of which a server that refuses a native schema says at least one."""
    always_says_why: ClassVar[bool] = False
    """Whether an answer that does not say why it ends was cut, streamed or not."""

    def __init__(
        self,
        name: str,
        base_url: str,
        model: str,
        *,
        api_key: str = "",
        key_missing: str = "",
        price: Price | None = None,
    ) -> None:
        """`key_missing` says why the key that the settings name is not there."""
        self.name = name
        self.base_url = base_url
        self.model = model
        self.price = price
        self._key = api_key
        self._key_missing = key_missing
        self._refused: set[Way] = set()
        self._streams = True
        self._connection: _Connection | None = None
        self._imported = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.base_url!r}, {self.model!r})"

    # ── what a provider says of itself ──

    @abstractmethod
    def _build(self, name: str, client: httpx2.AsyncClient) -> Model:
        """The library's model of that name."""

    @abstractmethod
    def _ways(self, model: Model) -> tuple[Way, ...]:
        """In which ways it can be asked for a schema, the best first."""

    @abstractmethod
    def _import_library(self) -> None:
        """Import what takes seconds."""

    @abstractmethod
    def _needs_key(self) -> str:
        """The variable that holds the key by custom, where there is no asking without one; else ""."""

    def _settings(self, request: ModelRequest) -> ModelSettings:
        import httpx2
        from pydantic_ai.settings import ModelSettings

        settings = ModelSettings(
            max_retries=0,
            request_timeout=request.timeout,
            timeout=httpx2.Timeout(request.timeout, connect=min(CONNECT_TIMEOUT, request.timeout)),
        )
        if request.temperature is not None:
            settings["temperature"] = request.temperature
        if request.max_tokens is not None:
            settings["max_tokens"] = request.max_tokens
        if request.key:
            settings["extra_headers"] = {"Idempotency-Key": request.key}
        return settings

    # ── the port ──

    def available(self) -> list[Problem]:
        """What is missing for requests, with the fix: the library, or the key. Asks nobody."""
        problems = []
        if find_spec("pydantic_ai") is None or find_spec(self.library) is None:
            hint = f"install the extra: {installing('models')}"
            message = f"model {self.name} needs pydantic-ai and {self.library}"
            problems.append(Problem("error", "model_missing", message, hint))
        if self._key_missing:
            message = f"model {self.name} has no key: {self._key_missing}"
            problems.append(Problem("error", "model_key", message, "set it, or name another key in stepwell.toml"))
        elif not self._key and (variable := self._needs_key()):
            hint = f'set api_key = "env:{variable}" under [models.{self.name}]'
            problems.append(Problem("error", "model_key", f"model {self.name} has no key", hint))
        return problems

    async def known_price(self) -> Price | None:
        """What its tokens cost: as the settings say, else as the list that comes with the library says."""
        return self.price or listed_price(await self._connected(""))

    def _price(self, request: ModelRequest) -> Price | None:
        """What the settings say of the price of the model that a request names."""
        return price_for(self.price, self.model, request.model)

    async def prepare(self) -> None:
        """Load the library, if it is there. It takes seconds of CPU, which the event loop must not stand still for."""
        if not self._imported and not self.available():
            await asyncio.to_thread(self._import_library)
            self._imported = True

    async def complete(self, request: ModelRequest) -> ModelReply:
        """One answer. Raises StepFailed, classified, with the HTTP status in `detail["status"]` where there was one."""
        if problems := self.available():
            raise StepFailed("not_found", problems[0].message, detail={"hint": problems[0].hint})
        try:
            return await self._complete(request)
        except (StepFailed, *MISSHAPEN):  # the second here would be a mistake of ours
            raise
        except Exception as error:  # noqa: BLE001 -- whatever a library raises is classified, nothing is swallowed
            raise self._failure(error, request) from None

    async def aclose(self) -> None:
        """Close the HTTP connections; idempotent. A later request opens new ones."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.loop is asyncio.get_running_loop():
            await connection.client.aclose()

    # ── asking ──

    async def _complete(self, request: ModelRequest) -> ModelReply:
        model = await self._connected(request.model)
        names = ToolNames.of(request)
        if request.schema is None:
            return reply(await self._ask(model, request, "", names), request, self.name, names, self._price(request))
        ways = self._ways(model)
        ways = tuple(way for way in ways if way not in self._refused) or ways[-1:]
        answer = await self._in_one_of(ways, model, request, names)
        return reply(answer, request, self.name, names, self._price(request))

    async def _in_one_of(
        self, ways: tuple[Way, ...], model: Model, request: ModelRequest, names: ToolNames
    ) -> ModelResponse:
        refused: list[Way] = []
        for way in ways:
            try:
                answer = await self._ask(model, request, way, names)
            except Exception as error:
                if way == ways[-1] or not self._refuses_form(error):
                    raise
                refused.append(way)
            else:
                self._refused.update(refused)
                return answer
        raise AssertionError("there is always a last way")

    async def _ask(self, model: Model, request: ModelRequest, way: Way, names: ToolNames) -> ModelResponse:
        if request.on_text is None or not self._streams:
            return await self._put(model, replace(request, on_text=None), way, names)
        try:
            return await self._put(model, request, way, names)
        except Exception as error:
            if self._refuses_form(error) or not _says(error, ("stream",)):
                raise
            answer = await self._put(model, replace(request, on_text=None), way, names)
            self._streams = False
            return answer

    async def _put(self, model: Model, request: ModelRequest, way: Way, names: ToolNames) -> ModelResponse:
        from pydantic_ai.direct import model_request, model_request_stream

        begun = messages(request, way, names)
        settings, shape = self._settings(request), parameters(request, way, names)
        if request.on_text is not None:
            opened = model_request_stream(
                model, begun, model_settings=settings, model_request_parameters=shape, instrument=False
            )
            return await streamed(
                opened, request.on_text, lambda error: self._failure(error, request), self._price(request)
            )
        try:
            answer = await model_request(
                model, begun, model_settings=settings, model_request_parameters=shape, instrument=False
            )
        except MISSHAPEN as error:
            raise self._failure(error, request) from None
        if self.always_says_why and not has_ended(answer):
            raise broken_off()
        return answer

    async def _connected(self, name: str) -> Model:
        loop = asyncio.get_running_loop()
        await self.prepare()
        if self._connection is None or self._connection.loop is not loop:
            self._connection = _Connection(loop, self._client())
        wanted = name or self.model
        models = self._connection.models
        if wanted not in models:
            models[wanted] = self._build(wanted, self._connection.client)
        return models[wanted]

    def _client(self) -> httpx2.AsyncClient:
        import httpx2

        from stepwell.adapters.models.bounded import bound

        url = urlsplit(self.base_url)
        # A proxy of the environment is not meant for this machine, and without TLS no certificates need be loaded.
        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(60.0, connect=CONNECT_TIMEOUT),
            trust_env=url.hostname not in _LOOPBACK,
            verify=url.scheme != "http",
            event_hooks={"response": [bound]},
        )

    # ── what fails ──

    def _refuses_form(self, error: Exception) -> bool:
        """Whether the native schema is what was refused: by the server, or by the library, which knows its limits."""
        return _says(error, self.form_words) or _is_limit(error)

    def _failure(self, error: Exception, request: ModelRequest) -> StepFailed:
        if (failure := refused_for_size(error)) is not None:
            failure.message = f"model {self.name}: {failure.message}"
            return failure
        if isinstance(error, MISSHAPEN):
            return StepFailed(
                "server_error",
                f"model {self.name}: the answer is not that of a model service; check base_url",
                detail={"error": type(error).__name__},
            )
        failure = classify(error, service=f"model {self.name}", secrets=(self._key,))
        failure.message = self._where_to_look(failure.message)
        failure.args = (failure.message,)
        if request.tools and failure.kind in {"invalid_request", "not_found"} and _says(error, ("tool", "function")):
            hint = "take a model that knows tools, or write the step without `tools`"
            message = failure.message.replace(f"model {self.name}: ", f"model {self.name} may take no tools: ", 1)
            return StepFailed("invalid_request", message, detail=(failure.detail or {}) | {"hint": hint})
        return failure

    def _where_to_look(self, message: str) -> str:
        """A failure's message with the setting that it is about."""
        for said, better in (
            ("the connection failed: Connection error.", f"no connection to {_address(self.base_url)}; is it running?"),
            ("the key was refused", f"the key was refused (api_key under [models.{self.name}])"),
        ):
            message = message.replace(said, better)
        return message


def _says(error: Exception, words: tuple[str, ...]) -> bool:
    """Whether a server refused a request and named one of the words."""
    if getattr(error, "status_code", None) not in _REFUSALS:
        return False
    said = str(getattr(error, "body", "")).lower()
    return any(word in said for word in words)


def _address(base_url: str) -> str:
    """Where a service is, without what stands before the host."""
    url = urlsplit(base_url)
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


def _is_limit(error: Exception) -> bool:
    return type(error).__name__ == "UserError" and "schema" in str(error).lower()
