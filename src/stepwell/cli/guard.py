"""The guard of what a command prints and logs: no value of a secret of the settings gets out through either.

The law of the file: it looks at texts on their way out and changes nothing else; without secrets it is not there.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepwell.adapters.redaction import RedactedStream, Redactor
    from stepwell.engine.settings import Settings


def guard_output(settings: Settings) -> None:
    """Keep the secrets of these settings out of standard output, standard error and the log, to the process's end."""
    from stepwell.engine.vault import Vault

    redactor = Vault(settings.secrets, settings.keys()).redactor
    if not redactor:
        return
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        bare = stream.bare if isinstance(stream, GuardedStream) else stream
        if isinstance(stream, GuardedStream):
            stream.end()
        guarded = GuardedStream(bare, redactor)
        setattr(sys, name, cast("TextIO", guarded))
        atexit.register(guarded.end)
    logging.setLogRecordFactory(_Records(redactor))


class GuardedStream:
    """A text stream that writes no secret; the rest is as the stream itself does it."""

    def __init__(self, bare: TextIO, redactor: Redactor) -> None:
        self.bare = bare
        self._lock = threading.RLock()
        self._parts: RedactedStream = redactor.stream(self._write)

    def _write(self, text: str) -> None:
        self.bare.write(text)

    def write(self, text: str) -> int:
        with self._lock:
            self._parts.feed(text)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def end(self) -> None:
        """Write what was held back because it could have been the beginning of a secret."""
        with self._lock:
            if not self.bare.closed:
                self._parts.end()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)


class _Records:
    """Makes records of the log whose messages and tracebacks hold no secret, whoever prints them."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        made = logging.getLogRecordFactory()
        self._make: Callable[..., logging.LogRecord] = made._make if isinstance(made, _Records) else made

    def __call__(self, *args: Any, **named: Any) -> logging.LogRecord:
        record = self._make(*args, **named)
        try:
            said = record.getMessage()
        except Exception:  # noqa: BLE001 -- a wrong call of the log is told by the log, as always
            return record
        record.msg, record.args = self._redactor.text(said), ()
        if record.exc_info and record.exc_info[0] is not None:
            lines = traceback.format_exception(*record.exc_info)
            record.exc_text = self._redactor.text("".join(lines).rstrip("\n"))
            record.exc_info = None
        return record
