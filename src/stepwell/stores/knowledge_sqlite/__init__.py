"""The knowledge base on the engine's SQLite file."""

from stepwell.stores.knowledge_sqlite.store import SqliteKnowledge

__all__ = ["SqliteKnowledge"]
