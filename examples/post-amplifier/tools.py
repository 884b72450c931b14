"""The tools of the post-amplifier example: a stand-in for a writer and for two networks."""

from __future__ import annotations

import json
from dataclasses import dataclass

import stepwell

POSTED = {"a3"}


@dataclass(frozen=True, slots=True)
class Article:
    """An article to write a post about."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Post:
    """A short text for a network."""

    id: str
    text: str


@stepwell.tool()
def already_posted(ids: list[str]) -> dict[str, list[str]]:
    """Those of the articles that were posted before."""
    return {"ids": [one for one in ids if one in POSTED]}


@stepwell.tool()
def write_post(article: Article) -> dict[str, str]:
    """A post as JSON text, as a model gives it; one article makes it break off."""
    answer = json.dumps({"post": f"{article.title}: {article.text}"}, ensure_ascii=False)
    return {"text": answer[:-5] if article.id == "broken" else answer}


@stepwell.tool()
def send_posts(network: str, posts: list[Post], *, key: stepwell.IdempotencyKey) -> dict[str, int | str]:
    """Send posts to a network; the same key never sends them twice."""
    if network == "lantern":
        raise stepwell.StepFailed("server_error", "lantern is down")
    return {"network": network, "sent": len(posts), "key": str(key)}
