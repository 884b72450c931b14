"""The tools of the intent-answers example: rules from files, and answers that quote them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import stepwell

RULES = Path(__file__).parent / "知识"


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage that was found; `score` ranks within one search."""

    text: str
    document: str
    score: float
    collection: str
    version: int
    heading: str
    page: int


@stepwell.tool()
def read_rules() -> dict[str, list[dict[str, str]]]:
    """The library's rules, one document a file."""
    files = sorted(RULES.glob("*.md"))
    return {"documents": [{"名称": file.stem, "内容": file.read_text(encoding="utf-8")} for file in files]}


@stepwell.tool()
def small_talk(text: str) -> dict[str, str]:
    """A friendly word; nothing is looked up for it."""
    return {"text": "不客气，祝您阅读愉快。" if "谢" in text else "很高兴见到您，请问想了解什么？"}


@stepwell.tool()
def answer_from_rules(question: str, passages: list[Passage]) -> dict[str, str | None]:
    """The best passage as the answer; without one, the question goes to a colleague."""
    del question  # the search has ranked by it
    if not passages:
        return {"text": "这个问题我转给同事，一个工作日内答复您。", "document": None}
    best = passages[0]
    lines = [line for line in best.text.splitlines() if line and not line.startswith("#")]
    return {"text": "".join(lines), "document": best.document}
