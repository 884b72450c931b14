"""Wait for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PrivateAttr,
    Tag,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from stepwell.definition.fields import Duration, Json, StepId, Template, Value
from stepwell.definition.step import Recipes, Schema
from stepwell.errors import StepFailed
from stepwell.interpreter.kind import Control
from stepwell.journal.path import round_number

if TYPE_CHECKING:
    from stepwell.interpreter.scope import Scope
    from stepwell.journal.entry import Outcome


_CONFIG = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
_WORDS = {"roles": "role", "departments": "department", "users": "user"}
_KINDS = {kind: word for word, kind in _WORDS.items()}


_FORM = Discriminator(lambda value: "word" if isinstance(value, str) else "more")
"""A word or an object: what is wrong with one is not told of the other."""


class Approvers(BaseModel):
    """Who may decide: any of these. Short: a list of `role:NAME`, `department:NAME`, and names or e-mail addresses."""

    model_config = _CONFIG

    roles: tuple[str, ...] = ()
    departments: tuple[str, ...] = ()
    users: tuple[Template, ...] = ()
    _written: tuple[tuple[str, int], ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _in_written_order(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """A sequence asks in the order in which the groups are written, so that order is kept."""
        named: dict[str, list[Json]] = {}
        written: list[tuple[str, int]] = []
        for word, name in _entries(data):
            written.append((word, len(named.setdefault(word, []))))
            named[word].append(name)
        made = handler(named if isinstance(data, list | tuple) else data)
        made._written = tuple(written)  # noqa: SLF001 -- its own
        return made

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Json]:
        found = handler.resolve_ref_schema(handler(schema))
        short = {"type": "array", "items": {"type": "string"}}
        kept = {key: found.pop(key) for key in list(found) if key not in {"title", "description"}}
        found["anyOf"] = [kept, short]
        return found

    def groups(self, text: Callable[[Template], str]) -> list[dict[str, Json]]:
        """Each of them, named, in the order in which they are written."""
        return [
            {"kind": _WORDS[word], "name": text(name) if isinstance(name, Template) else name}
            for word, index in self._written
            for name in [getattr(self, word)[index]]
        ]

    def constant(self) -> bool:
        """Whether all of them are known before the run."""
        return all(user.compiled.is_constant for user in self.users)


def _entries(data: Any) -> Iterator[tuple[str, Json]]:
    if isinstance(data, dict):
        for word in data:
            if word in _WORDS and isinstance(data[word], list | tuple):
                yield from ((word, name) for name in data[word])
    elif isinstance(data, list | tuple):
        for entry in data:
            head, colon, name = entry.partition(":") if isinstance(entry, str) else ("", "", entry)
            yield (_KINDS[head], name.strip()) if colon and head in _KINDS else ("users", entry)


Count = Annotated[int, Field(ge=1, le=1000)]


class Each(BaseModel):
    """How many of which role and department."""

    model_config = _CONFIG

    roles: dict[str, Count] = {}
    departments: dict[str, Count] = {}


class Require(BaseModel):
    """So many approvals, whoever they come from, or so many of each group: a person counts for one of them."""

    model_config = _CONFIG

    quorum: Count | None = None
    per_group: Each | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.quorum is None) == (self.per_group is None):
            raise PydanticCustomError(
                "require", "`require` has either `quorum` or `per_group`", {"hint": "write require: {quorum: 2}"}
            )
        return self


class EscalateTo(BaseModel):
    """Who may decide as well, once so much time has passed."""

    model_config = _CONFIG

    after: Duration = Field(gt=0)
    to: Approvers


class Return(BaseModel):
    """Back to an earlier step of the block, at most `max_rounds` times."""

    model_config = _CONFIG

    goto: StepId
    max_rounds: int = Field(3, ge=1, le=100)


class Approval(Control):
    """Asks people; the output is `{approved, decision, by, at, comment, data, rounds}`, and `votes` if there are many.

    `require` is any, all, sequence (in the written order of the approvers), `{quorum: n}`, or
    `{per_group: {roles: {finance: 1}, departments: {legal: 2}}}`. `rounds` are the outputs of earlier rounds.
    """

    type: Literal["approval"]
    title: Template | None = None
    show: Value | None = None
    approvers: Approvers | None = None
    require: Annotated[
        Annotated[Literal["any", "all", "sequence"], Tag("word")] | Annotated[Require, Tag("more")], _FORM
    ] = "any"
    allow_requester: bool | None = None
    form: dict[str, Json] | None = None
    remind_every: Duration | None = Field(None, ge=1)
    escalate: tuple[EscalateTo, ...] = ()
    expires_in: Duration | None = Field(None, gt=0)
    on_expire: Literal["approve", "reject", "fail", "suspend"] = "reject"
    on_reject: Annotated[
        Annotated[Literal["fail", "continue"], Tag("word")] | Annotated[Return, Tag("more")], _FORM
    ] = "fail"
    on_changes: Return | None = None

    def names_all(self) -> bool:
        """Whether everybody who is asked is named in the definition, and not worked out in the run."""
        asked = (self.approvers, *(later.to for later in self.escalate))
        return all(one is None or one.constant() for one in asked)

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
                "votes": {"type": "array"},
            },
            "required": ["approved", "decision", "by", "at", "comment", "data", "rounds"],
            "additionalProperties": False,
        }

    def _request(self, scope: Scope, rounds: list[dict[str, Json]]) -> Json:
        """What is shown, and beside it the rules, which are no part of what a decision is bound to."""
        decisions = ["approved", "rejected"]
        if self.on_changes is not None and scope.rounds_left(self.on_changes.max_rounds):
            decisions.append("changes_requested")
        earlier = [{name: one.get(name) for name in ("decision", "by", "at", "comment")} for one in rounds]
        return {
            "title": scope.text(self.title) if self.title else (self.name or self.id),
            "show": scope.render(self.show) if self.show is not None else None,
            "form": self.form,
            "decisions": decisions,
            "round": round_number(scope.path),
            "earlier": earlier,
            "rules": self.rules(scope.text),
        }

    def rules(self, text: Callable[[Template], str]) -> dict[str, Json]:
        """Who may decide, how many of them, and when they are reminded, as `approvals/rules.py` reads it."""
        groups = [] if self.approvers is None else self.approvers.groups(text)
        require: dict[str, Json] = {"mode": self.require}
        if isinstance(self.require, Require) and self.require.quorum is not None:
            require = {"mode": "quorum", "count": self.require.quorum}
        elif isinstance(self.require, Require) and (each := self.require.per_group) is not None:
            named = [("role", each.roles), ("department", each.departments)]
            wanted = [(kind, name, number) for kind, counts in named for name, number in counts.items()]
            groups += [group for kind, name, _ in wanted if (group := {"kind": kind, "name": name}) not in groups]
            require = {"mode": "per_group", "each": wanted}
        return {
            "approvers": groups,
            "require": require,
            "allow_requester": not groups if self.allow_requester is None else self.allow_requester,
            "remind_every": self.remind_every or 0.0,
            "escalate": [{"after": later.after, "to": later.to.groups(text)} for later in self.escalate],
        }

    async def run(self, scope: Scope) -> Outcome:
        rounds = [_without_rounds(one) for one in scope.earlier_rounds()]
        answer = await scope.wait(
            "approval", self._request(scope, rounds), expires_in=self.expires_in, on_expire=self.on_expire
        )
        output = {
            "approved": answer["decision"] == "approved",
            "decision": answer["decision"],
            "by": answer.get("by"),
            "at": answer.get("at"),
            "comment": answer.get("comment") or "",
            "data": answer.get("data"),
            "rounds": rounds,
        }
        if answer.get("votes"):
            output["votes"] = answer["votes"]
        match answer["decision"]:
            case "expired":
                return self._expired(scope, output)
            case "rejected":
                return self._rejected(scope, output)
            case "changes_requested" if self.on_changes is not None:
                raise scope.returning(self.on_changes.goto, output)
        return scope.complete(output)

    def _expired(self, scope: Scope, output: dict[str, Json]) -> Outcome:
        if self.on_expire == "approve":
            return scope.complete(output | {"approved": True})
        failure = StepFailed("approval_expired", f"nobody decided {self.id} in time", detail=output)
        failure.suspends = self.on_expire == "suspend"
        raise failure

    def _rejected(self, scope: Scope, output: dict[str, Json]) -> Outcome:
        if self.on_reject == "continue":
            return scope.complete(output)
        comment = f": {output['comment']}" if output["comment"] else ""
        failure = StepFailed("rejected", f"{self.id} was rejected by {output['by']}{comment}", detail=output)
        if isinstance(self.on_reject, Return) and scope.rounds_left(self.on_reject.max_rounds):
            raise scope.returning(self.on_reject.goto, output, failure)
        raise failure


def _without_rounds(output: dict[str, Json]) -> dict[str, Json]:
    """An earlier round as later ones keep it: its own earlier rounds stand beside it already."""
    return {name: value for name, value in output.items() if name != "rounds"}
