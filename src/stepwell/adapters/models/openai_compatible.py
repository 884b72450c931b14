"""A language model behind any OpenAI-compatible API.

The law of the file: OpenAI itself is asked as it wants to be; every other server only for what most of them know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias
from urllib.parse import urlsplit

from stepwell.adapters.models.provider import ProviderModel

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

    from stepwell.adapters.models.conversation import Way
    from stepwell.adapters.models.price import Price
    from stepwell.ports import ModelRequest

Json: TypeAlias = Any

OPENAI = "https://api.openai.com/v1"
"""What an empty base URL means."""


class OpenAICompatible(ProviderModel):
    """A `LanguageModel`.

    `schema_as_is` sends schemas untouched and always as `response_format` (for servers that enforce them by grammar);
    `extra` goes into every request's body.
    """

    library: ClassVar[str] = "openai"
    form_words: ClassVar[tuple[str, ...]] = ("response_format", "json_schema", "guided", "structured output")

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
        price: Price | None = None,
    ) -> None:
        super().__init__(name, base_url or OPENAI, model, api_key=api_key, key_missing=key_missing, price=price)
        self._as_is = schema_as_is
        self._extra = dict(extra or {})

    def _build(self, name: str, client: httpx2.AsyncClient) -> Model:
        from pydantic_ai.profiles.openai import OpenAIModelProfile
        from pydantic_ai.providers.openai import OpenAIProvider
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        from stepwell.adapters.models.lenient_chat import LenientChatModel

        if _is_openai(self.base_url):
            provider = OpenAIProvider(base_url=self.base_url, api_key=self._key, http_client=client)
            return LenientChatModel(name, provider=provider)
        profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
        if self._as_is:
            profile["supports_json_schema_output"] = True
            profile["json_schema_transformer"] = None
        compatible = OpenAICompatibleProvider(
            self.name, base_url=self.base_url, api_key=self._key or None, http_client=client
        )
        return LenientChatModel(name, provider=compatible, profile=profile)

    def _ways(self, model: Model) -> tuple[Way, ...]:
        if self._as_is:
            return ("native",)
        return ("native", "words") if model.profile.get("supports_json_schema_output", False) else ("words",)

    def _import_library(self) -> None:
        import pydantic_ai.direct
        import pydantic_ai.providers.openai
        import pydantic_ai.providers.openai_compatible  # noqa: F401 -- imported for its time, used later

        import stepwell.adapters.models.lenient_chat  # noqa: F401 -- imported for its time, used later

    def _needs_key(self) -> str:
        return "OPENAI_API_KEY" if _is_openai(self.base_url) else ""

    def _settings(self, request: ModelRequest) -> ModelSettings:
        settings = super()._settings(request)
        if self._extra:
            settings["extra_body"] = self._extra
        return settings


def _is_openai(base_url: str) -> bool:
    return urlsplit(base_url).hostname == urlsplit(OPENAI).hostname
