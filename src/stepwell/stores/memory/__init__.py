"""Stores in the memory of one process."""

from __future__ import annotations

from stepwell.stores.memory.library import MemoryLibrary
from stepwell.stores.memory.store import MemoryRunStore

__all__ = ["MemoryLibrary", "MemoryRunStore"]
