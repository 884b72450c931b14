"""Back office: a real browser on the example's own pages."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.acceptance.example_runs import call, run, shown, steps
from tests.browser.office import PASSWORD
from tests.browser.real import one_browser, open_office, variables

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the tests' browser is that of Debian")

ORDERS = [
    {"number": "A-1", "customer": "Tidewater Freight", "article": "desk", "quantity": 3, "express": True},
    {"number": "A-2", "customer": "浅田商店", "article": "lamp", "quantity": 12},
]


@pytest.fixture
def office(folder, monkeypatch):
    with one_browser() as browser, open_office() as opened:
        for variable, value in variables(browser, folder / "files").items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setenv("OFFICE_PASSWORD", PASSWORD)
        yield opened


def test_orders_are_entered_once_read_back_and_fetched(office):
    pages, address = office
    given = {"address": address, "user": "clerk", "orders": ORDERS}
    last = run("back-office", given=given)
    assert last["status"] == "completed", last
    assert last["output"]["entered"] == [{"number": "A-1", "entered": True}, {"number": "A-2", "entered": True}]
    assert last["output"]["orders"] == [ORDERS[0], {**ORDERS[1], "express": False}]
    assert Path(last["output"]["file"]).name == "orders.csv"
    assert Path("files/orders.csv").read_text("utf-8").splitlines()[2] == "A-2,浅田商店,lamp,12,"
    assert len(pages.orders) == 2
    told = (
        call("runs", "show", last["run"], "--all")
        + json.dumps(shown(last["run"]))
        + call("runs", "export", last["run"])
    )
    assert PASSWORD not in told
    again = run("back-office", given=given)
    assert again["output"]["entered"] == [{"number": "A-1", "entered": False}, {"number": "A-2", "entered": False}]
    assert len(pages.orders) == 2


def test_a_wrong_password_enters_nothing_and_says_so(office, monkeypatch):
    pages, address = office
    monkeypatch.setenv("OFFICE_PASSWORD", "not-the-password")
    last = run("back-office", given={"address": address, "user": "clerk", "orders": ORDERS}, code=1)
    assert last["status"] == "failed"
    assert steps(last["run"])["/enter/0/one/there"]["error"]["kind"] == "tool_error"
    assert pages.orders == []
