"""Loading for the tests of definitions."""

from __future__ import annotations

import pytest

from stepwell.definition import LoadedWorkflow, load_text
from stepwell.errors import DefinitionError
from stepwell.kinds import discover


class Loader:
    """Loads texts and tells their problems as lines."""

    def __init__(self) -> None:
        self.kinds = discover()

    def load(self, text: str, **options) -> LoadedWorkflow:
        return load_text(text, kinds=self.kinds, **{"file": "f.yaml", **options})

    def problems(self, text: str, **options) -> list[str]:
        """Errors, warnings and notes, one text each."""
        try:
            return [str(problem) for problem in self.load(text, **options).warnings]
        except DefinitionError as error:
            return [str(problem) for problem in error.problems]

    def steps(self, text: str, **options) -> list[str]:
        """The problems of a list of steps written at the top of a file."""
        return self.problems(f"workflow: w\nsteps:\n{text}", **options)


@pytest.fixture(scope="session")
def loader() -> Loader:
    return Loader()
