"""The tools of the review example: somebody who writes notices and does what is asked, and a status page in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import stepwell

WORLD = Path(os.environ.get("EXAMPLE_WORLD", "outside-world"))


@stepwell.tool()
def write_notice(facts: list[str], reviews: list[dict[str, Any]]) -> dict[str, Any]:
    """A notice of these facts that does what every review so far has asked for."""
    sentences = list(facts)
    answers = []
    for review in reviews:
        wishes = review.get("data") or {}
        unwanted, wanted = wishes.get("leave_out"), wishes.get("must_say")
        done = []
        if unwanted:
            kept = [one for one in sentences if unwanted not in one]
            done.append(f"left out: {len(sentences) - len(kept)}")
            sentences = kept
        if wanted:
            sentences.append(wanted)
            done.append("added: 1")
        answers.append(f"{review['by']}: {review['comment']} ({', '.join(done) or 'done by hand'})")
    return {"text": " ".join(sentences), "answers": answers}


@stepwell.tool()
def publish(subject: str, text: str) -> dict[str, str]:
    """Put a notice on the status page; the same one again changes nothing."""
    WORLD.mkdir(parents=True, exist_ok=True)
    page = WORLD / "status-page.txt"
    page.write_text(f"{subject}\n\n{text}\n", "utf-8")
    return {"page": page.name}
