"""Which file the database is: one of Stepwell's, and still the one that was opened.

The law of the file: what is not ours is refused before anything of it is changed. The file is never opened here but by
SQLite: to close it would drop the locks that other connections of this process hold
(https://sqlite.org/howtocorrupt.html, section 2.2).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from stepwell.errors import Unavailable

APPLICATION_ID = int.from_bytes(b"Stpw", "big")
"""Says in the file's header whose it is (https://sqlite.org/fileformat2.html, section 1.3.13)."""
_OUR_COLUMNS = """
SELECT count(*) FROM pragma_table_info('schema_migration') WHERE name IN ('part', 'number', 'title', 'checksum')
"""
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NAMED = 3


class OpenFile:
    """The file at a path as it was when the database was opened."""

    __slots__ = ("_device", "_inode", "path")

    def __init__(self, path: Path) -> None:
        """Raises Unavailable."""
        self.path = path
        try:
            found = self.path.stat()
        except OSError as error:
            raise Unavailable(f"database {path}: its file cannot be found ({error.strerror})") from error
        self._inode, self._device = found.st_ino, found.st_dev

    def check(self) -> None:
        """Raises Unavailable unless the file is still there: what is written to one that is not is lost."""
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise Unavailable(f"database {self.path}: its file cannot be found ({error.strerror})") from error
        else:
            if found.st_ino == self._inode and found.st_dev == self._device:
                return
        raise Unavailable(f"the database file {self.path} was removed or replaced while it was in use")


def refuse_foreign_file(path: Path) -> None:
    """Raises Unavailable if the file holds what another program keeps there; leaves it and its folder as they are.

    Raises sqlite3.OperationalError if the file is busy. Says nothing where only a connection that may write can tell.
    """
    try:
        if not path.stat().st_size:
            return
    except OSError:
        return
    quiet = _is_quiet(path)
    try:
        with closing(_connect_to_look(path, quiet=quiet)) as connection:
            refuse_foreign(path, connection)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY:
            raise
    except Unavailable:
        if quiet == _is_quiet(path):
            raise


def refuse_foreign(path: Path, connection: sqlite3.Connection) -> None:
    """Raises Unavailable if the database is another program's; one with nothing in it is anybody's."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application == APPLICATION_ID:
        return
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema ORDER BY rowid")]
    ours = not names or connection.execute(_OUR_COLUMNS).fetchone() == (4,)
    if application == 0 and ours:
        return
    held = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "") if names else "nothing yet"
    raise Unavailable(
        f"database {path}: it belongs to another program (it holds: {held}) and was left as it is; name another file"
    )


def _connect_to_look(path: Path, *, quiet: bool) -> sqlite3.Connection:
    """A connection that leaves no -wal and -shm behind where `quiet` says that nobody writes."""
    mode = "mode=ro&immutable=1" if quiet else "mode=ro"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=1.0, isolation_level=None)


def _is_quiet(path: Path) -> bool:
    """Whether all there is stands in the file itself: no log and no journal beside it has content."""
    for suffix in ("-wal", "-journal"):
        try:
            if path.with_name(path.name + suffix).stat().st_size:
                return False
        except OSError:
            continue
    return True
