"""Stores in the memory of one process."""

from __future__ import annotations

from stepwell.stores.memory.store import MemoryRunStore

__all__ = ["MemoryRunStore"]
