"""The tools that `stepwell mcp` offers: workflows are listed and started, runs are read, approvals decided.

It is imported only where `mcp` is installed. The law of the file: nothing is decided by nobody, nor by a workflow in
the name of a person; a run that is started from inside another run counts as one deeper than that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from stepwell.cli.approval_view import wait_object
from stepwell.engine.ancestry import CHAIN
from stepwell.errors import Conflict, DefinitionError, Forbidden, NotFound, StepwellError
from stepwell.journal.view import instant
from stepwell.library.recipes import SUFFIXES
from stepwell.library.workflows import workflow_file
from stepwell.ports import FINAL

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.engine.engine import Engine
    from stepwell.people.actor import Actor
    from stepwell.ports import Run

Json: TypeAlias = Any

LONGEST_CHAIN = 50
"""Workflows of a chain that are looked at; far fewer may start each other."""
LONGEST_WAIT = 300.0
"""Seconds for which a call waits for a run to end; asking again is cheap."""
INSTRUCTIONS = """Stepwell carries on durable workflows. list_workflows says what can be started and with which input, \
start_workflow starts a run and gives its id, get_run says how far it is. A run that waits for an approval goes on \
once a person has decided it: show people what an approval shows before they decide."""


class Offered:
    """The tools over one engine, for one person."""

    def __init__(self, engine: Engine, who: Actor, *, decides: bool) -> None:
        """`decides` says that the person has proved to be who they are, with a key."""
        self._engine = engine
        self._who = who
        self._decides = decides

    def server(self) -> MCPServer:
        """The server, ready to run."""
        server = MCPServer("stepwell", instructions=INSTRUCTIONS, log_level="WARNING")
        self._reading(server)
        self._acting(server)
        return server

    def _reading(self, server: MCPServer) -> None:
        reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)

        @server.tool(annotations=reads, structured_output=False)
        async def list_workflows() -> dict[str, Any]:
            """List the workflows that can be started, with the JSON Schema of their input."""
            with _telling():
                return {"workflows": await self.list_workflows()}

        @server.tool(annotations=reads, structured_output=False)
        async def get_run(run: str, wait_seconds: float = 0.0) -> dict[str, Any]:
            """How a run stands: its status, steps, output or error, and the approvals that it waits for."""
            with _telling():
                return await self.shown(run, wait_seconds)

        @server.tool(annotations=reads, structured_output=False)
        async def list_approvals(run: str = "") -> dict[str, Any]:
            """List the approvals that nobody has decided yet, with what is shown to who decides them."""
            with _telling():
                return {"approvals": [wait_object(wait) for wait in await self._engine.waits(run_id=run)]}

    def _acting(self, server: MCPServer) -> None:
        acts = ToolAnnotations(
            read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False
        )

        @server.tool(annotations=acts, structured_output=False)
        async def start_workflow(
            ctx: Context, workflow: str, input: dict[str, Any] | None = None, idempotency_key: str = "",  # noqa: A002
            wait_seconds: float = 0.0,
        ) -> dict[str, Any]:  # fmt: skip
            """Start a run of a workflow, `id` or `id@version`, and wait up to `wait_seconds` for its end.

            The same `idempotency_key` again starts nothing and gives the first run.
            """
            given = (workflow, input or {}, idempotency_key or _key(ctx))
            with _telling():
                return await self.start(_chain(ctx), *given, wait_seconds)

        @server.tool(annotations=acts, structured_output=False)
        async def decide_approval(
            ctx: Context, approval: str, decision: str, digest: str, comment: str = "",
            data: dict[str, Any] | None = None,
        ) -> dict[str, Any]:  # fmt: skip
            """Decide an approval as the person that this server acts for.

            `decision` is one of the approval's `decisions`, `digest` is its `digest` (of what was shown), and `data` is
            what was filled into its `form`.
            """
            with _telling():
                return await self.decide(
                    _chain(ctx), approval, {"decision": decision, "comment": comment, "data": data}, digest
                )

    async def list_workflows(self) -> list[dict[str, Json]]:
        """Published ones, then those in files of the project's folders; a file that is wrong says so."""
        found: dict[str, dict[str, Json]] = {}
        for version in await self._engine.versions.workflows():
            loaded = await self._engine.versions.get(version.workflow)
            found[version.workflow] = _described(loaded) | {"version": version.number}
        for folder in self._engine.settings.workflows:
            for file in sorted(one for suffix in SUFFIXES for one in folder.glob(f"*{suffix}")):
                if file.name.endswith(f".test{file.suffix}") or file.stem in found:
                    continue
                try:
                    found[file.stem] = _described(self._engine.load(file)) | {"workflow": file.stem}
                except DefinitionError as wrong:
                    found[file.stem] = {"workflow": file.stem, "wrong": str(wrong)[:500]}
        return [found[name] for name in sorted(found)]

    async def start(
        self, chain: tuple[str, ...], workflow: str, value: dict[str, Json], key: str, seconds: float
    ) -> dict[str, Json]:
        """Start a run, as deep as the one that asked for it."""
        loaded = await self._loaded(workflow)
        with _inside(chain):
            handle = await self._engine.start(loaded, value, idempotency_key=key, requester=self._who)
        return await self.shown(handle.run_id, seconds)

    async def shown(self, run_id: str, seconds: float) -> dict[str, Json]:
        """A run as it stands, or as it stands once it has ended or parked."""
        run = await self._engine.run(run_id)
        if seconds > 0 and run.status not in FINAL:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, LONGEST_WAIT)):
                    run = await self._engine.settled(run_id)
        run = await self._engine.run(run_id)
        steps = (await self._engine.tree(run_id)).as_json()["steps"]
        waits = await self._engine.waits(run_id=run_id)
        return _run(run) | {
            "steps": [{"path": step["path"], "status": step["status"]} for step in steps][:200],
            "approvals": [wait_object(wait) for wait in waits],
        }

    async def decide(
        self, chain: tuple[str, ...], approval: str, said: dict[str, Json], digest: str
    ) -> dict[str, Json]:
        """Decide as the person. Raises Forbidden without their key, and where a workflow asks for it."""
        if not self._decides:
            hint = "`stepwell keys create NAME` makes one, and this server reads it from STEPWELL_KEY or --key"
            raise Forbidden(f"nothing is decided here without a person's key: {hint}")
        if chain:
            raise Forbidden("a workflow decides no approval in the name of a person")
        wait = await self._engine.decide(
            approval, said["decision"], comment=said["comment"], data=said["data"], by=self._who, digest=digest
        )
        if wait.status != "pending":
            with contextlib.suppress(Conflict):  # somebody has taken it up already
                await self._engine.resume(wait.run_id)
        return wait_object(wait)

    async def _loaded(self, workflow: str) -> LoadedWorkflow:
        """By its name alone: whoever speaks MCP names no files of this machine."""
        if "/" in workflow or "\\" in workflow:
            raise NotFound(f"{workflow!r} is no name of a workflow; list_workflows shows what there is")
        try:
            return await self._engine.versions.get(workflow)
        except NotFound as unpublished:
            # a file has no versions: who asks for one does not get whatever the file holds
            for folder in () if "@" in workflow else self._engine.settings.workflows:
                with contextlib.suppress(NotFound):
                    return self._engine.load(workflow_file(workflow, folder / "-", ()))
            raise NotFound(f"{unpublished}; list_workflows shows what there is") from None


