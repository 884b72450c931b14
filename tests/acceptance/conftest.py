"""What every example is run in."""

from __future__ import annotations

import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working directory with a database of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPWELL_DATABASE", f"sqlite:///{tmp_path}/stepwell.db")
    return tmp_path
