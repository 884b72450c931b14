"""Post amplifier: a race between an event and a time, and two networks of which one is down."""

from __future__ import annotations

import json

from tests.acceptance.example_runs import EXAMPLES, call, run, shown, steps

GIVEN = json.loads((EXAMPLES / "post-amplifier" / "input.json").read_text("utf-8"))


def veto(batch: str, **data: str) -> None:
    call("events", "send", "posts-veto", "--data", json.dumps({"batch": batch, **data}))


def test_after_the_time_for_a_veto_the_posts_go_where_they_can(folder):
    last = run("post-amplifier", "--watch", given=GIVEN | {"veto_within": "1s"})
    assert last["output"] == {
        "posted": ["a1", "a2"],
        "dropped": 1,
        "networks": {"harbour": "completed", "lantern": "failed"},
    }
    found = steps(last["run"])
    assert found["/window"]["output"]["objection"]["status"] == "cancelled"
    assert found["/write/1/post"]["output"]["text"] == 'A {curly} guide: He said "hi" and left.'
    assert found["/write/2/post"]["error"]["kind"] == "expression_error"
    assert found["/send/lantern/to_lantern"]["attempts"] == 2


def test_a_veto_stops_its_batch_and_no_other(folder):
    last = run("post-amplifier", code=5)
    assert last["status"] == "waiting"
    veto("B-11")
    call("runs", "resume", last["run"], code=5)
    assert shown(last["run"])["status"] == "waiting"
    veto("B-12", why="the tide table is last year's")
    call("runs", "resume", last["run"])
    finished = shown(last["run"])
    assert finished["output"] == {"posted": [], "reason": "vetoed: the tide table is last year's"}
    found = steps(last["run"])
    assert found["/window"]["output"]["silence"]["status"] == "cancelled"
    assert found["/send"]["status"] == "skipped"


def test_a_veto_may_come_before_the_run_asks_for_it(folder):
    veto("B-12")
    assert run("post-amplifier")["output"] == {"posted": [], "reason": "vetoed: no reason given"}


def test_with_nothing_new_the_run_ends_early(folder):
    last = run("post-amplifier", given=GIVEN | {"articles": GIVEN["articles"][2:3]})
    assert last["output"] == {"posted": [], "reason": "nothing new"}
    assert steps(last["run"])["/ask"]["status"] == "skipped"
