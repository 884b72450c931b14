"""The loss of the right to write a journal."""

from __future__ import annotations


class LeaseLost(BaseException):
    """An owner that is not the owner any more: another one may have taken the run, and nothing was written.

    A BaseException, so that no step's error handling catches it: what an outdated owner believes is not a failure of
    the run.
    """

    def __init__(self, run_id: str = "") -> None:
        super().__init__(f"run {run_id or 'of this lease'} belongs to another owner now")
        self.run_id = run_id
