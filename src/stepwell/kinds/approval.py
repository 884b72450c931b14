"""Wait for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from stepwell.definition.fields import Duration, Json, Template, Value
from stepwell.definition.step import Location, Recipes, Schema
from stepwell.errors import StepFailed
from stepwell.interpreter.kind import Control

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome


class Approvers(BaseModel):
    """Who may decide: any of these."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    roles: tuple[str, ...] = ()
    departments: tuple[str, ...] = ()
    users: tuple[Template, ...] = ()

    def groups(self, scope: Scope) -> list[dict[str, Json]]:
        """Each of them, named."""
        return [
            *({"kind": "role", "name": name} for name in self.roles),
            *({"kind": "department", "name": name} for name in self.departments),
            *({"kind": "user", "name": scope.text(user)} for user in self.users),
        ]


class Approval(Control):
    """Asks people; the output is `{approved, decision, by, at, comment, data, rounds}`."""

    type: Literal["approval"]
    title: Template | None = None
    show: Value | None = None
    approvers: Approvers | None = None
    require: Literal["any", "all", "sequence"] | dict[str, Json] = "any"
    allow_requester: bool = False
    form: dict[str, Json] | None = None
    remind_every: Duration | None = None
    escalate: tuple[dict[str, Json], ...] = ()
    expires_in: Duration | None = Field(None, gt=0)
    on_expire: Literal["approve", "reject", "fail", "suspend"] = "reject"
    on_reject: Literal["fail", "continue"] | dict[str, Json] = "fail"
    on_changes: dict[str, Json] | None = None

    def unperformed(self) -> Iterable[tuple[Location, str]]:
        if self.require != "any":
            yield ("require",), "approvals that need more than one decision"
        if self.remind_every is not None:
            yield ("remind_every",), "reminders"
        if self.escalate:
            yield ("escalate",), "escalation"
        if self.on_changes is not None:
            yield ("on_changes",), "the decision `changes requested`"
        if not isinstance(self.on_reject, str):
            yield ("on_reject",), "returning to an earlier step on rejection"
        if self.on_expire == "suspend":
            yield ("on_expire",), "incidents (on_expire: suspend)"

    def shape(self, recipes: Recipes) -> Schema | None:
        del recipes
        return {
            "type": "object",
            "properties": {
                "approved": {"type": "boolean"},
                "decision": {"enum": ["approved", "rejected", "changes_requested", "expired"]},
                "by": {"type": ["string", "null"]},
                "at": {"type": ["string", "null"]},
                "comment": {"type": "string"},
                "data": self.form or {},
                "rounds": {"type": "array"},
            },
            "required": ["approved", "decision", "by", "at", "comment", "data", "rounds"],
            "additionalProperties": False,
        }

    def _request(self, scope: Scope) -> Json:
        """What is shown, and beside it the rules, which are no part of what a decision is bound to."""
        return {
            "title": scope.text(self.title) if self.title else (self.name or self.id),
            "show": scope.render(self.show) if self.show is not None else None,
            "form": self.form,
            "decisions": ["approved", "rejected"],
            "rules": self._rules(scope),
        }

    def _rules(self, scope: Scope) -> Json:
        approvers = self.approvers
        groups = [] if approvers is None else approvers.groups(scope)
        return {"approvers": groups, "allow_requester": self.allow_requester or approvers is None}

    async def run(self, scope: Scope) -> Outcome:
        answer = await scope.wait(
            "approval", self._request(scope), expires_in=self.expires_in, on_expire=self.on_expire
        )
        decision = answer["decision"]
        output = {
            "approved": decision == "approved",
            "decision": decision,
            "by": answer.get("by"),
            "at": answer.get("at"),
            "comment": answer.get("comment") or "",
            "data": answer.get("data"),
            "rounds": [],
        }
        if decision == "approved" or (decision == "rejected" and self.on_reject == "continue"):
            return scope.complete(output)
        return await self._refused(scope, output)

    async def _refused(self, scope: Scope, output: dict[str, Json]) -> Outcome:
        if output["decision"] == "expired":
            if self.on_expire == "approve":
                return scope.complete(output | {"approved": True})
            raise StepFailed("approval_expired", f"nobody decided {self.id} in time", detail=output)
        comment = f": {output['comment']}" if output["comment"] else ""
        raise StepFailed("rejected", f"{self.id} was rejected by {output['by']}{comment}", detail=output)
