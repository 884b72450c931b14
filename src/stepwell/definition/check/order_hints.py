"""Why a step is not visible from another, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.definition.graph import kept_aside

if TYPE_CHECKING:
    from stepwell.definition.check.survey import BlockSite, StepSite, Survey


class OrderHints:
    """Explains `order` errors of one definition."""

    def __init__(self, survey: Survey) -> None:
        self._homes = {site.step.id: site for site in reversed(survey.steps)}
        self._loops = {
            name: block.holder.step.id
            for block in survey.blocks
            if block.block is not None and block.holder is not None
            for name in block.block.binds
        }

    def hint(self, name: str, site: StepSite | None) -> str:
        """The hint for a reference to the step `name` from a text of `site` (None: from the workflow's output)."""
        target = self._homes.get(name)
        if target is None:
            return ""
        if target is site:
            return "a step cannot read its own output"
        around = {id(holder): holder for holder in site.holders()} if site else {}
        if id(target) in around:
            return "this step lies inside it, so it has not ended yet"
        loop = _closing(target, site)
        if loop is not None:
            name = loop.step.id
            return f"steps of a loop are visible inside the same iteration only; use step.{name}, its list of outputs"
        if target.step.id in kept_aside(other.step for other in target.home.steps):
            return "it runs only in place of the step that names it; use that step's output"
        return _by_order(target, site) if site else ""

    def item(self, name: str) -> str:
        """The hint for a name that loops give to their items, used where it does not exist."""
        loop = self._loops.get(name)
        return f"it is the item of the loop '{loop}' and exists inside it" if loop else ""


def _closing(target: StepSite, site: StepSite | None) -> StepSite | None:
    """The outermost loop that hides the target from the site."""
    inside = _homes(site) if site else set()
    found = None
    home: BlockSite | None = target.home
    while home is not None and home.holder is not None:
        if home.block is not None and not home.block.exports and id(home) not in inside:
            found = home.holder
        home = home.holder.home
    return found


def _homes(site: StepSite) -> set[int]:
    return {id(site.home), *(id(holder.home) for holder in site.holders())}


def _by_order(target: StepSite, site: StepSite) -> str:
    """For steps that meet in a common block, or in different blocks of one step."""
    mine = {id(step.home): step for step in (site, *site.holders())}
    theirs = next((step for step in (target, *target.holders()) if id(step.home) in mine), None)
    if theirs is None:
        return ""
    ours = mine[id(theirs.home)]
    if ours is theirs:
        return f"they lie in different branches of '{ours.step.id}'"
    if theirs.home.order.sequence:
        return f"it comes later; move '{theirs.step.id}' before '{ours.step.id}'"
    return f"add '{theirs.step.id}' to depends_on of '{ours.step.id}'"
