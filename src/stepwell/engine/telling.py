"""Telling what a model says while it says it: pieces of text, joined, as events of the step.

The law of the file: nothing of it is recorded or awaited; a fast stream makes few events, and the last piece is told
before the end of the step is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from stepwell.adapters.redaction import NOTHING_HIDDEN, Redactor
from stepwell.engine.events import TEXT
from stepwell.journal import path as paths

Json: TypeAlias = Any

JOINED = 0.05
"""Seconds in which pieces are joined to one event."""


class Telling:
    """What is told of one attempt at `path`: the model's text, and which request to a model it answers.

    Another request (a fallback, the next turn) makes another `answer`; what came before it is void or done.
    """

    def __init__(
        self,
        emit: Callable[[str, str, dict[str, Json]], None],
        path: str,
        attempt: int,
        hide: Redactor = NOTHING_HIDDEN,
    ) -> None:
        self._emit = emit
        self._step, _, turn = path.partition(paths.TURN)
        self._facts: dict[str, Json] = {"attempt": attempt, "answer": 1}
        if turn:
            self._facts["turn"] = int(turn)
        self._begun = False
        self._deaf = False
        self._pieces: list[str] = []
        self._clean = hide.stream(self._pieces.append)
        self._due: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Another request is made."""
        self._clean.end()
        self.flush()
        if self._begun:
            self._facts["answer"] += 1
        self._begun = True

    def __call__(self, piece: str) -> None:
        if self._deaf:
            return
        self._clean.feed(piece)
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(JOINED, self.flush)

    def flush(self) -> None:
        """Tell what has come."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._pieces:
            text = "".join(self._pieces)
            self._pieces.clear()
            self._emit(TEXT, self._step, self._facts | {"text": text})

    def close(self) -> None:
        """Tell the rest, and nothing after it."""
        self._clean.end()
        self.flush()
        self._deaf = True
