"""A language model behind Anthropic's Messages API.

The law of the file: a schema is asked for by the provider's own means: natively by models that know it, as a tool that
must be called by the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from stepwell.adapters.models.provider import ProviderModel

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model

    from stepwell.adapters.models.conversation import Way
    from stepwell.adapters.models.price import Price

ANTHROPIC = "https://api.anthropic.com"
"""What an empty base URL means."""


class Anthropic(ProviderModel):
    """A `LanguageModel`; `base_url` is without /v1."""

    library: ClassVar[str] = "anthropic"
    form_words: ClassVar[tuple[str, ...]] = ("output_config", "output_format", "schema", "structured output")
    always_says_why: ClassVar[bool] = True  # the library streams by itself where no max_tokens is given

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
        plain = (base_url or ANTHROPIC).rstrip("/").removesuffix("/v1")
        super().__init__(name, plain, model, api_key=api_key, key_missing=key_missing, price=price)

    def _build(self, name: str, client: httpx2.AsyncClient) -> Model:
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        asking = AsyncAnthropic(api_key=self._key or "none", base_url=self.base_url, http_client=client, max_retries=0)
        return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=asking))

    def _ways(self, model: Model) -> tuple[Way, ...]:
        return ("native", "tool") if model.profile.get("supports_json_schema_output", False) else ("tool",)

    def _import_library(self) -> None:
        import pydantic_ai.direct
        import pydantic_ai.models.anthropic
        import pydantic_ai.providers.anthropic  # noqa: F401 -- imported for its time, used later

    def _needs_key(self) -> str:
        return "ANTHROPIC_API_KEY" if self.base_url == ANTHROPIC else ""
