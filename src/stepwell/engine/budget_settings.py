"""`[budget]` of the settings: what the account and its workflows may spend in a day or a month.

    [budget.account]
    usd = 50
    period = "month"
    on_exceed = "suspend"

    [budget.workflow]                  # each workflow by itself
    tokens = 2_000_000

    [budget.workflows.support-triage]  # this one instead
    usd = 5

The law of the file: a period ends at midnight UTC; money is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import ValidationError

from stepwell.definition.budget import Budget
from stepwell.ports import Limit

if TYPE_CHECKING:
    from stepwell.engine.settings_text import Reading

Json: TypeAlias = Any

KEYS = ("tokens", "usd", "period", "on_exceed")
PLACES = ("account", "workflow", "workflows")


@dataclass(frozen=True, slots=True)
class PeriodBudget:
    """A budget that begins anew every day or month."""

    budget: Budget
    period: Literal["day", "month"] = "month"

    def limit(self, scope: Literal["workflow", "account"], subject: str, at: float) -> Limit:
        """What it comes to at an instant."""
        shape = "%Y-%m-%d" if self.period == "day" else "%Y-%m"
        period = datetime.fromtimestamp(at, UTC).strftime(shape)
        its = self.budget
        return Limit(scope, subject, "", period, its.tokens, its.nano_usd, its.on_exceed)


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """Of one project. `workflow` is for each workflow that `workflows` does not name."""

    account: PeriodBudget | None = None
    workflow: PeriodBudget | None = None
    workflows: Mapping[str, PeriodBudget] = field(default_factory=dict)

    def limits(self, workflow: str, at: float) -> tuple[Limit, ...]:
        """What bounds a call of a workflow at an instant, besides its run's own budget."""
        its = self.workflows.get(workflow, self.workflow)
        found = [] if its is None else [its.limit("workflow", workflow, at)]
        return (*found, *(() if self.account is None else (self.account.limit("account", "", at),)))

    def all(self) -> list[PeriodBudget]:
        """Every budget that is declared."""
        return [one for one in (self.account, self.workflow, *self.workflows.values()) if one is not None]


NO_BUDGETS = BudgetSettings()


def known_variables() -> list[str]:
    """The environment twins of the keys of the account's and each workflow's budget."""
    return [_twin(place, key) for place in ("account", "workflow") for key in KEYS]


def _twin(place: str, key: str) -> str:
    return f"STEPWELL_BUDGET_{place.upper()}_{key.upper()}"


def budgets_of(reading: Reading, section: Json, environ: Mapping[str, str]) -> BudgetSettings:
    """The budgets that a section of the settings and the environment declare; what is wrong is noted."""
    if not isinstance(section, dict):
        return NO_BUDGETS
    merged = {place: _with_twins(section.get(place), place, environ) for place in ("account", "workflow")}
    section = section | {place: one for place, one in merged.items() if one is not None}
    for name in section:
        if name not in PLACES:
            reading.refuse_unknown(("budget", name), PLACES, "a budget is [budget.account] or [budget.workflow]")
    workflows = section.get("workflows", {})
    if not isinstance(workflows, dict):
        reading.refuse(("budget", "workflows"), "budget.workflows is a section", "write [budget.workflows.NAME]")
        workflows = {}
    each = {name: _budget(reading, ("budget", "workflows", name), one) for name, one in workflows.items()}
    return BudgetSettings(
        _budget(reading, ("budget", "account"), section.get("account")),
        _budget(reading, ("budget", "workflow"), section.get("workflow")),
        {name: one for name, one in each.items() if one is not None},
    )


def _with_twins(section: Json, place: str, environ: Mapping[str, str]) -> Json:
    """A budget with what the environment says of it: numbers are text there, and a model is its name alone."""
    said = {key: environ[_twin(place, key)] for key in KEYS if environ.get(_twin(place, key))}
    if not said or not isinstance(section or {}, dict):
        return section
    found: dict[str, Json] = dict(section or {})
    for key, value in said.items():
        if key in {"tokens", "usd"}:
            found[key] = _number(value)
        elif key == "on_exceed" and value not in {"fail", "suspend"}:
            found[key] = {"model": value}
        else:
            found[key] = value
    return found


def _number(text: str) -> Json:
    """The number that a text writes; another text stays, and is refused as no number."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _budget(reading: Reading, where: tuple[str, ...], section: Json) -> PeriodBudget | None:
    if section is None:
        return None
    if not isinstance(section, dict):
        reading.refuse(where, f"{'.'.join(where)} is a section", f"write [{'.'.join(where)}]")
        return None
    before = len(reading.problems)
    for key in section:
        if key not in KEYS:
            reading.refuse_unknown((*where, key), KEYS)
    if section.get("period", "month") not in {"day", "month"}:
        reading.refuse((*where, "period"), 'period is "day" or "month"', "")
    if len(reading.problems) > before:
        return None
    said = {key: value for key, value in section.items() if key != "period"}
    try:
        return PeriodBudget(Budget.model_validate(said), section.get("period", "month"))
    except ValidationError as wrong:
        for error in wrong.errors(include_url=False):
            context = error.get("ctx") or {}
            hint = str(context.get("hint", ""))
            reading.refuse((*where, *(str(part) for part in error["loc"][:1])), error["msg"].replace("`", ""), hint)
    return None
