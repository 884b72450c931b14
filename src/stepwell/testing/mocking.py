"""Runs with scripts in real time, on a real database: `stepwell run --mock FILE`.

The law of the file: a run that was started with scripts keeps them, and whoever carries it on answers from them;
nothing of it ever becomes real.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.python_tools import PythonTools
from stepwell.definition import json_text, yaml_text
from stepwell.definition.positions import Positions, plain
from stepwell.definition.report import Report, TooWrong
from stepwell.engine.vault import SCRIPTED
from stepwell.errors import DefinitionError, Problem
from stepwell.interpreter.effect import Effect, KnowledgeRead, KnowledgeWrite, ModelCall, Notify, ToolCall
from stepwell.testing.mortal_store import MortalStore
from stepwell.testing.scripted_people import ScriptedPeople
from stepwell.testing.scripted_world import AnyModels, AnyTools, ScriptedWorld
from stepwell.testing.scripts import located, read_scripts

if TYPE_CHECKING:
    from stepwell.engine.engine import Engine
    from stepwell.engine.parts import Parts
    from stepwell.engine.performer import CallContext, Performed, Performer
    from stepwell.engine.world import World
    from stepwell.ports import Tools, Wait

Json: TypeAlias = Any
EFFECTS: tuple[type[Effect], ...] = (ModelCall, ToolCall, KnowledgeRead, KnowledgeWrite, Notify)


def load_mock(file: Path) -> dict[str, Json]:
    """The scripts of a mock file, as plain data. Raises DefinitionError with everything that is wrong."""
    report = Report(str(file))
    try:
        text = file.read_text("utf-8-sig")
        root = (json_text if file.suffix == ".json" else yaml_text).compose(text, report)
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError([Problem("error", "file", f"cannot read the file: {error}", "", str(file))]) from None
    except TooWrong:
        raise report.error() from None
    data, positions = plain(root), Positions(root)
    if not isinstance(data, dict):
        problem = Problem("error", "script", "a mock file maps steps to their answers", "write  step: {output: ...}")
        raise DefinitionError([replace(problem, file=str(file), line=1, column=1)])
    _, wrong = read_scripts(data)
    problems = [*report.problems, *(located(problem, str(file), positions) for problem in wrong)]
    if problems:
        raise DefinitionError(problems)
    return data


class Mocks:
    """The scripted worlds of the runs that one engine carries on, each run its own."""

    def __init__(self, scripts: dict[str, Json] | None = None) -> None:
        """`scripts` are those of runs that are started here; without them, runs are started in earnest."""
        self.scripts = scripts or {}
        self._started = scripts is not None
        self._worlds: dict[str, ScriptedWorld] = {}
        self._people: dict[str, ScriptedPeople] = {}
        self._engine: Engine | None = None
        self._news = asyncio.Event()
        self._seen: dict[str, int] = {}

    def over(self, parts: Parts) -> Parts:
        """The parts of an engine that carries on runs with scripts besides others."""
        usual = parts.world_of
        changed = replace(
            parts,
            world_of=lambda project: self._world(parts, project) if "mock" in project else usual(project),
        )
        if not self._started:
            return changed
        known = AnyTools(ScriptedWorld(known=parts.tools))
        scripted = replace(changed, tools=known, models=AnyModels(), vault=SCRIPTED, servers=None, retrieves=False)
        return replace(scripted, remembers={"mock": self.scripts})

    def use(self, engine: Engine) -> None:
        """The engine through which scripted people act."""
        self._engine = engine
        for people in self._people.values():
            people.use(engine)

    def has(self, run_id: str) -> bool:
        """Whether a run is answered from scripts, as far as it has begun here or is about to."""
        return self._started or run_id in self._worlds

    async def something_comes(self, run_id: str) -> bool:
        """Wait for the next act of a scripted person on a parked run; False if there is none to come."""
        people = self._people.get(run_id)
        if people is None:
            return False
        while people.acts == self._seen.get(run_id, 0) and people.busy:
            self._news.clear()
            await self._news.wait()
        before, self._seen[run_id] = self._seen.get(run_id, 0), people.acts
        return people.acts > before

    def _world(self, parts: Parts, project: dict[str, Json]) -> World:
        scripts = project["mock"]
        known = PythonTools.from_files(file for file in project.get("tools") or () if Path(str(file)).exists())
        performers: dict[type[Effect], Performer] = {kind: self._performer(kind, scripts, known) for kind in EFFECTS}
        store = MortalStore(parts.world.store, lambda wait: self._opened(wait, scripts, known))
        tools = AnyTools(ScriptedWorld(known=known))
        return replace(parts.world, store=store, performers=performers, tools=tools, vault=SCRIPTED)

    def _performer(self, kind: type[Effect], scripts: dict[str, Json], known: Tools) -> Performer:
        async def perform(effect: Effect, context: CallContext) -> Performed:
            return await self._of(context.run_id, scripts, known).performers()[kind](effect, context)

        return perform

    def _of(self, run_id: str, scripts: dict[str, Json], known: Tools) -> ScriptedWorld:
        if run_id not in self._worlds:
            world = self._worlds[run_id] = ScriptedWorld(scripts, strict=False, known=known)
            people = self._people[run_id] = ScriptedPeople(world, self._news.set)
            if self._engine is not None:
                people.use(self._engine)
        return self._worlds[run_id]

    def _opened(self, wait: Wait, scripts: dict[str, Json], known: Tools) -> None:
        self._of(wait.run_id, scripts, known)
        self._people[wait.run_id].opened(wait)
