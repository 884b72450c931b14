"""Wiring: the one place that names concrete stores and adapters."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell.adapters.http_tool import HttpTool
from stepwell.adapters.limits import LocalLimiter, NoLimiter, RedisLimiter, Terms
from stepwell.adapters.mcp.pool import Pool
from stepwell.adapters.mcp.tools import McpTools
from stepwell.adapters.models.anthropic_messages import Anthropic
from stepwell.adapters.models.embedded_text import EmbeddedText
from stepwell.adapters.models.embeddings import LocalEmbedder
from stepwell.adapters.models.limited import Limited
from stepwell.adapters.models.openai_compatible import OpenAICompatible
from stepwell.adapters.models.provider import ProviderModel
from stepwell.adapters.own_tools import OwnTools
from stepwell.adapters.python_tools import PythonTools
from stepwell.engine.clock import SYSTEM
from stepwell.engine.context import InformedModels
from stepwell.engine.events import Listeners
from stepwell.engine.knowledge_performer import KnowledgePerformer
from stepwell.engine.model_performer import ModelPerformer
from stepwell.engine.notify_performer import NotifyPerformer
from stepwell.engine.parts import Parts
from stepwell.engine.settings import Settings, absolute_database
from stepwell.engine.shelf import RecipesInFilesOrOnTheShelf, Shelf
from stepwell.engine.spending import Spender
from stepwell.engine.tool_performer import ToolPerformer
from stepwell.engine.toolbox import Toolbox
from stepwell.engine.vault import Vault
from stepwell.engine.world import World
from stepwell.errors import DefinitionError, Problem
from stepwell.extras import installing
from stepwell.interpreter.effect import KnowledgeRead, KnowledgeWrite, ModelCall, Notify, ToolCall
from stepwell.library.recipes import FileRecipes
from stepwell.library.workflows import workflow_file
from stepwell.stores.knowledge_sqlite import SqliteKnowledge
from stepwell.stores.sqlite import SqliteLibrary, SqliteRunStore

if TYPE_CHECKING:
    from stepwell.engine.performer import Performer
    from stepwell.engine.settings_models import ModelSettings
    from stepwell.interpreter.effect import Effect
    from stepwell.ports import Limiter, Tools


async def assemble(
    database: str, settings: Settings, tools: Sequence[Path], on_busy: Callable[..., Any] | None
) -> Parts:
    """Everything an engine stands on. Raises DefinitionError (settings, tools files) and Unavailable (database)."""
    tool_files = tuple(dict.fromkeys([*settings.tools, *(path.resolve() for path in tools)]))
    http = _http(settings)
    own = OwnTools(PythonTools.from_files(tool_files), http)
    store = SqliteRunStore.open(_file(database), durability=settings.durability, on_busy=on_busy)
    closing: list[Callable[[], Any]] = []
    embedder = LocalEmbedder()
    knowledge = SqliteKnowledge(store.database, embedder)
    limiter = _limiter(settings)
    closing += [http.aclose, embedder.aclose, knowledge.aclose, limiter.aclose]
    worlds = Worlds(store, knowledge, embedder, limiter, closing)
    answering = worlds.models(settings)
    registered = worlds.tools(own, settings)
    library = SqliteLibrary(store.database)
    vault = Vault(settings.secrets, settings.keys())
    shelf = Shelf(store, library, "default")
    return Parts(
        store=store,
        library=library,
        world=worlds.world(registered, answering, vault),
        tools=registered,
        knowledge=knowledge,
        recipes_beside=lambda path: RecipesInFilesOrOnTheShelf(FileRecipes(path, settings.recipes), shelf),
        workflow_file=lambda name, beside: workflow_file(name, beside, settings.workflows),
        tool_files=tool_files,
        models=answering,
        limiter=limiter,
        vault=vault,
        servers=registered.mcp if settings.mcp else None,
        world_of=lambda project: worlds.of_project(project, tool_files, settings),
        closing=closing,
    )


class Worlds:
    """What runs may touch: one world for each project whose runs one engine carries on."""

    def __init__(
        self,
        store: SqliteRunStore,
        knowledge: SqliteKnowledge,
        embedder: LocalEmbedder,
        limiter: Limiter,
        closing: list[Callable[[], Any]],
    ) -> None:
        self._store = store
        self._knowledge = knowledge
        self._searching = KnowledgePerformer(knowledge)
        self._embedder = embedder
        self._limiter = limiter
        self._closing = closing
        self._listeners = Listeners()
        self._pool = Pool()
        closing.append(self._pool.aclose)
        self._known: dict[tuple[str, tuple[str, ...]], World] = {}

    def models(self, settings: Settings) -> ModelPerformer:
        """The models of a project's settings; they are closed with the engine."""
        models = {name: _limited(model, settings) for name, model in settings.models.items()}
        self._closing += [model.aclose for model in models.values()]
        fallbacks = {name: model.fallback for name, model in settings.models.items()}
        return ModelPerformer(
            models,
            settings.default_model,
            self._embedder,
            limiter=self._limiter,
            fallbacks=fallbacks,
            spender=Spender(self._store.spending, settings.budgets, SYSTEM.now),
        )

    def tools(self, own: Tools, settings: Settings) -> Toolbox:
        """A project's tools with those of its MCP servers. Raises DefinitionError."""
        return Toolbox(own, McpTools(settings.mcp.values(), self._pool))

    def world(self, tools: Toolbox, models: ModelPerformer, vault: Vault) -> World:
        performers: dict[type[Effect], Performer] = {
            ModelCall: InformedModels(models, self._knowledge),
            ToolCall: ToolPerformer(tools),
            KnowledgeRead: self._searching,
            KnowledgeWrite: self._searching,
            Notify: NotifyPerformer(),
        }
        world = World(self._store, performers, tools, self._listeners, vault=vault)
        return replace(world, prepare=tools.prepare, ended=self._pool.release) if tools.mcp.servers else world

    def of_project(self, project: dict[str, Any], own: Sequence[Path], settings: Settings) -> World | None:
        """The world of the project that a run was started in; None if it is the engine's own.

        Raises DefinitionError if its settings or tools are wrong or no longer there.
        """
        if "mock" in project:  # whoever carries such runs on puts another world here
            message = "the run was started with --mock, and what it does must not become real"
            raise DefinitionError([Problem("error", "mock", message, "carry it on from the command line")])
        files = tuple(str(file) for file in project.get("tools") or ())
        root = str(project.get("root") or settings.root)
        if set(files) <= {str(file) for file in own} and Path(root) == settings.root:
            return None
        key = (root, files)
        if key not in self._known:
            its = Settings.load(Path(root), os.environ)
            vault = Vault(its.secrets, its.keys())
            http = _http(its)
            self._closing.append(http.aclose)
            tools = self.tools(OwnTools(PythonTools.from_files(files), http), its)
            self._known[key] = self.world(tools, self.models(its), vault)
        return self._known[key]


