"""Dependencies: they exist, lie in the same block, and form no cycle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.definition.graph import cycles
from stepwell.definition.report import Finding
from stepwell.definition.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepwell.definition.check.survey import BlockSite, StepSite, Survey

_SHOWN = 12


def check_graph(survey: Survey) -> Iterator[Finding]:
    """Unknown and misplaced dependencies, dependencies on what is kept aside, and cycles."""
    homes = {site.step.id: site for site in survey.steps}
    for block in survey.blocks:
        ids = {site.step.id: site for site in block.steps}
        for site in block.steps:
            for index, name in enumerate(site.step.depends_on or ()):
                where = (*site.where, "depends_on", index)
                if name not in ids:
                    if name not in survey.parsed.suspects:
                        yield _unknown(name, site, where, ids, homes)
                elif name in survey.aside:
                    message = f"'{name}' is kept for '{survey.aside[name]}' and never runs by itself"
                    yield Finding("dependency", message, where, f"depend on {survey.aside[name]}")
        yield from _cycles(block)


def _unknown(
    name: str, site: StepSite, where: tuple[str | int, ...], ids: dict[str, StepSite], homes: dict[str, StepSite]
) -> Finding:
    found = homes.get(name)
    if found is None:
        hint = did_you_mean(name, ids, "steps of this block")
        return Finding("dependency", f"there is no step '{name}'", where, hint)
    if found in site.holders():
        return Finding("dependency", f"'{name}' is the step that this one lies in", where, "it need not be named")
    around = next((holder for holder in found.holders() if holder.step.id in ids), None)
    hint = f"depend on '{around.step.id}', which it lies in" if around and around is not site else ""
    if not hint:
        hint = "steps before the enclosing step have already run; it need not be named"
    return Finding("dependency", f"'{name}' is not in this block; dependencies stay inside one block", where, hint)


def _cycles(block: BlockSite) -> Iterator[Finding]:
    for cycle in cycles(block.order):
        start = min(cycle)
        turned = cycle[cycle.index(start) :] + cycle[: cycle.index(start)]
        names = [block.steps[index].step.id for index in turned]
        if len(names) == 1:
            yield Finding("cycle", f"'{names[0]}' depends on itself", (*block.steps[start].where, "depends_on"))
            continue
        shown = [*names[:_SHOWN], "…"] if len(names) > _SHOWN else names
        message = f"these steps wait for each other: {' -> '.join([*shown, names[0]])}"
        yield Finding("cycle", message, (*block.steps[start].where, "depends_on"), "a -> b: a depends on b; remove one")
