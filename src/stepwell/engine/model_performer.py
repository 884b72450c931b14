"""Makes model calls real: generates, classifies and summarises, and says which way it took.

The law of the file: what a language model says is never mixed with what vectors say; `meta["way"]` names the one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from stepwell.adapters.models.answer import parse_answer, problems_of
from stepwell.adapters.models.labels import LabelMeaning, LabelVectors, chosen, label_meanings
from stepwell.adapters.models.openai_compatible import schema_in_words
from stepwell.adapters.models.summary import extract_summary
from stepwell.engine.performer import CallContext, Performed
from stepwell.errors import Problem, StepFailed
from stepwell.interpreter.effect import Effect, ModelCall
from stepwell.ports import Embedder, LanguageModel, ModelReply, ModelRequest

Json: TypeAlias = Any

SHOWN = 8_000
"""Characters of a wrong answer that the repair request shows to the model."""
LONG = 100_000
"""Characters from which an answer is parsed in a thread, so that the event loop goes on."""
_NO_EMBEDDINGS = "this needs the embedding model, which is not installed"
_INSTALL = "install the extra: pip install 'stepwell[local]'"


@dataclass(slots=True)
class _Usage:
    """What the requests of one call took together."""

    model: str = ""
    finish_reason: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    repairs: int = 0

    def add(self, reply: ModelReply) -> None:
        self.model = reply.model
        self.finish_reason = reply.finish_reason
        self.input_tokens += reply.input_tokens
        self.output_tokens += reply.output_tokens
        if reply.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + reply.cost_usd

    def meta(self) -> dict[str, Json]:
        facts: dict[str, Json] = {
            "model": self.model,
            "way": "model",
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "repairs": self.repairs,
        }
        if self.finish_reason != "stop":
            facts["finish_reason"] = self.finish_reason
        if self.cost_usd is not None:
            facts["cost_usd"] = self.cost_usd
        return facts


@dataclass(frozen=True, slots=True)
class _Choice:
    """The model that answers, and how."""

    model: LanguageModel
    own_name: str = ""
    """The provider's name of the model, where it is not the one of the settings."""
    temperature: float | None = None
    max_tokens: int | None = None


