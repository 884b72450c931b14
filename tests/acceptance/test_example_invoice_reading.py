"""Invoice reading: a join, a sub-workflow that polls and is done again as a whole, a check of what was read."""

from __future__ import annotations

import json

import pytest
from tests.acceptance.example_runs import run, steps


@pytest.fixture
def books(folder, monkeypatch):
    """What is booked: a function that reads it."""
    file = folder / "books.jsonl"
    monkeypatch.setenv("INVOICE_BOOKS", str(file))
    return lambda: [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def mail(identity: str, *attachments: str) -> dict:
    return {"mail": {"id": identity, "attachments": list(attachments)}}


def test_new_invoices_are_parsed_read_and_booked_once_each(books):
    last = run("invoice-reading", "--watch")
    output = last["output"]
    assert [(row["number"], row["total"]) for row in output["booked"]] == [("RENT-0003", 1850.0), ("PAP-118", 64.9)]
    assert (output["supplier"], output["labelled"]) == (None, "booked")
    assert all(2 <= row["rounds_of_polling"] <= 20 for row in output["booked"])
    assert sorted(line["number"] for line in books()) == ["PAP-118", "RENT-0003"]


def test_a_job_that_broke_is_done_again_from_its_upload_and_both_rounds_stay_visible(books):
    last = run("invoice-reading", "--watch")
    found = steps(last["run"])
    assert found["/read/1/parsed"]["status"] == "failed"
    assert found["/read/1/parsed"]["error"]["kind"] == "child_failed"
    assert found["/read/1/parsed#2"]["status"] == "completed"
    assert {"/read/1/parsed/upload", "/read/1/parsed#2/upload"} <= set(found)
    assert len(books()) == 2


def test_an_invoice_that_cannot_be_read_is_not_booked(books):
    last = run("invoice-reading", "--watch", given=mail("M-2", "torn.pdf"), code=1)
    assert (last["status"], last["error"]["path"]) == ("failed", "/read/0/fields")
    assert last["error"]["kind"] == "output_invalid"
    assert books() == []


@pytest.mark.parametrize("given", [mail("M-1", "rent-march.pdf"), mail("M-3", "logo.png", "power-february.pdf")])
def test_a_mail_without_anything_new_completes_and_is_not_labelled(books, given):
    last = run("invoice-reading", given=given)
    assert last["output"] == {"booked": [], "supplier": None, "labelled": None}
    assert books() == []
