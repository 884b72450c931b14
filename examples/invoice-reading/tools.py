"""The tools of the invoice-reading example: stand-ins for a mailbox, a parsing service and the books.

With the environment variable INVOICE_BOOKS set to a file, what is booked is written there, one line an invoice.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import stepwell

PARSING = 0.5
"""Seconds that the parsing of a document takes."""
TEXTS = {
    "rent-march.pdf": "Invoice RENT-0003\nMill Street Estates\nTotal EUR 1850.00",
    "paper.pdf": "Invoice PAP-118\nBerg & Daughters\nTotal EUR 64.90",
    "power-february.pdf": "Invoice PWR-7781\nTotal EUR 211.35",
    "torn.pdf": "Invoice ???\nTotal EUR",
}
BOOKED_BEFORE = ["power-february.pdf"]
_breaks = {"paper.pdf"}
"""Files whose first job breaks at the parsing service."""
_broken: set[str] = set()


@stepwell.tool()
def mail_labels(mail: str) -> dict[str, list[str]]:
    """The labels of a mail."""
    return {"labels": ["booked"] if mail == "M-1" else ["invoice"]}


@stepwell.tool()
def booked_files() -> dict[str, list[str]]:
    """Files that are in the books already."""
    return {"files": BOOKED_BEFORE}


@stepwell.tool()
def sender_of(mail: str) -> dict[str, str]:
    """The supplier that wrote a mail."""
    raise stepwell.StepFailed("not_found", f"the sender of {mail} is in no address book")


@stepwell.tool()
def upload(file: str) -> dict[str, str]:
    """Hand a file to the parsing service; the job is done some time later."""
    if file not in TEXTS:
        raise stepwell.StepFailed("not_found", f"there is no file {file}")
    job = f"{int(time.time() * 1000)}:{file}"
    if file in _breaks:
        _breaks.discard(file)
        _broken.add(job)
    return {"job": job}


@stepwell.tool()
def parsing_status(job: str) -> dict[str, str]:
    """How far a job is: working or ready. Fails if the job broke."""
    if job in _broken:
        raise stepwell.StepFailed("server_error", "the parsing service lost the job")
    begun = int(job.partition(":")[0]) / 1000
    return {"status": "ready" if time.time() - begun > PARSING else "working"}


@stepwell.tool()
def parsed_text(job: str) -> dict[str, str]:
    """The text of a document that is ready."""
    return {"text": TEXTS[job.partition(":")[2]]}


@stepwell.tool()
def read_fields(text: str) -> dict[str, str | float]:
    """What an invoice seems to say; whether it makes sense is for the workflow to check."""
    number = re.search(r"Invoice (\S+)", text)
    total = re.search(r"Total (\S*) ?([\d.]*)", text)
    return {
        "number": number[1] if number else "",
        "total": float(total[2] or 0) if total else 0.0,
        "currency": total[1] if total else "",
    }


@stepwell.tool(idempotent=False)
def book_invoice(file: str, number: str, total: float, supplier: str) -> dict[str, str]:
    """Enter an invoice in the books; a second call would enter it twice."""
    if books := os.environ.get("INVOICE_BOOKS"):
        line = json.dumps({"file": file, "number": number, "total": total, "supplier": supplier})
        with Path(books).open("a", encoding="utf-8") as out:
            out.write(line + "\n")
    return {"number": number}


@stepwell.tool()
def label_mail(mail: str, label: str) -> dict[str, str]:
    """Put a label on a mail."""
    return {"mail": mail, "label": label}
