"""Automatic context: what a model is given from the knowledge base before it is asked, and what it cites of it.

The law of the file: sources are retrieved when the model is asked and never become part of the effect that is
journalled; what was retrieved is told with the result; a citation in an output always names a source that was given.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from stepwell.adapters.models.answer import problems_of
from stepwell.engine.performer import CallContext, Performed, Performer
from stepwell.engine.retrieval import Searched, meant
from stepwell.errors import StepFailed
from stepwell.interpreter.effect import Effect, ModelCall
from stepwell.knowledge.citation import RULES, Markers, Source, cited, cited_in, fenced, numbered
from stepwell.ports import KnowledgeStore

Json: TypeAlias = Any

MOST = 6
"""Passages of one request."""
LONG = 2000
"""Characters of a question that are looked for: of a longer one the beginning and the end."""
_BEGINNING = 700


class InformedModels:
    """Performs `ModelCall` with `models`, after retrieving what the step's `knowledge` and department give it."""

    keeps_time = True

    def __init__(self, models: Performer, store: KnowledgeStore) -> None:
        self._models = models
        self._store = store

    async def __call__(self, effect: Effect, context: CallContext) -> Performed:
        """As the models do. Raises StepFailed (not_found for a name of `knowledge` that nothing has), Unavailable."""
        if (
            not isinstance(effect, ModelCall)
            or effect.task != "generate"
            or not (effect.knowledge or effect.department)
        ):
            return await self._models(effect, context)
        begun = time.monotonic()
        try:
            async with asyncio.timeout(context.timeout):
                given = await self._given(effect, context)
        except TimeoutError:
            raise StepFailed("timeout", f"the knowledge base gave nothing within {context.timeout:g} s") from None
        if given is None:
            return await self._models(effect, context)
        left = max(0.01, context.timeout - (time.monotonic() - begun))
        performed = await self._models(given.asked(effect), replace(context, timeout=left))
        return given.answered(effect, performed)

    async def _given(self, effect: ModelCall, context: CallContext) -> _Given | None:
        """The sources for a request; None where only a department is named, and it has no collection."""
        pins = context.knowledge or {}
        searched = await meant(self._store, context.account, effect.knowledge, effect.department, pins)
        if not searched:
            return None
        passages = await self._store.search(
            context.account,
            asked_for(effect),
            collections=searched.collections,
            documents=searched.documents,
            limit=MOST,
        )
        return _Given(searched, numbered(passages))


def asked_for(effect: ModelCall) -> str:
    """What is looked for: what was put into a recipe, else the prompt; of a long one the beginning and the end."""
    texts = list(_texts(effect.inputs)) if effect.recipe else []
    text = "\n".join(texts) if any(text.strip() for text in texts) else effect.prompt
    if len(text) <= LONG:
        return text
    return f"{text[:_BEGINNING]}\n{text[_BEGINNING - LONG :]}"


def _texts(value: Json) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for inner in value.values() for text in _texts(inner)]
        case list():
            return [text for inner in value for text in _texts(inner)]
        case _:
            return []


@dataclass(frozen=True, slots=True)
class _Given:
    """The sources of one request."""

    searched: Searched
    sources: Sequence[Source]

    def asked(self, effect: ModelCall) -> ModelCall:
        """The question with its sources."""
        system = f"{effect.system}\n\n{RULES}" if effect.system else RULES
        prompt = f"{effect.prompt}\n\n{fenced(self.sources)}"
        return replace(effect, system=system, prompt=prompt, schema=_with_numbers(effect.schema))

    def answered(self, effect: ModelCall, performed: Performed) -> Performed:
        """The answer with its citations, and the sources among what is told of it."""
        value, markers = performed.value, Markers()
        if not effect.offers:
            value = self._cited(effect, value, markers)
        elif "answer" in value:  # the last turn of an agent
            value = value | {"answer": self._cited(effect, value["answer"], markers)}
        meta: dict[str, Json] = (performed.meta or {}) | {
            "searched": self.searched.told(),
            "sources": [source.told() for source in self.sources],
        }
        if markers.invented:
            meta["invented"] = markers.invented
        return replace(performed, value=value, meta=meta)

    def _cited(self, effect: ModelCall, value: Json, markers: Markers) -> Json:
        known = len(self.sources)
        if effect.schema is None:
            text = cited(value["text"], known, markers)
            return {"text": text, "citations": [self._source(number).citation() for number in markers.used]}
        declared = _citations_of(effect.schema)
        if declared is None or not isinstance(value, dict):
            found = cited_in(value, known, markers)
            # Where a schema wants what looks like a marker, it is none.
            return value if found != value and problems_of(found, effect.schema) else found
        said = value.get("citations")
        rest = {name: cited_in(inner, known, markers) for name, inner in value.items() if name != "citations"}
        for number in said if isinstance(said, list) else ():
            if isinstance(number, int) and 1 <= number <= known:
                markers.use(number)
            else:
                markers.invented.append(f"[{number}]")
        numbers = sorted(markers.used)
        found = {name: rest.get(name) for name in value} | {
            "citations": [self._expanded(number, declared) for number in numbers]
        }
        if problems := problems_of(found, effect.schema):
            message = f"the answer with its citations does not fit the output schema: {problems[0]}"
            raise StepFailed("output_invalid", message, detail={"answer": found, "problems": problems})
        return found

    def _expanded(self, number: int, declared: Mapping[str, Json]) -> Json:
        """A citation as the schema wants it: an object, a text `document@version`, or the number alone."""
        source = self._source(number)
        items = declared.get("items")
        match items.get("type") if isinstance(items, Mapping) else None:
            case "integer" | "number":
                return number
            case "string":
                return f"{source.passage.document}@{source.passage.version}"
        citation = source.citation()
        if isinstance(items, Mapping) and items.get("additionalProperties") is False:
            return {name: value for name, value in citation.items() if name in items.get("properties", {})}
        return citation

    def _source(self, number: int) -> Source:
        return self.sources[number - 1]


def _citations_of(schema: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """What an output schema says of `citations`, if it has them as a list."""
    found = (schema.get("properties") or {}).get("citations")
    if not isinstance(found, Mapping):
        return None
    kinds = found.get("type", "array")
    return found if kinds == "array" or (isinstance(kinds, list) and "array" in kinds) else None


def _with_numbers(schema: dict[str, Json] | None) -> dict[str, Json] | None:
    """The schema that the model is held to: it cites by numbers alone."""
    if schema is None or (declared := _citations_of(schema)) is None:
        return schema
    numbers = {"type": "array", "description": "numbers of the sources that are used", "items": {"type": "integer"}}
    bounds = {name: declared[name] for name in ("minItems", "maxItems") if name in declared}
    return schema | {"properties": schema["properties"] | {"citations": numbers | bounds}}