def _described(loaded: LoadedWorkflow) -> dict[str, Json]:
    workflow = loaded.workflow
    return {"workflow": workflow.workflow, "description": workflow.description or "", "input": dict(workflow.input)}


def _run(run: Run) -> dict[str, Json]:
    return {
        "run": run.id,
        "workflow": run.workflow,
        "status": run.status,
        "output": run.output,
        "error": run.error,
        "started_at": instant(run.created),
    }


def _told(ctx: Context) -> dict[str, Json]:
    return dict(ctx.request_context.meta or {})


def _chain(ctx: Context) -> tuple[str, ...]:
    """The workflows that led to this call, if a run made it."""
    chain = _told(ctx).get("stepwell/chain")
    return tuple(str(one)[:200] for one in chain[:LONGEST_CHAIN]) if isinstance(chain, list) else ()


def _key(ctx: Context) -> str:
    """A step that calls this again asks for the same run."""
    key = _told(ctx).get("stepwell/key")
    return f"mcp:{key}" if isinstance(key, str) and key else ""


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    """Let the client read what is wrong; other errors are told as such, without their words."""
    try:
        yield
    except StepwellError as error:
        raise ToolError(str(error)) from None


@contextlib.contextmanager
def _inside(chain: tuple[str, ...]) -> Iterator[None]:
    token = CHAIN.set(chain)
    try:
        yield
    finally:
        CHAIN.reset(token)
