"""When votes settle an approval: as soon as the outcome cannot change, and not before."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.approvals.policy import may_still_act, progress, settled, turn
from stepwell.approvals.rules import Escalation, Group, Require, Rules

TRIO = ("ana", "ben", "cid")


def vote(by, decision="approved", **more):
    return {"by": by, "decision": decision, **more}


def rules(mode, members=TRIO, **more):
    return Rules((Group("role", "boss", members),), Require(mode, **more), frozen=True)


def words(rule, *votes):
    """What the votes amount to after each of them; a sequence notes whose turn it was, as `cast` does."""
    said, found = [], []
    for one in votes:
        group = turn(rule, said)
        said.append(one | ({"turn": str(group)} if group else {}))
        found.append(settled(rule, said))
    return found


def test_any_is_settled_by_the_first():
    assert words(rules("any"), vote("ana")) == ["approved"]
    assert words(rules("any"), vote("ana", "rejected")) == ["rejected"]


def test_all_takes_everybody_and_one_rejection_settles():
    assert words(rules("all"), *map(vote, TRIO)) == [None, None, "approved"]
    assert words(rules("all"), vote("ana"), vote("ben", "rejected")) == [None, "rejected"]


def test_quorum_two_of_three_is_rejected_once_two_have_rejected():
    rule = rules("quorum", count=2)
    assert words(rule, vote("ana"), vote("ben", "rejected"), vote("cid")) == [None, None, "approved"]
    assert words(rule, vote("ana", "rejected"), vote("ben", "rejected")) == [None, "rejected"]
    assert progress(rule, [vote("ana")]) == "1 of 2 approvals"


def test_a_quorum_that_only_an_escalation_can_fill_is_not_given_up_before_it():
    later = Escalation(60.0, (Group("role", "head", ("zoe",)),))
    rule = msgspec.structs.replace(rules("quorum", ("ana", "ben"), count=2), escalate=(later,))
    assert words(rule, vote("ana", "rejected")) == [None]
    asked = msgspec.structs.replace(rule, escalate=(msgspec.structs.replace(later, done=True),), escalated=("zoe",))
    assert words(asked, vote("ana", "rejected"), vote("zoe"), vote("ben")) == [None, None, "approved"]
    assert words(asked, vote("ana", "rejected"), vote("zoe", "rejected")) == [None, "rejected"]


def test_a_quorum_of_too_few_people_is_not_rejected_by_an_approval():
    assert words(rules("quorum", ("ana",), count=2), vote("ana")) == [None]


def test_per_group_counts_a_person_once_wherever_they_fit():
    groups = (Group("role", "finance", ("ana", "ben")), Group("role", "legal", ("ana", "cid")))
    rule = Rules(groups, Require("per_group", each=(("role", "finance", 1), ("role", "legal", 1))), frozen=True)
    assert words(rule, vote("ana"), vote("ben")) == [None, "approved"]
    assert words(rule, vote("ana"), vote("cid")) == [None, "approved"]
    assert words(rule, vote("ana", "rejected"), vote("cid", "rejected")) == [None, "rejected"]
    assert words(rule, vote("ben", "rejected"), vote("cid")) == [None, None]
    assert words(rule, vote("ben", "rejected"), vote("cid"), vote("ana")) == [None, None, "approved"]


def sequence(*groups):
    return Rules(tuple(Group("user", name, members) for name, members in groups), Require("sequence"), frozen=True)


def test_a_sequence_goes_in_the_written_order_and_one_rejection_settles():
    rule = sequence(("first", ("ana", "ben")), ("second", ("cid",)))
    assert may_still_act(rule, []) == ["ana", "ben"]
    assert may_still_act(rule, [vote("ben", turn="first")]) == ["cid"]
    assert words(rule, vote("ben"), vote("cid")) == [None, "approved"]
    assert words(rule, vote("ben"), vote("cid", "rejected")) == [None, "rejected"]


def test_whoever_is_in_several_groups_of_a_sequence_is_asked_once():
    rule = sequence(("first", ("ana",)), ("second", ("ana", "ben")), ("third", ("cid",)))
    assert words(rule, vote("ana"), vote("cid")) == [None, "approved"]


def test_who_was_escalated_to_stands_in_for_one_group_of_a_sequence():
    rule = msgspec.structs.replace(sequence(("first", ("ana",)), ("second", ("ben",))), escalated=("zoe",))
    assert may_still_act(rule, []) == ["ana", "zoe"]
    assert words(rule, vote("zoe"), vote("ben")) == [None, "approved"]


def test_who_was_escalated_to_may_take_the_place_of_one_who_is_missing():
    rule = msgspec.structs.replace(rules("all", ("ana", "ben")), escalated=("zoe",))
    assert words(rule, vote("ana"), vote("zoe")) == [None, "approved"]


@pytest.mark.parametrize("mode", ["any", "all", "quorum", "sequence"])
def test_a_request_for_changes_settles_at_once(mode):
    assert words(rules(mode, count=3), vote("ana", "changes_requested")) == ["changes_requested"]


def modes(size):
    names = tuple("abcd"[:size])
    yield rules("all", names)
    yield from (rules("quorum", names, count=count) for count in range(1, size + 1))
    groups = (Group("role", "x", names[:2]), Group("role", "y", names[1:]))
    yield Rules(groups, Require("per_group", each=(("role", "x", 1), ("role", "y", 1))), frozen=True)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_settled_means_that_nothing_that_can_still_be_said_would_change_it(data):
    size = data.draw(st.integers(2, 4))
    rule = data.draw(st.sampled_from(list(modes(size))))
    names = data.draw(st.permutations("abcd"[:size]))
    known = data.draw(st.integers(0, size))
    said = [vote(name, data.draw(st.sampled_from(["approved", "rejected"]))) for name in names[:known]]
    ends = set()
    for rest in product(["approved", "rejected"], repeat=size - known):
        ends.add(settled(rule, [*said, *map(vote, names[known:], rest)]))
    now = settled(rule, said)
    assert None not in ends
    assert ends == {now} if now else ends == {"approved", "rejected"}
