"""Stores on an SQLite file that several processes may share."""

from __future__ import annotations

from stepwell.stores.sqlite.connection import Durability
from stepwell.stores.sqlite.database import Database
from stepwell.stores.sqlite.library import SqliteLibrary
from stepwell.stores.sqlite.store import SqliteRunStore

__all__ = ["Database", "Durability", "SqliteLibrary", "SqliteRunStore"]
