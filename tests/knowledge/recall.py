"""How often the right passage is among the first five, by words, by meaning and by both.

python -m tests.knowledge.recall        prints the table
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from stepwell.adapters.models.embeddings import LocalEmbedder
from stepwell.ports import DocumentWrite
from stepwell.stores.knowledge_sqlite import SqliteKnowledge
from stepwell.stores.sqlite.database import Database

SET = Path(__file__).with_name("recall.yaml")
WAYS = ("words", "meaning", "both")
FIRST = 5


@dataclass
class Score:
    """Recall at five, and the mean of 1/rank among them, by way and kind of question."""

    found: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    missed: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def recall(self, way: str, kind: str = "all") -> float:
        ranks = self.found[way, kind]
        return sum(rank > 0 for rank in ranks) / len(ranks)

    def reciprocal(self, way: str, kind: str = "all") -> float:
        ranks = self.found[way, kind]
        return sum(1 / rank for rank in ranks if rank) / len(ranks)

    def table(self) -> str:
        kinds = [kind for way, kind in self.found if way == "both"]
        lines = [f"{'questions':12} {'n':>4} " + " ".join(f"{way:>14}" for way in WAYS)]
        for kind in kinds:
            cells = [f"{self.recall(way, kind):6.3f} ({self.reciprocal(way, kind):.2f})" for way in WAYS]
            lines.append(f"{kind:12} {len(self.found['both', kind]):4} " + " ".join(f"{cell:>14}" for cell in cells))
        return "\n".join(lines)


async def measured() -> Score:
    """The score of the labelled set with the embedded model and the store that engines use."""
    data: dict[str, Any] = yaml.safe_load(SET.read_text("utf-8"))
    embedder = LocalEmbedder()
    with TemporaryDirectory() as folder:
        databases = [Database.open(Path(folder) / name) for name in ("both.db", "words.db")]
        both, words = SqliteKnowledge(databases[0], embedder), SqliteKnowledge(databases[1])
        for name, text in data["documents"].items():
            for store in (both, words):
                await store.write("a", DocumentWrite(name, text))
        await both.make_vectors()
        score = Score()
        for question, label, kind in data["questions"]:
            passages = await both.search("a", question, limit=100)
            ranked = {
                "words": await words.search("a", question),
                "meaning": sorted((one for one in passages if one.by_meaning), key=lambda one: one.by_meaning),
                "both": passages,
            }
            for way in WAYS:
                rank = _rank(ranked[way][:FIRST], label)
                score.found[way, "all"].append(rank)
                score.found[way, kind].append(rank)
                if not rank:
                    score.missed[way].append(f"{question}  ({label})")
        await both.aclose()
        for database in databases:
            await database.close()
    await embedder.aclose()
    return score


def _rank(passages: list[Any], label: str) -> int:
    document, _, heading = label.partition("#")
    for rank, passage in enumerate(passages, 1):
        if passage.document == document and (not heading or passage.heading.endswith(heading)):
            return rank
    return 0


if __name__ == "__main__":
    found = asyncio.run(measured())
    print(found.table())
    if "--missed" in sys.argv:
        for way in WAYS:
            print(f"\nmissed by {way}:", *found.missed[way], sep="\n  ")
