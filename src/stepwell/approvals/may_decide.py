"""Whether somebody may decide a wait, and what the decision makes of it.

The law of the file: it is the one place that answers, for every channel, and it checks in this order: permission,
state, digest, form. (That the account has the wait is the store's to say: an unknown one and a foreign one are alike.)
Stores call it inside the transaction that writes, so that what it saw is what is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stepwell.approvals import notices, policy
from stepwell.approvals.rules import Rules, is_called, rules_of
from stepwell.definition.schemas import problems_of, with_defaults
from stepwell.errors import AlreadyDecided, Conflict, Forbidden, Gone, InputError, Problem
from stepwell.ports import Ballot, Outgoing, Person, Wait

Json: TypeAlias = Any

ALWAYS_OFFERED = ("approved", "rejected")


@dataclass(frozen=True, slots=True)
class Cast:
    """What a decision makes of a wait: the vote to store (None: none is), and the decision that now counts, if any."""

    vote: Json
    decision: Json
    notices: tuple[Outgoing, ...] = field(default=())


def cast(wait: Wait, ballot: Ballot, now: float) -> Cast:
    """The effect of a decision on a wait as it is stored.

    Raises Forbidden, AlreadyDecided (with the decision that counts), Gone, Conflict (stale) and InputError.
    """
    rules = rules_of(wait)
    if ballot.voter is not None:
        check_permission(wait, rules, ballot.voter)
    check_state(wait, now)
    if ballot.digest and ballot.digest != wait.digest:
        raise Conflict(f"what {wait.id} shows has changed since: look at it again", {"digest": wait.digest})
    if wait.kind != "approval" or not isinstance(ballot.body, dict) or "decision" not in ballot.body:
        return Cast(None, ballot.body)
    said = _checked(wait, ballot.body)
    if ballot.voter is None:
        return Cast(None, said | {"rules": "off"} if rules.matter() else said)
    return _counted(wait, rules, said | {"by": ballot.voter.name} | _counts_as(rules, ballot.voter), now)


def _counts_as(rules: Rules, voter: Person) -> dict[str, Json]:
    """Under which name a person was meant, where it is not their own."""
    names = (*rules.members(), *rules.escalated)
    meant = next((name for name in names if is_called(voter, name)), voter.name)
    return {"as": meant} if voter.name not in names and meant != voter.name else {}


def _counted(wait: Wait, rules: Rules, said: dict[str, Json], now: float) -> Cast:
    group = policy.turn(rules, wait.votes)
    vote = said | ({"turn": str(group)} if group is not None else {})
    votes = [*wait.votes, vote]
    word = policy.settled(rules, votes)
    if word is not None:
        return Cast(vote, settlement(word, votes))
    following = policy.turn(rules, votes)
    told: tuple[Outgoing, ...] = ()
    if following is not None and following != group:
        told = tuple(notices.asked(wait, rules, votes, now, mark=f"turn/{len(votes)}"))
    return Cast(vote, None, told)


def settlement(word: str, votes: Sequence[Mapping[str, Json]]) -> Json:
    """The decision as the run gets it: the vote that settled it, and all of them where there are several."""
    agreeing = [vote for vote in votes if vote["decision"] == word]
    last = {key: value for key, value in (agreeing or votes)[-1].items() if key not in {"turn", "as"}}
    return last | {"decision": word} | ({"votes": [dict(vote) for vote in votes]} if len(votes) > 1 else {})


def check_permission(wait: Wait, rules: Rules, voter: Person) -> None:
    """Raises Forbidden unless this person may decide, whatever has become of the wait."""
    if not rules.allow_requester and is_called(voter, rules.requester):
        raise Forbidden(f"{voter.name} started the run, and may not decide {wait.id}")
    if not is_among(rules, voter):
        who = ", ".join(map(str, rules.approvers)) or "the roles approver and admin"
        raise Forbidden(f"{voter.name} may not decide {wait.id}: it is for {who}")
    if wait.status != "pending":
        return
    if any(vote["by"] == voter.name for vote in wait.votes):
        raise Forbidden(f"{voter.name} has decided {wait.id} already, and is counted once")
    group = policy.turn(rules, wait.votes)
    if group is not None and not _is_turn_of(rules, voter, group.members):
        raise Forbidden(f"it is not {voter.name}'s turn to decide {wait.id}, but that of {group}")


def is_among(rules: Rules, voter: Person) -> bool:
    """Whether a person belongs to those who decide: as it was when the approval opened, where that is known."""
    if rules.frozen:
        return any(is_called(voter, name) for name in (*rules.members(), *rules.escalated))
    if not rules.approvers:
        return bool({"approver", "admin"} & set(voter.roles))
    return any(group.means(voter) for group in rules.approvers)


def _is_turn_of(rules: Rules, voter: Person, members: tuple[str, ...] | None) -> bool:
    return members is None or any(is_called(voter, name) for name in (*members, *rules.escalated))


def check_state(wait: Wait, now: float) -> None:
    """Raises AlreadyDecided or Gone unless the wait is open at this instant."""
    if wait.status == "decided":
        raise AlreadyDecided(f"{wait.id} is decided already", wait.decision)
    if wait.status != "pending":
        raise Gone(f"{wait.id} can no longer be decided: {wait.status}", {"status": wait.status})
    if 0 < wait.deadline <= now:
        raise Gone(f"{wait.id} can no longer be decided: expired", {"status": "expired"})


def _checked(wait: Wait, said: dict[str, Json]) -> dict[str, Json]:
    """The decision, if it is one that is offered and its form is filled in rightly, with the form's defaults."""
    request = wait.request if isinstance(wait.request, dict) else {}
    word, offered = said["decision"], request.get("decisions") or ALWAYS_OFFERED
    if word not in offered:
        hint = f"it is one of {', '.join(offered)}"
        raise InputError([Problem("error", "decision", f"{word!r} is not offered here", hint)])
    form = request.get("form")
    if not isinstance(form, dict) or word != "approved":
        return said
    data = said.get("data")
    filled = with_defaults(form, {} if data is None else data)
    problems = [Problem("error", "form", text, "give the fields with --data") for text in problems_of(form, filled)]
    if problems:
        raise InputError(problems)
    return said | {"data": filled}
