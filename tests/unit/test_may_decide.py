"""Who may decide, in which order that is checked, and who is meant by an approver."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepwell.approvals.may_decide import cast
from stepwell.approvals.opening import opened, reassigned
from stepwell.approvals.rules import Rules, rules_of
from stepwell.approvals.timers import next_instant, tick
from stepwell.errors import AlreadyDecided, Conflict, Forbidden, Gone, InputError
from stepwell.ports import Ballot, Person, Wait

ANA = Person("ana", "Ana@Example.org", ("finance",))
BEN = Person("ben", "", ("finance", "approver"))
CID = Person("cid", "", ("admin",), ("care",))
EVE = Person("eve", "", ("viewer",))
PEOPLE = [ANA, BEN, CID, EVE]
FORM = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "note": {"default": "-"}},
    "required": ["amount"],
}


def gate(rules=None, requester="", people=PEOPLE, **fields):
    wait = Wait("a1", "/g", "approval", {"title": "Pay?"}, "d1", 1000.0, account="acme", run_id="r1", rules=rules or {})
    return replace(opened(wait, people, requester)[0], **fields)


def approve(by, digest="", **more):
    return Ballot({"decision": "approved", "by": by.name, "comment": "", "data": None, **more}, by, digest)


FINANCE = {"approvers": [{"kind": "role", "name": "finance"}], "allow_requester": False}


def test_without_approvers_the_roles_approver_and_admin_decide_the_requester_included():
    wait = gate(requester="ben")
    assert cast(wait, approve(BEN), 1001).decision["by"] == "ben"
    assert cast(wait, approve(CID), 1001).decision["decision"] == "approved"
    for person in (ANA, EVE):
        with pytest.raises(Forbidden):
            cast(wait, approve(person), 1001)


def test_with_approvers_the_requester_is_left_out_by_name_and_address():
    for requester in ("ana", "ANA@example.org"):
        wait = gate(FINANCE, requester)
        assert rules_of(wait).members() == ["ben"]
        with pytest.raises(Forbidden):
            cast(wait, approve(ANA), 1001)
        assert cast(wait, approve(BEN), 1001).decision
    assert cast(gate(FINANCE | {"allow_requester": True}, "ana"), approve(ANA), 1001).decision


def test_the_list_is_fixed_when_the_approval_opens():
    wait = gate(FINANCE)
    late = Person("dan", "", ("finance",))
    with pytest.raises(Forbidden):
        cast(wait, approve(late), 1001)
    assert cast(wait, approve(replace(ANA, roles=())), 1001).decision


def test_users_are_found_by_name_or_address_in_any_case_also_if_they_come_later():
    wait = gate({"approvers": [{"kind": "user", "name": "ANA@example.ORG"}, {"kind": "user", "name": "new@x.org"}]})
    assert rules_of(wait).members() == ["ana", "new@x.org"]
    assert cast(wait, approve(Person("nia", "New@X.org")), 1001).decision["by"] == "nia"


def test_permission_comes_first_then_state_digest_and_form():
    wait = replace(gate(FINANCE), request={"title": "Pay?", "form": FORM})
    first = {"decision": "rejected", "by": "ana"}
    decided = replace(wait, status="decided", decision=first)
    with pytest.raises(Forbidden):
        cast(decided, approve(EVE, "old"), 1001)
    with pytest.raises(AlreadyDecided) as refused:
        cast(decided, approve(ANA, "old"), 1001)
    assert refused.value.detail == first
    for status in ("expired", "withdrawn", "cancelled"):
        with pytest.raises(Gone):
            cast(replace(wait, status=status), approve(ANA, "old"), 1001)
    with pytest.raises(Gone):
        cast(replace(wait, deadline=1001.0), approve(ANA, "old"), 1001)
    with pytest.raises(Conflict) as stale:
        cast(wait, approve(ANA, "old"), 1001)
    assert type(stale.value) is Conflict
    with pytest.raises(InputError):
        cast(wait, approve(ANA, "d1"), 1001)
    filled = cast(wait, approve(ANA, "d1", data={"amount": 3}), 1001)
    assert filled.decision["data"] == {"amount": 3, "note": "-"}


def test_changes_are_requested_only_where_that_is_offered():
    asked = Ballot({"decision": "changes_requested", "by": "ana", "comment": "shorter"}, ANA)
    with pytest.raises(InputError):
        cast(gate(FINANCE), asked, 1001)
    offered = replace(gate(FINANCE), request={"decisions": ["approved", "rejected", "changes_requested"]})
    assert cast(offered, asked, 1001).decision["decision"] == "changes_requested"


def test_a_person_counts_once_and_is_told_so():
    wait = gate(FINANCE | {"require": {"mode": "all"}})
    first = cast(wait, approve(ANA), 1001)
    assert first.decision is None
    wait = replace(wait, votes=(first.vote,))
    with pytest.raises(Forbidden, match="counted once"):
        cast(wait, approve(ANA), 1002)
    settled = cast(wait, approve(BEN), 1002).decision
    assert (settled["by"], [vote["by"] for vote in settled["votes"]]) == ("ben", ["ana", "ben"])


def test_nobody_speaks_for_another():
    assert cast(gate(FINANCE), Ballot({"decision": "approved", "by": "ben"}, ANA), 1001).decision["by"] == "ana"


def test_the_operator_of_a_machine_without_people_settles_anything_and_it_says_so():
    wait = gate(FINANCE | {"require": {"mode": "all"}}, people=[])
    assert not rules_of(wait).frozen
    said = cast(wait, Ballot({"decision": "approved", "by": "local operator"}), 1001)
    assert (said.vote, said.decision["rules"]) == (None, "off")
    assert "rules" not in cast(gate(people=[]), Ballot({"decision": "approved", "by": "x"}), 1001).decision


def test_a_sequence_asks_the_next_when_it_is_their_turn():
    groups = [{"kind": "user", "name": "ana"}, {"kind": "user", "name": "cid"}]
    wait = gate({"approvers": groups, "require": {"mode": "sequence"}})
    with pytest.raises(Forbidden, match="turn"):
        cast(wait, approve(CID), 1001)
    first = cast(wait, approve(ANA), 1001)
    assert [(notice.to, notice.key) for notice in first.notices] == [({"users": ["cid"]}, "a1/turn/1")]
    wait = replace(wait, votes=(first.vote,))
    done = cast(wait, approve(CID), 1002).decision
    assert (done["decision"], done["by"], "turn" in done) == ("approved", "cid", False)


def test_handing_on_takes_somebody_of_the_same_role_or_an_admin():
    wait = gate(FINANCE | {"require": {"mode": "all"}}, people=[ANA, CID, EVE])
    assert reassigned(wait, ANA, "ana", BEN, 1001).members() == ["ben"]
    assert reassigned(wait, CID, "ana", EVE, 1001).members() == ["eve"]
    with pytest.raises(Forbidden):
        reassigned(wait, ANA, "ana", EVE, 1001)
    with pytest.raises(Forbidden):
        reassigned(wait, EVE, "ana", BEN, 1001)
    with pytest.raises(InputError):
        reassigned(wait, ANA, "zoe", BEN, 1001)
    with pytest.raises(Forbidden):
        reassigned(gate(FINANCE, "ben", [ANA, BEN]), ANA, "ana", BEN, 1001)
    with pytest.raises(Gone):
        reassigned(replace(wait, status="expired"), ANA, "ana", BEN, 1001)
    voted = replace(wait, votes=({"by": "ana", "decision": "approved"},))
    with pytest.raises(InputError):
        reassigned(voted, CID, "ana", BEN, 1001)


def test_an_admin_gives_an_approval_that_nobody_can_decide_to_somebody():
    wait = gate({"approvers": [{"kind": "role", "name": "ghost"}]})
    assert rules_of(wait).members() == []
    assert reassigned(wait, CID, "cid", EVE, 1001).members() == ["eve"]


TIMED = FINANCE | {"remind_every": 60.0, "escalate": [{"after": 150.0, "to": [{"kind": "role", "name": "admin"}]}]}


def test_reminders_keep_the_rhythm_of_the_opening_and_five_that_were_missed_are_one():
    wait = gate(TIMED)
    assert wait.next_at == 1060.0
    due = tick(wait, 1060.0)
    assert [(one.key, one.to) for one in due.notices] == [("a1/reminder/1", {"users": ["ana", "ben"]})]
    assert due.next_at == 1120.0
    late = tick(wait, 1000.0 + 5 * 60 + 7)
    assert [one.key for one in late.notices] == ["a1/reminder/5", "a1/escalation/0"]
    assert late.next_at == 1000.0 + 6 * 60
    again = replace(wait, rules=late.rules.as_json(), next_at=late.next_at)
    assert tick(again, 1000.0 + 5 * 60 + 8).notices == ()
    assert tick(again, 900.0).notices == (), "a clock that was set back reminds nobody twice"


def test_an_escalation_widens_the_list_and_leaves_the_digest_alone():
    wait = gate(TIMED)
    with pytest.raises(Forbidden):
        cast(wait, approve(CID), 1140)
    due = tick(wait, 1150.0)
    after = replace(wait, rules=due.rules.as_json(), next_at=due.next_at)
    assert [one.to for one in due.notices if "escalation" in one.key] == [{"users": ["cid"]}]
    assert cast(after, approve(CID, "d1"), 1151).decision["by"] == "cid"


def test_on_a_machine_without_people_reminders_go_to_the_roles_as_written():
    wait = gate(TIMED, people=[])
    assert [one.to for one in tick(wait, 1060.0).notices] == [{"roles": ["finance"]}]


def test_no_times_no_instants():
    assert next_instant(Rules(), 1000.0) == 0.0
