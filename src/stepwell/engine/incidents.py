"""Incidents: steps that failed and wait for a person to say what becomes of them.

The law of the file: an action is a decision like any other, the first one counts; what is wrong with it is told before
anything is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.schemas import problems_of, problems_with_foreign
from stepwell.engine.vault import NO_VAULT, Vault
from stepwell.errors import DefinitionError, InputError, NotFound, Problem, StepwellError
from stepwell.interpreter.incident import ACTIONS
from stepwell.interpreter.instants import instant_text
from stepwell.interpreter.normalise import normalise
from stepwell.journal.told import owner
from stepwell.ports import Ballot

if TYPE_CHECKING:
    from stepwell.engine.people import People, Who
    from stepwell.people.actor import Actor
    from stepwell.ports import AuditRecord, Run, RunStore, Tool, Tools, Wait

Json: TypeAlias = Any
ACCOUNT = "default"
MANY = 100_000
"""Incidents that are looked at for those that are meant."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which incidents are meant; an empty field means any. `kind` is that of the error, `step` the id of the step."""

    run_id: str = ""
    workflow: str = ""
    kind: str = ""
    step: str = ""

    def fits(self, wait: Wait) -> bool:
        """Whether an incident is meant."""
        return (
            self.workflow in {"", wait.workflow}
            and self.kind in {"", wait.request["error"]["kind"]}
            and self.step in {"", wait.request.get("step")}
        )


@dataclass(frozen=True, slots=True)
class Action:
    """What becomes of a step: `edits` belong to retry, `output` to provide."""

    word: str
    edits: dict[str, Json] | None = None
    output: Json = None
    comment: str = ""


class Incidents:
    """The incidents of one database."""

    def __init__(
        self,
        store: RunStore,
        people: People,
        now: Callable[[], float],
        tools_of: Callable[[Run], Tools],
        vault: Vault = NO_VAULT,
    ) -> None:
        """`tools_of` gives the tools of a run's project, and raises DefinitionError where they are not to be had."""
        self._store = store
        self._people = people
        self._now = now
        self._tools_of = tools_of
        self._vault = vault

    async def open(self, which: Filter = Filter(), *, settled: bool = False) -> list[Wait]:
        """Incidents that nobody has settled (`settled`: the others too), oldest first.

        Raises NotFound for a run that is not there.
        """
        waits = await self._store.waits(
            ACCOUNT, run_id=which.run_id, kind="incident", pending_only=not settled, limit=MANY
        )
        return [wait for wait in waits if which.fits(wait)]

    async def settle(self, wait_id: str, action: Action, *, by: Who = "") -> Wait:
        """Say what becomes of a step.

        Raises NotFound, Forbidden, InputError, AlreadyDecided (detail: the action that counts) and Gone.
        """
        actor = await self._people.actor(by)
        wait = await self._store.wait(ACCOUNT, wait_id)
        if wait.kind != "incident":
            raise NotFound(f"there is no incident {wait_id}")
        return await self._settle(wait, action, actor)

    async def settle_all(
        self, which: Filter, action: Action, *, by: Who = ""
    ) -> list[tuple[Wait, StepwellError | None]]:
        """The same for every incident that is meant; one that refuses it holds up no other."""
        actor = await self._people.actor(by)
        results: list[tuple[Wait, StepwellError | None]] = []
        for wait in await self.open(which):
            try:
                results.append((await self._settle(wait, action, actor), None))
            except StepwellError as refused:
                results.append((wait, refused))
        return results

    async def _settle(self, wait: Wait, action: Action, actor: Actor) -> Wait:
        self._vault.refuse([action.edits, action.output, action.comment], f"what is said of incident {wait.id}")
        detail: dict[str, Json] = {"run": wait.run_id, "path": owner(wait.path), "comment": action.comment}
        if action.edits is not None:
            detail["edits"] = normalise(action.edits)
        note = actor.did(f"incident.{action.word}", wait.id, detail)
        await self._people.demand(actor, "operator", "admin", to="settle an incident", about=note)
        try:
            return await self._decide(wait, action, actor, note)
        except StepwellError as refused:
            because = {"refused": type(refused).__name__, "because": str(refused)}
            await self._people.note(replace(note, action=f"{note.action}.refused", detail=detail | because))
            raise

    async def _tool(self, wait: Wait) -> Tool | None:
        """What the step of an incident calls, in the project of its run."""
        name = wait.request.get("tool")
        if not name:
            return None
        try:
            return self._tools_of(await self._store.run(ACCOUNT, wait.run_id)).get(name)
        except DefinitionError:  # the project is not to be had here; the performer will say what it thinks of them
            return None

    async def _decide(self, wait: Wait, action: Action, actor: Actor, note: AuditRecord) -> Wait:
        if wait.status == "pending":
            _check(wait, action, await self._tool(wait) if action.edits else None)
        said: dict[str, Json] = {
            "action": action.word,
            "decision": action.word,
            "by": actor.name,
            "at": instant_text(self._now()),
            "comment": action.comment,
        }
        if action.edits is not None:
            said["edits"] = action.edits
        if action.word == "provide":
            said["output"] = action.output
        return await self._store.decide(ACCOUNT, wait.id, Ballot(normalise(said)), notes=[note])


def _check(wait: Wait, action: Action, tool: Tool | None) -> None:
    """Raises InputError for an action that this incident does not offer, or that cannot be meant.

    `tool` is what the step calls, where it is known.
    """
    offered = wait.request["actions"]
    problems: list[Problem] = []
    if action.word not in offered:
        known = "no action" if action.word not in ACTIONS else "not offered here"
        problems.append(Problem("error", "action", f"{action.word!r} is {known}", f"there are {', '.join(offered)}"))
    if action.edits is not None:
        problems += _wrong_edits(wait.request, action, tool)
    if action.word == "provide" and (schema := wait.request.get("output_schema")):
        hint = "give an output that fits the step's output_schema"
        problems += [Problem("error", "output", text, hint) for text in problems_of(schema, action.output)]
    if problems:
        raise InputError(problems)


def _wrong_edits(request: dict[str, Json], action: Action, tool: Tool | None) -> list[Problem]:
    if action.word != "retry":
        return [Problem("error", "edits", f"edits belong to retry, not to {action.word}", "leave them out")]
    if "arguments" not in request and "type" in request:
        return []  # they are too large to be shown
    known = request.get("arguments")
    if not isinstance(known, dict):
        return [Problem("error", "edits", "what this step does has no arguments to edit", "leave them out")]
    if request.get("type") in {"tool_call", "browser_action"}:  # it may take arguments that the step did not give
        wrong = problems_with_foreign(tool.parameters, known | (action.edits or {})) if tool is not None else ()
        hint = "see what it takes: stepwell tools list" if tool is not None else ""
        return [Problem("error", "edits", f"the tool does not take this: {text}", hint) for text in wrong]
    unknown = sorted((action.edits or {}).keys() - known.keys())
    hint = f"there are {', '.join(known)}"
    return [Problem("error", "edits", f"the step has no argument {name!r}", hint) for name in unknown]
