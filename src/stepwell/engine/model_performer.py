"""Makes model calls real: generates, classifies and summarises, and says which way it took.

The law of the file: what a language model says is never mixed with what vectors say; `meta["way"]` names the one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any, TypeAlias

from stepwell.adapters.models import bounds
from stepwell.adapters.models.answer import problems_of
from stepwell.adapters.models.labels import LabelMeaning, LabelVectors, chosen, label_meanings
from stepwell.adapters.models.summary import extract_summary
from stepwell.definition.budget import Budget
from stepwell.engine.asking import Asking
from stepwell.engine.model_choice import Choice, Models
from stepwell.engine.performer import CallContext, Performed
from stepwell.engine.spending import Purse, Spender
from stepwell.engine.turns import take_turn, with_turns
from stepwell.errors import Problem, StepFailed
from stepwell.extras import installing
from stepwell.interpreter.effect import Effect, ModelCall
from stepwell.ports import Embedder, LanguageModel, Limiter, ModelRequest

Json: TypeAlias = Any

_NO_EMBEDDINGS = "this needs the embedding model, which is not installed"
_INSTALL = f"install the extra: {installing('local')}"


class ModelPerformer:
    """Performs `ModelCall`: `models` by the names of the settings, `default` one of them.

    `fallbacks` are the names of those that are asked in turn when one fails. A model whose attribute `judges` is false
    (the built-in one) is never asked to classify: vectors decide there.
    """

    keeps_time = True
    """A call ends within its timeout by itself: what it waits for slots does not count."""

    def __init__(
        self,
        models: Mapping[str, LanguageModel],
        default: str,
        embedder: Embedder | None = None,
        *,
        limiter: Limiter | None = None,
        fallbacks: Mapping[str, Sequence[str]] | None = None,
        spender: Spender | None = None,
    ) -> None:
        self._models = Models(models, default, fallbacks)
        self._embedder = embedder
        self._limiter = limiter
        self._spender = spender
        self._labels = LabelVectors(embedder) if embedder is not None else None

    def available(self) -> list[Problem]:
        """What is missing on this machine for the configured models, each with its fix. Starts and asks nothing."""
        parts = [*self._models.by_name.values(), self._embedder]
        problems = [problem for part in parts for problem in getattr(part, "available", list)()]
        if self._models.default not in self._models.by_name:
            problems.append(self._models.unknown(self._models.default))
        return problems

    def model(self, name: str) -> LanguageModel | None:
        """The model of that name in the settings."""
        return self._models.by_name.get(name)

    def problems_with(self, model: Json, task: str = "generate") -> list[Problem]:
        """What stands in the way of one step's call, for preflight: an unknown model or something not installed.

        What is missing for a model that is asked only when another fails is a warning.
        """
        if problems := self._models.problems_with(model):
            return problems
        choice = self._models.choose(model)
        if task == "extract_summary" or (task == "classify" and not choice.judges):
            if self._embedder is None:
                return [Problem("error", "model_missing", _NO_EMBEDDINGS, _INSTALL)]
            return list(getattr(self._embedder, "available", list)())
        later = [problem for other in self._models.after(model) for problem in other.available()]
        fallback = [replace(problem, severity="warning", code="model_fallback") for problem in later]
        return [*choice.available(), *self._models.doubts_about(model), *fallback]

    def unpriced(self, model: Json, task: str = "generate") -> list[str]:
        """The models that a step may ask and whose price nobody knows."""
        try:
            choices = [self._models.choose(model), *self._models.after(model)]
        except StepFailed:
            return []
        if task == "extract_summary" or (task == "classify" and not choices[0].judges):
            return []
        unknown = [one for one in choices if bounds.nano_usd(one.model, one.own_name, 1, 1) is None]
        return [one.own_name or bounds.name_of(one.model) for one in unknown]

    def budget_of(self, workflow: str) -> tuple[Budget, ...]:
        """The budgets of the settings that bound a workflow."""
        if self._spender is None:
            return ()
        its = self._spender.budgets
        found = (its.workflows.get(workflow, its.workflow), its.account)
        return tuple(one.budget for one in found if one is not None)

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

    def _asking(self, choice: Choice, context: CallContext, others: Sequence[Choice] = ()) -> Asking:
        """What asks the chosen model, or the others in turn, each request in a slot of the account."""
        limiter = self._limiter

        def slot() -> AbstractAsyncContextManager[None]:
            return nullcontext() if limiter is None else limiter.slot(context.account)

        purse = None if self._spender is None else Purse(self._spender, context, self._instead)
        return Asking(choice.model, slot, purse, name=choice.name, others=others, on_queue=context.on_queue)

    def _instead(self, name: str) -> tuple[LanguageModel, str]:
        """The model that a budget names, and the provider's own name of it. Raises StepFailed("not_found")."""
        choice = self._models.choose(name)
        return choice.model, choice.own_name

    async def _generate(self, effect: ModelCall, context: CallContext) -> Performed:
        choice = self._models.choose(effect.model)
        asking = self._asking(choice, context, self._models.after(effect.model))
        request = _request(effect, choice, context)
        if effect.offers:
            return Performed(await take_turn(asking, with_turns(request, effect), effect), asking.usage.meta())
        if effect.schema is not None:
            value = await asking.structured(request)
        else:
            value = {"text": (await asking.text(request)).text}
        return Performed(value, asking.usage.meta())

    async def _classify(self, effect: ModelCall, context: CallContext) -> Performed:
        labels = label_meanings(effect.labels)
        choice = self._models.choose(effect.model)
        if not choice.judges:
            return await self._by_vectors(effect, context, labels)
        if not effect.prompt.strip():
            raise StepFailed("validation_error", "there is no text to classify: the prompt is empty")
        others = [other for other in self._models.after(effect.model) if other.judges]
        asking = self._asking(choice, context, others)
        asked = _request(effect, choice, context, prompt=_question(effect.prompt, labels), schema=_choice_of(labels))
        answer = await asking.structured(asked)
        return Performed(chosen(_shares(answer["scores"]), answer["label"]), asking.usage.meta())

    async def _by_vectors(self, effect: ModelCall, context: CallContext, labels: list[LabelMeaning]) -> Performed:
        if self._labels is None:
            raise StepFailed("not_found", _NO_EMBEDDINGS, detail={"hint": _INSTALL})
        value = await _in_time(self._labels.classify(effect.prompt, labels), context.timeout)
        return Performed(value, _embeddings())

    async def _summarise(self, effect: ModelCall, context: CallContext) -> Performed:
        if self._embedder is None:
            raise StepFailed("not_found", _NO_EMBEDDINGS, detail={"hint": _INSTALL})
        value = await _in_time(extract_summary(effect.prompt, self._embedder), context.timeout)
        return Performed(value, _embeddings())


def _embeddings() -> dict[str, Json]:
    return {"model": "multilingual-e5-small", "way": "embeddings", "input_tokens": 0, "output_tokens": 0, "repairs": 0}


def _request(
    effect: ModelCall, choice: Choice, context: CallContext, *, prompt: str = "", schema: Json = None
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
        on_text=context.on_text,
    )


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
