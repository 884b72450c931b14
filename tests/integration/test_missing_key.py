"""A key that the settings name and that is not there is told before a run, not by a provider during it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell.engine import open_engine
from stepwell.engine.settings import Settings
from stepwell.errors import InputError

TOML = """
[project]
default_model = "big"
[models.big]
provider = "openai"
base_url = "http://127.0.0.1:9/v1"
model = "big"
api_key = "env:NO_SUCH_KEY"
"""


async def test_a_missing_key_is_a_problem_of_preflight_and_doctor(tmp_path: Path) -> None:
    (tmp_path / "stepwell.toml").write_text(TOML)
    (tmp_path / "w.yaml").write_text("workflow: w\nsteps: [{id: a, type: llm_call, prompt: hello}]\n")
    settings = Settings.load(tmp_path, {})
    async with open_engine(f"sqlite:///{tmp_path}/x.db", settings=settings) as engine:
        with pytest.raises(InputError, match="NO_SUCH_KEY"):
            await engine.start(engine.load(tmp_path / "w.yaml"), {})
        assert any("NO_SUCH_KEY" in problem.message for problem in await engine.doctor())
        assert await engine.runs() == []
