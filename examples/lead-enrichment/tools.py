"""The tools of the lead-enrichment example: stand-ins for two directories of companies, a web site and a CRM."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import stepwell

REGISTRY = {"Tidewater Freight": 240, "Pinhal Móveis": 35}
DIRECTORY = {"Tidewater Freight": 250, "하늘 스튜디오": 4}
PAGES = {"pricing": "Prices for teams of 50 and more", "blog": "Seven ideas for your desk"}
_busy = {"blog"}
"""Pages that are refused once, as a service that is overloaded does."""


@dataclass(frozen=True, slots=True)
class Firm:
    """A company as a directory knows it."""

    employees: int
    source: str


@stepwell.tool()
async def company_registry(company: str) -> Firm:
    """The official registry: slow, and it does not know everybody."""
    await asyncio.sleep(0.3)
    if company not in REGISTRY:
        raise stepwell.StepFailed("not_found", f"the registry does not know {company}")
    return Firm(REGISTRY[company], "registry")


@stepwell.tool()
async def company_directory(company: str) -> Firm:
    """A commercial directory: quick, and it does not know everybody either."""
    await asyncio.sleep(0.05)
    if company not in DIRECTORY:
        raise stepwell.StepFailed("not_found", f"the directory does not know {company}")
    return Firm(DIRECTORY[company], "directory")


@stepwell.tool()
async def fetch_page(page: str) -> dict[str, str]:
    """The page on which a lead left its address."""
    if page in _busy:
        _busy.discard(page)
        raise stepwell.StepFailed("overloaded", "too many requests, try again")
    if page not in PAGES:
        raise stepwell.StepFailed("not_found", f"no page {page}")
    return {"text": PAGES[page]}


@stepwell.tool()
def score_lead(firm: Firm, text: str) -> dict[str, int | list[str]]:
    """Points for size and for what was read, with the reasons."""
    why = [f"{firm.employees} employees ({firm.source})"]
    points = min(firm.employees, 50)
    if "Prices" in text:
        points += 40
        why.append("looked at prices")
    return {"points": points, "why": why}


@stepwell.tool()
def add_to_crm(email: str, score: int) -> dict[str, str | int]:
    """Write a lead to the CRM; writing it again changes nothing."""
    return {"contact": email, "score": score}
