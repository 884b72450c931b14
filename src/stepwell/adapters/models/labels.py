"""Which label fits a text, by the nearness of vectors: no language model is asked and nothing is generated.

A label's vector is the normalised mean of "name: description" and its examples (a nearest-centroid classifier), each
embedded both as a query and as a passage; the text is a query. With one prefix alone the vectors lean towards what the
prefix says: on the 55 tickets of `bench/models.py` 47 (queries) and 51 (passages) were right, with both 54.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.errors import StepFailed

if TYPE_CHECKING:
    from stepwell.ports import Embedder

Json: TypeAlias = Any
Vector: TypeAlias = Sequence[float]

TEMPERATURE = 0.01
"""Divides cosines before the softmax that makes `scores` of them.

E5 was trained with a contrastive loss at this temperature (Wang et al., "Text Embeddings by Weakly-Supervised
Contrastive Pre-training", 2022), so at it the differences of its cosines, which are small, mean what they were trained
to mean. On the labelled tickets of `bench/models.py` the mean confidence is then about 0.7 where 54 of 55 are right:
rather too modest than too sure.
"""
READ = 20_000
"""Characters of a text that are read; about six pieces of 400 characters a second and core are embedded."""
_KEPT = 64


@dataclass(frozen=True, slots=True)
class LabelMeaning:
    """A label with what says what it means."""

    name: str
    description: str = ""
    examples: tuple[str, ...] = ()

    def texts(self) -> list[str]:
        """What its vector is made of."""
        return [f"{self.name}: {self.description}" if self.description else self.name, *self.examples]


def label_meanings(labels: Json) -> list[LabelMeaning]:
    """Labels as a recipe gives them: names, or a map of names to a description or `{description, examples}`.

    Raises StepFailed("validation_error") if there are none.
    """
    if isinstance(labels, Mapping):
        found = [_meaning(str(name), value) for name, value in labels.items()]
    else:
        found = [LabelMeaning(str(name)) for name in labels or ()]
    if not found:
        raise StepFailed("validation_error", "there are no labels to choose from")
    return found


def _meaning(name: str, value: Json) -> LabelMeaning:
    if isinstance(value, Mapping):
        return LabelMeaning(name, str(value.get("description") or ""), tuple(value.get("examples") or ()))
    return LabelMeaning(name, str(value or ""))


@dataclass(slots=True)
class LabelVectors:
    """Classifies texts; the vectors of the labels last used are kept."""

    embedder: Embedder
    _known: OrderedDict[str, list[list[float]]] = field(default_factory=OrderedDict)

    async def classify(self, text: str, labels: Sequence[LabelMeaning]) -> dict[str, Json]:
        """`{label, confidence, scores}`; scores are positive and sum to 1, and `confidence` is that of `label`.

        Raises StepFailed("validation_error") if there is no text.
        """
        if not text.strip():
            raise StepFailed("validation_error", "there is no text to classify: the prompt is empty")
        centroids = await self._centroids(labels)
        (vector,) = await self.embedder.queries([text[:READ]])
        scores = softmax([cosine(vector, centroid) for centroid in centroids], TEMPERATURE)
        return chosen({label.name: score for label, score in zip(labels, scores, strict=True)})

    async def _centroids(self, labels: Sequence[LabelMeaning]) -> list[list[float]]:
        key = json.dumps([label.texts() for label in labels])
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        texts = [text for label in labels for text in label.texts()]
        queries, passages = await self.embedder.queries(texts), await self.embedder.passages(texts)
        both = iter(zip(queries, passages, strict=True))
        centroids = [centroid([vector for _ in label.texts() for vector in next(both)]) for label in labels]
        self._known[key] = centroids
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return centroids


def chosen(scores: dict[str, float], label: str = "") -> dict[str, Json]:
    """The output of a classification; without `label`, the one with the highest score."""
    label = label or max(scores, key=scores.__getitem__)
    rounded = {name: round(score, 4) for name, score in scores.items()}
    return {"label": label, "confidence": rounded[label], "scores": rounded}


def centroid(vectors: Sequence[Vector]) -> list[float]:
    """The mean of vectors, at norm 1."""
    sums = [math.fsum(parts) for parts in zip(*vectors, strict=True)]
    norm = math.sqrt(math.fsum(part * part for part in sums)) or 1.0
    return [part / norm for part in sums]


def cosine(left: Vector, right: Vector) -> float:
    """The cosine of two vectors of norm 1."""
    return math.fsum(a * b for a, b in zip(left, right, strict=True))


def softmax(values: Sequence[float], temperature: float) -> list[float]:
    """Positive numbers that sum to 1 and grow with `values`."""
    top = max(values)
    powers = [math.exp((value - top) / temperature) for value in values]
    total = math.fsum(powers)
    return [power / total for power in powers]