class ModelPerformer:
    """Performs `ModelCall`: `models` by the names of the settings, `default` one of them.

    A model whose attribute `judges` is false (the built-in one) is never asked to classify: vectors decide there.
    """

    def __init__(self, models: Mapping[str, LanguageModel], default: str, embedder: Embedder | None = None) -> None:
        self._models = models
        self._default = default
        self._embedder = embedder
        self._labels = LabelVectors(embedder) if embedder is not None else None

    def available(self) -> list[Problem]:
        """What is missing on this machine for the configured models, each with its fix. Starts and asks nothing."""
        parts = [*self._models.values(), self._embedder]
        problems = [problem for part in parts for problem in getattr(part, "available", list)()]
        if self._default not in self._models:
            problems.append(_unknown(self._default, self._models))
        return problems

    def problems_with(self, model: Json, task: str = "generate") -> list[Problem]:
        """What stands in the way of one step's call, for preflight: an unknown model or something not installed."""
        try:
            choice = self._choose(model)
        except StepFailed:
            return [_unknown(_named(model)[1], self._models)]
        if task == "extract_summary" or (task == "classify" and not _judges(choice.model)):
            if self._embedder is None:
                return [Problem("error", "model_missing", _NO_EMBEDDINGS, _INSTALL)]
            return list(getattr(self._embedder, "available", list)())
        return list(getattr(choice.model, "available", list)())

    async def __call__(self, effect: Effect, context: CallContext) -> Performed:
        """The answer and how it came about. Raises StepFailed; tokens spent are in its `detail["usage"]`."""
        if not isinstance(effect, ModelCall):
            raise TypeError(f"a model performer cannot perform {type(effect).__name__}")
        match effect.task:
            case "classify":
                performed = await self._classify(effect, context)
            case "extract_summary":
                performed = await self._summarise(effect, context)
            case "generate":
                return await self._generate(effect, context)
            case _:
                raise StepFailed("invalid_request", f"there is no task {effect.task!r}")
        if effect.schema is not None and (problems := problems_of(performed.value, effect.schema)):
            detail = {"answer": performed.value, "problems": problems}
            message = f"the {effect.task} output does not fit the output schema: {problems[0]}"
            raise StepFailed("output_invalid", message, detail=detail)
        return performed

    async def _generate(self, effect: ModelCall, context: CallContext) -> Performed:
        choice = self._choose(effect.model)
        usage = _Usage()
        request = _request(effect, choice, context)
        if effect.schema is not None:
            value = await _structured(choice.model, request, usage)
            return Performed(value, usage.meta())
        try:
            reply = await choice.model.complete(request)
        except StepFailed as failure:
            raise _with_usage(failure, usage) from None
        usage.add(reply)
        if not reply.text.strip() and reply.finish_reason != "stop":
            raise _without_text(reply, usage)
        return Performed({"text": reply.text}, usage.meta())

    async def _classify(self, effect: ModelCall, context: CallContext) -> Performed:
        labels = label_meanings(effect.labels)
        choice = self._choose(effect.model)
        if not _judges(choice.model):
            if self._labels is None:
                raise StepFailed("not_found", _NO_EMBEDDINGS, detail={"hint": _INSTALL})
            value = await _in_time(self._labels.classify(effect.prompt, labels), context.timeout)
            return Performed(value, _embeddings())
        if not effect.prompt.strip():
            raise StepFailed("validation_error", "there is no text to classify: the prompt is empty")
        usage = _Usage()
        asked = _request(effect, choice, context, prompt=_question(effect.prompt, labels), schema=_choice_of(labels))
        answer = await _structured(choice.model, asked, usage)
        return Performed(chosen(_shares(answer["scores"]), answer["label"]), usage.meta())

    async def _summarise(self, effect: ModelCall, context: CallContext) -> Performed:
        if self._embedder is None:
            raise StepFailed("not_found", _NO_EMBEDDINGS, detail={"hint": _INSTALL})
        value = await _in_time(extract_summary(effect.prompt, self._embedder), context.timeout)
        return Performed(value, _embeddings())

    def _choose(self, model: Json) -> _Choice:
        """The model that a step, a recipe or the settings name.

        A name that the settings do not know is the provider's own, if a provider is configured. Raises
        StepFailed("not_found").
        """
        provider, name = _named(model)
        options = model if isinstance(model, Mapping) else {}
        found = self._models.get(name or provider or self._default)
        own_name = ""
        if found is None:
            found = self._models.get(provider or self._default)
            own_name = name
        if found is None or (own_name and not _judges(found)):
            raise StepFailed("not_found", _unknown(name or provider or self._default, self._models).message)
        return _Choice(found, own_name, options.get("temperature"), options.get("max_tokens"))


def _named(model: Json) -> tuple[str, str]:
    """Provider and name, "" where not given."""
    if isinstance(model, Mapping):
        return str(model.get("provider") or ""), str(model.get("name") or "")
    return "", str(model or "")


def _judges(model: LanguageModel) -> bool:
    return bool(getattr(model, "judges", True))


def _unknown(name: str, models: Mapping[str, LanguageModel]) -> Problem:
    known = ", ".join(sorted(models)) or "none"
    return Problem("error", "model_unknown", f"there is no model {name!r}; configured: {known}", f"add [models.{name}]")


def _embeddings() -> dict[str, Json]:
    return {"model": "multilingual-e5-small", "way": "embeddings", "input_tokens": 0, "output_tokens": 0, "repairs": 0}


def _request(
    effect: ModelCall, choice: _Choice, context: CallContext, *, prompt: str = "", schema: Json = None
) -> ModelRequest:
    return ModelRequest(
        model=choice.own_name,
        prompt=prompt or effect.prompt,
        system=effect.system,
        schema=schema or effect.schema,
        temperature=choice.temperature if effect.temperature is None else effect.temperature,
        max_tokens=choice.max_tokens if effect.max_tokens is None else effect.max_tokens,
        timeout=context.timeout,
        key=context.key,
    )


