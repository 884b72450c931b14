"""When votes settle an approval.

The law of the file: it is settled as soon as the outcome cannot change, and not before; who votes was checked already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from stepwell.approvals.rules import Group, Rules

Json: TypeAlias = Any
Votes: TypeAlias = Sequence[Mapping[str, Json]]
"""Each `{decision, by, …}`, in the order in which they came; a person has one."""


def settled(rules: Rules, votes: Votes) -> str | None:
    """The decision that the votes amount to, None while it is open. A request for changes settles at once."""
    for vote in votes:
        if vote["decision"] not in {"approved", "rejected"}:
            return str(vote["decision"])
    for_it, against = _voters(votes, "approved"), _voters(votes, "rejected")
    mode = rules.require.mode
    if mode == "any":
        return str(votes[0]["decision"]) if votes else None
    if mode in {"all", "sequence"} and against:
        return "rejected"
    if _enough(rules, votes, for_it):
        return "approved"
    if against and not _enough(rules, votes, [*for_it, *_could_still(rules, votes)]):
        return "rejected"
    return None


def could_be_approved(rules: Rules, able: Iterable[str]) -> bool:
    """Whether these people, if all of them agree, are what is required."""
    names = set(able)
    if rules.require.mode == "sequence":
        stand_ins = names & {*rules.escalated, *rules.later()}
        empty = [group for group in rules.approvers if not names & set(group.members or ())]
        return len(empty) <= len(stand_ins)
    return _enough(rules, (), sorted(names))


def turn(rules: Rules, votes: Votes) -> Group | None:
    """Whose turn it is in a sequence; None in other modes, and when all have voted.

    Whoever is in several groups votes once, and it counts for each of them.
    """
    if rules.require.mode != "sequence":
        return None
    for group in rules.approvers:
        if not _passed(group, votes):
            return group
    return None


def may_still_act(rules: Rules, votes: Votes) -> list[str]:
    """Who can still vote now; in a sequence those whose turn it is. Those who were escalated to come last."""
    group = turn(rules, votes)
    asked = rules.members() if group is None else list(group.members or ())
    voted = {voter(vote) for vote in votes}
    return [name for name in dict.fromkeys((*asked, *rules.escalated)) if name not in voted]


def progress(rules: Rules, votes: Votes) -> str:
    """What is still missing, in a few words for people; empty where one decision is enough."""
    count = len(_voters(votes, "approved"))
    match rules.require.mode:
        case "any":
            return ""
        case "all":
            return f"{count} of {len(rules.members())} have approved" if rules.frozen else "all must approve"
        case "quorum":
            return f"{count} of {rules.require.count} approvals"
        case "per_group":
            wanted = ", ".join(f"{number} of {kind} {name}" for kind, name, number in rules.require.each)
            return f"wanted: {wanted}; {count} so far"
        case _:
            group = turn(rules, votes)
            return f"the turn of {group}" if group is not None else ""


def voter(vote: Mapping[str, Json]) -> str:
    """Under which name a vote counts: that by which the approver was meant."""
    return str(vote.get("as") or vote["by"])


def _voters(votes: Votes, decision: str) -> list[str]:
    return [voter(vote) for vote in votes if vote["decision"] == decision]


def _could_still(rules: Rules, votes: Votes) -> list[str]:
    """Everybody who has not voted and may, now or after an escalation."""
    voted = {voter(vote) for vote in votes}
    return [name for name in dict.fromkeys((*rules.members(), *rules.escalated, *rules.later())) if name not in voted]


def _enough(rules: Rules, votes: Votes, names: Sequence[str]) -> bool:
    """Whether the approval of these people is what is required."""
    match rules.require.mode:
        case "all":
            return bool(rules.members()) and len(names) >= len(rules.members())
        case "quorum":
            return len(names) >= rules.require.count
        case "per_group":
            return _fills(rules, names)
        case "sequence":
            return bool(rules.approvers) and turn(rules, votes) is None
        case _:
            return bool(names)


def _passed(group: Group, votes: Votes) -> bool:
    """Whether a group of a sequence has had its turn. A person who was escalated to stands in for one group."""
    members = set(group.members or ())
    return any(vote.get("turn") == str(group) or voter(vote) in members for vote in votes)


def _fills(rules: Rules, names: Iterable[str]) -> bool:
    """Whether the places of all groups can be filled, each person taking one place (augmenting paths)."""
    groups: dict[tuple[str, str], set[str]] = {
        (group.kind, group.name): set(group.members or ()) for group in rules.approvers
    }
    stand_ins = {*rules.escalated, *rules.later()}
    places = [groups.get((kind, name), set()) for kind, name, number in rules.require.each for _ in range(number)]
    taken: dict[int, str] = {}

    def seat(name: str, tried: set[int]) -> bool:
        for index, members in enumerate(places):
            if index in tried or not (name in members or name in stand_ins):
                continue
            tried.add(index)
            if index not in taken or seat(taken[index], tried):
                taken[index] = name
                return True
        return False

    for name in names:
        seat(name, set())
    return len(taken) == len(places)
