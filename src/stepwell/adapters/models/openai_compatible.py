"""A language model behind any OpenAI-compatible API, through pydantic-ai's direct requests.

The law of the file: one request, one HTTP attempt; retries belong to the engine. The one exception is a refusal of
`response_format` before anything was generated: the request is put again with the schema in words, and so from then on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from stepwell.adapters.errors import classify
from stepwell.errors import Problem, StepFailed
from stepwell.ports import ModelReply, ModelRequest

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.settings import ModelSettings

Json: TypeAlias = Any

OPENAI = "https://api.openai.com/v1"
"""What an empty base URL means."""
CONNECT_TIMEOUT = 10.0
"""Seconds in which a connection must stand, whatever the step's timeout."""
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_FORMAT_WORDS = ("response_format", "json_schema", "guided", "structured output")


@dataclass(slots=True)
class _Connection:
    """An HTTP client, which belongs to the event loop in which it was made, and the models that use it, by name."""

    loop: asyncio.AbstractEventLoop
    client: httpx2.AsyncClient
    models: dict[str, OpenAIChatModel] = field(default_factory=dict)


class OpenAICompatible:
    """A `LanguageModel` over one base URL and key; `model` answers unless a request names another one of the provider.

    `name` is what the settings call it and what failures say. `schema_as_is` sends schemas untouched and always as
    `response_format` (for servers that enforce them by grammar); `extra` goes into every request's body.
    Cancelling `complete` closes the connection. Keys are never part of a failure.
    """

    def __init__(  # noqa: PLR0913 -- the keys of one section of the settings
        self,
        name: str,
        base_url: str,
        model: str,
        *,
        api_key: str = "",
        schema_as_is: bool = False,
        extra: Mapping[str, Json] | None = None,
        key_missing: str = "",
    ) -> None:
        """`key_missing` says why the key that the settings name is not there."""
        self._key_missing = key_missing
        self.name = name
        self.base_url = base_url or OPENAI
        self.model = model
        self._key = api_key
        self._as_is = schema_as_is
        self._extra = dict(extra or {})
        self._in_words = False
        self._connection: _Connection | None = None
        self._imported = False

    def __repr__(self) -> str:
        return f"OpenAICompatible({self.name!r}, {self.base_url!r}, {self.model!r})"

    def available(self) -> list[Problem]:
        """What is missing for requests, with the fix: the library, or OpenAI's key. Asks nobody."""
        problems = []
        if find_spec("pydantic_ai") is None or find_spec("openai") is None:
            hint = "install the extra: pip install 'stepwell[models]'"
            problems.append(Problem("error", "model_missing", f"model {self.name} needs pydantic-ai and openai", hint))
        if self._key_missing:
            message = f"model {self.name} has no key: {self._key_missing}"
            problems.append(Problem("error", "model_key", message, "set it, or name another key in stepwell.toml"))
        elif not self._key and _is_openai(self.base_url):
            hint = f'set api_key = "env:OPENAI_API_KEY" under [models.{self.name}]'
            problems.append(Problem("error", "model_key", f"model {self.name} has no key", hint))
        return problems

    async def complete(self, request: ModelRequest) -> ModelReply:
        """One answer. Raises StepFailed, classified, with the HTTP status in `detail["status"]` where there was one."""
        if problems := self.available():
            raise StepFailed("not_found", problems[0].message, detail={"hint": problems[0].hint})
        try:
            return await self._complete(request)
        except StepFailed:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever a library raises is classified, nothing is swallowed
            raise self._failure(error) from None

    async def aclose(self) -> None:
        """Close the HTTP connections; idempotent. A later request opens new ones."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.loop is asyncio.get_running_loop():
            await connection.client.aclose()

    async def _complete(self, request: ModelRequest) -> ModelReply:
        model = await self._connected(request.model)
        try:
            reply = await self._ask(model, request, in_words=self._in_words)
        except Exception as error:
            if request.schema is None or self._in_words or self._as_is or not _refuses_format(error):
                raise
            reply = await self._ask(model, request, in_words=True)
            self._in_words = True
        return _reply(reply, self.name)

    async def _ask(self, model: OpenAIChatModel, request: ModelRequest, *, in_words: bool) -> ModelResponse:
        from pydantic_ai.direct import model_request
        from pydantic_ai.messages import ModelRequest as Message

        prompt = request.prompt
        native = request.schema is not None and not in_words and _takes_schemas(model)
        if request.schema is not None and not native:
            prompt = f"{prompt}\n\n{schema_in_words(request.schema)}"
        return await model_request(
            model,
            [Message.user_text_prompt(prompt, instructions=request.system or None)],
            model_settings=self._settings(request),
            model_request_parameters=_parameters(request.schema if native else None),
            instrument=False,
        )

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
        if self._extra:
            settings["extra_body"] = self._extra
        return settings

    async def _connected(self, name: str) -> OpenAIChatModel:
        loop = asyncio.get_running_loop()
        if not self._imported:
            # Importing the provider's library takes seconds of CPU, which the event loop must not stand still for.
            await asyncio.to_thread(_import_library)
            self._imported = True
        if self._connection is None or self._connection.loop is not loop:
            self._connection = _Connection(loop, self._client())
        wanted = name or self.model
        models = self._connection.models
        if wanted not in models:
            models[wanted] = self._model(wanted, self._connection.client)
        return models[wanted]

    def _client(self) -> httpx2.AsyncClient:
        import httpx2

        url = urlsplit(self.base_url)
        # A proxy of the environment is not meant for this machine, and without TLS no certificates need be loaded.
        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(60.0, connect=CONNECT_TIMEOUT),
            trust_env=url.hostname not in _LOOPBACK,
            verify=url.scheme != "http",
        )

    def _model(self, name: str, client: httpx2.AsyncClient) -> OpenAIChatModel:
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.profiles.openai import OpenAIModelProfile
        from pydantic_ai.providers.openai import OpenAIProvider
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        if _is_openai(self.base_url):
            provider = OpenAIProvider(base_url=self.base_url, api_key=self._key, http_client=client)
            return OpenAIChatModel(name, provider=provider)
        profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
        if self._as_is:
            profile["supports_json_schema_output"] = True
            profile["json_schema_transformer"] = None
        compatible = OpenAICompatibleProvider(
            self.name, base_url=self.base_url, api_key=self._key or None, http_client=client
        )
        return OpenAIChatModel(name, provider=compatible, profile=profile)

    def _failure(self, error: Exception) -> StepFailed:
        if isinstance(error, LookupError | TypeError | AttributeError | ValueError):
            # The library trips over an answer that has not the form of the API (no choices, no message, no JSON).
            return StepFailed(
                "server_error",
                f"model {self.name}: the answer is not that of a model service; check base_url",
                detail={"error": type(error).__name__},
            )
        return classify(error, service=f"model {self.name}", secrets=(self._key,))


def _is_openai(base_url: str) -> bool:
    return urlsplit(base_url).hostname == urlsplit(OPENAI).hostname


def schema_in_words(schema: Mapping[str, Json]) -> str:
    """The request for JSON, for models that take no schema."""
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return f"Answer with one JSON value and nothing else. It must fit this JSON Schema:\n{text}"


def _import_library() -> None:
    import pydantic_ai.direct
    import pydantic_ai.models.openai
    import pydantic_ai.providers.openai
    import pydantic_ai.providers.openai_compatible  # noqa: F401 -- imported for its time, used later


def _takes_schemas(model: OpenAIChatModel) -> bool:
    return bool(model.profile.get("supports_json_schema_output", False))


def _parameters(schema: dict[str, Json] | None) -> ModelRequestParameters:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition

    if schema is None:
        return ModelRequestParameters(output_mode="text", allow_text_output=True)
    # `strict` undecided: it is set where the schema allows it, and the schema is not bent to it where it does not.
    shape = OutputObjectDefinition(json_schema=schema, name="output")
    return ModelRequestParameters(output_mode="native", allow_text_output=True, output_object=shape)


def _refuses_format(error: Exception) -> bool:
    if getattr(error, "status_code", None) not in {400, 404, 415, 422, 501}:
        return False
    said = str(getattr(error, "body", "")).lower()
    return any(word in said for word in _FORMAT_WORDS)


def _reply(answer: ModelResponse, name: str) -> ModelReply:
    reply = ModelReply(
        text=answer.text or "",
        model=answer.model_name or name,
        finish_reason=answer.finish_reason or "stop",
        input_tokens=answer.usage.input_tokens,
        output_tokens=answer.usage.output_tokens,
        cost_usd=_cost(answer),
    )
    if reply.finish_reason == "content_filter":
        said = str((answer.provider_details or {}).get("refusal", "")) or reply.text
        detail = {"answer": said, "usage": {**asdict(reply), "text": ""}}  # a refusal is paid for too
        raise StepFailed("refused", f"model {name}: the model refused to answer: {said}"[:500], detail=detail)
    return reply


def _cost(answer: ModelResponse) -> float | None:
    """In US dollars, from the prices that come with the library; None for models that it does not know."""
    try:
        return float(answer.cost().total_price)
    except (LookupError, ValueError):
        return None
