"""An engine over a store in memory and scripted tools, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from stepwell.definition.load import LoadedWorkflow, load_text
from stepwell.engine.engine import Engine
from stepwell.engine.events import Listeners
from stepwell.engine.parts import Parts
from stepwell.engine.performer import Performer
from stepwell.engine.tool_performer import ToolPerformer
from stepwell.engine.world import World
from stepwell.interpreter.effect import ModelCall, ToolCall
from stepwell.kinds import discover
from stepwell.ports import RunStore, Wait
from stepwell.stores.knowledge_memory import MemoryKnowledge
from stepwell.stores.memory import MemoryLibrary, MemoryRunStore
from stepwell.testing.scripted import ScriptedTools
from stepwell.testing.scripted_world import AnyModels

Json = Any


def workflow(text: str | Json, **parts: Json) -> LoadedWorkflow:
    """A checked workflow from YAML, or from a list of steps."""
    if not isinstance(text, str):
        text = yaml.safe_dump({"workflow": "w", "steps": text, **parts}, sort_keys=False, allow_unicode=True)
    return load_text(text, file="w.yaml", kinds=discover())


@asynccontextmanager
async def engine_with(
    tools: ScriptedTools,
    store: RunStore | None = None,
    *,
    serves: bool = False,
    models: Performer | None = None,
) -> AsyncIterator[Engine]:
    """An engine; `models` performs the calls of models, whatever a step names."""
    store = store or MemoryRunStore()
    performers: dict[Any, Performer] = {ToolCall: ToolPerformer(tools)} | ({ModelCall: models} if models else {})
    world = World(store, performers, tools, Listeners())
    library = MemoryLibrary(store) if isinstance(store, MemoryRunStore) else None
    asked = AnyModels() if models else None
    parts = Parts(store, world, tools, MemoryKnowledge(), library=library, models=asked)
    engine = Engine(parts, SimpleNamespace(root=Path("/")), serves=serves)  # type: ignore[arg-type]
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


async def open_waits(engine: Engine, run_id: str) -> dict[str, Wait]:
    """Open approvals by path."""
    return {wait.path: wait for wait in await engine.waits(run_id=run_id)}


async def statuses(engine: Engine, run_id: str) -> dict[str, str]:
    """The status of every step, by path."""
    return {step["path"]: step["status"] for step in (await engine.tree(run_id)).as_json()["steps"]}