def _http(settings: Settings) -> HttpTool:
    return HttpTool(settings.http.allow_private, max_bytes=settings.http.max_bytes)


def _file(database: str) -> Path:
    try:
        return Path(absolute_database(database, Path.cwd()).removeprefix("sqlite:///"))
    except ValueError as error:
        raise DefinitionError([Problem("error", "database", str(error))]) from None


def _limiter(settings: Settings) -> Limiter:
    limits = settings.limits
    if not limits.model_calls:
        return NoLimiter()
    if not limits.redis:
        return LocalLimiter(limits.model_calls)
    if find_spec("redis") is None:
        message = "[limits] redis needs the package redis, which is not installed"
        raise DefinitionError([Problem("error", "missing", message, installing("redis"))])
    return RedisLimiter(
        limits.redis.reveal(), Terms(limits.model_calls, lease=limits.lease, on_error=limits.on_limiter_error)
    )


def _limited(model: ModelSettings, settings: Settings) -> EmbeddedText | ProviderModel | Limited:
    made = _model(model, settings)
    return Limited(made, model.max_concurrency) if model.max_concurrency else made


def _model(model: ModelSettings, settings: Settings) -> EmbeddedText | ProviderModel:
    if model.provider == "embedded":
        return EmbeddedText(model.name, gguf=settings.embedded_gguf)
    kind = Anthropic if model.provider == "anthropic" else OpenAICompatible
    key, missing = model.api_key.reveal(), model.api_key.missing
    return kind(model.name, model.base_url, model.model, api_key=key, key_missing=missing, price=model.price)
