"""The tools of the content-review example: a stand-in for a writer, and one for a place to publish."""

from __future__ import annotations

import hashlib

import stepwell


@stepwell.tool()
def write_draft(topic: str, points: list[str], earlier: str, remark: str) -> dict[str, str]:
    """A draft; "shorter" in the remark drops its last sentence, any other remark is worked in as a sentence."""
    if not earlier:
        return {"text": " ".join(points)}
    sentences = earlier.split(". ")
    if "shorter" in remark.casefold() and len(sentences) > 1:
        return {"text": ". ".join(sentences[:-1]) + "."}
    return {"text": f"{earlier} {remark.strip().rstrip('.').capitalize()}." if remark else earlier}


@stepwell.tool()
def publish(headline: str, text: str, *, key: stepwell.IdempotencyKey) -> dict[str, str | int]:
    """Publish an article; the same key never publishes twice."""
    page = hashlib.sha256(str(key).encode()).hexdigest()[:8]
    return {"url": f"https://magazine.example/{page}", "headline": headline, "words": len(text.split())}