async def _structured(model: LanguageModel, request: ModelRequest, usage: _Usage) -> Json:
    """The value that the model gives under `request.schema`; an answer that does not fit is put right once."""
    begun = time.monotonic()
    try:
        reply = await model.complete(request)
        usage.add(reply)
        try:
            return await _parsed(reply, request)
        except StepFailed as failure:
            if failure.kind != "output_invalid":
                raise
            again = _repair(request, failure, reply.text, begun)
        usage.repairs += 1
        reply = await model.complete(again)
        usage.add(reply)
        return await _parsed(reply, request)
    except StepFailed as failure:
        raise _with_usage(failure, usage) from None


async def _parsed(reply: ModelReply, request: ModelRequest) -> Json:
    assert request.schema is not None
    if len(reply.text) > LONG:
        return await asyncio.to_thread(parse_answer, reply.text, request.schema, finish_reason=reply.finish_reason)
    return parse_answer(reply.text, request.schema, finish_reason=reply.finish_reason)


def _repair(request: ModelRequest, failure: StepFailed, answer: str, begun: float) -> ModelRequest:
    """The same question with the answer and what is wrong with it; raises the failure if no time is left."""
    left = request.timeout - (time.monotonic() - begun)
    if left <= 0:
        raise failure
    assert request.schema is not None
    wrong = "\n".join(f"- {problem}" for problem in failure.detail["problems"])
    prompt = (
        f"{request.prompt}\n\nYou answered this before:\n{answer[:SHOWN]}\n\nThat answer cannot be used:\n{wrong}\n\n"
        f"Answer again. {schema_in_words(request.schema)}"
    )
    return ModelRequest(
        request.model, prompt, request.system, request.schema, request.temperature, request.max_tokens,
        timeout=left, key=f"{request.key}.1" if request.key else "",
    )  # fmt: skip


def _with_usage(failure: StepFailed, usage: _Usage) -> StepFailed:
    detail = failure.detail if isinstance(failure.detail, dict) else {}
    if "usage" in detail:  # what the failing request itself took
        usage.add(ModelReply(**detail["usage"]))
    if usage.model:
        failure.detail = detail | {"usage": usage.meta()}
    return failure


def _without_text(reply: ModelReply, usage: _Usage) -> StepFailed:
    detail = {"answer": reply.text, "problems": ["the answer is empty"], "finish_reason": reply.finish_reason}
    if reply.finish_reason == "length":
        failure = StepFailed("truncated_output", "the answer was cut before its first word; raise max_tokens")
    else:
        failure = StepFailed("output_invalid", f"the model gave no text ({reply.finish_reason})")
    failure.detail = detail
    return _with_usage(failure, usage)


async def _in_time(work: Any, seconds: float) -> Json:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise StepFailed("timeout", f"the embedding model was not done within {seconds:g} s") from None


def _question(text: str, labels: list[LabelMeaning]) -> str:
    lines = []
    for label in labels:
        examples = "".join(f"\n    example: {example}" for example in label.examples)
        lines.append(f"- {label.name}{': ' if label.description else ''}{label.description}{examples}")
    return (
        "Which one of these labels fits the text below best? Give the label, and for every label a score from 0 to "
        f"100 that says how well it fits.\n\nLabels:\n{chr(10).join(lines)}\n\nText:\n{text}"
    )


def _choice_of(labels: list[LabelMeaning]) -> dict[str, Json]:
    names = [label.name for label in labels]
    # Whole numbers: under a grammar, small models write decimals without end.
    score = {"type": "integer", "minimum": 0, "maximum": 100}
    scores = {
        "type": "object",
        "properties": dict.fromkeys(names, score),
        "required": names,
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"label": {"type": "string", "enum": names}, "scores": scores},
        "required": ["label", "scores"],
        "additionalProperties": False,
    }


def _shares(scores: dict[str, int]) -> dict[str, float]:
    """A model's scores as parts of 1; equal parts where it gave nothing to any label."""
    total = sum(scores.values())
    return {name: score / total if total else 1 / len(scores) for name, score in scores.items()}
