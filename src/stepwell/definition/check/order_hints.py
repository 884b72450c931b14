"""Why a step is not visible from another, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.definition.graph import named_fallbacks

if TYPE_CHECKING:
    from stepwell.definition.check.survey import BlockSite, StepSite, Survey


class OrderHints:
    """Explains `order` errors of one definition."""

    def __init__(self, survey: Survey) -> None:
        self._aside = survey.aside
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
        if target is site or (site is not None and target in site.holders()):
            return _from_inside(target, site)
        closed = _closing(target, site)
        if closed is not None:
            return _closed(closed)
        keeper = self._homes.get(self._aside.get(target.step.id, ""))
        return _kept(target, keeper) if keeper is not None else _in_the_open(target, site)

    def item(self, name: str) -> str:
        """The hint for a name that loops give to their items, used where it does not exist."""
        loop = self._loops.get(name)
        return f"it is the item of the loop '{loop}' and exists inside it" if loop else ""


def _from_inside(target: StepSite, site: StepSite) -> str:
    """Why a step inside the target, or the target itself, does not see it."""
    if target is site:
        return "a step cannot read its own output"
    inner = next((one for one in (site, *site.holders()) if one.home.holder is target), None)
    purpose = inner.home.block.purpose if inner is not None and inner.home.block is not None else ""
    if purpose == "fallback":
        return "these steps run because it failed; `error` says how"
    if purpose == "verify":
        return "its answer was lost; `call` and `error` say what is known"
    return "this step lies inside it, so it has not ended yet"


def _closed(block: BlockSite) -> str:
    """Why steps of a block are not seen from outside it."""
    if block.holder is None:
        return "it runs only in place of a step that has failed; use that step's output"
    name = block.holder.step.id
    match block.block.purpose if block.block is not None else "":
        case "fallback":
            return f"it runs only when '{name}' has failed; its output is then that of '{name}'"
        case "undo":
            return f"it runs only to undo '{name}'"
        case "verify":
            return f"it runs only to verify '{name}'"
        case _:
            return f"steps of a loop are visible inside the same iteration only; use step.{name}, its list of outputs"


def _kept(target: StepSite, keeper: StepSite) -> str:
    """Why a step is not seen that is kept for another one."""
    if target.step.id in named_fallbacks(keeper.step):
        return "it runs only in place of the step that names it; use that step's output"
    return f"it runs only to undo '{keeper.step.id}'"


def _in_the_open(target: StepSite, site: StepSite | None) -> str:
    """Why a step is not seen that nothing hides."""
    if site is None:
        return ""
    if site.home.block is not None and site.home.holder is None:
        return "a rule for every step sees none of them; `error.path` says which one failed"
    return _by_order(target, site)


def _closing(target: StepSite, site: StepSite | None) -> BlockSite | None:
    """The outermost block that hides the target from the site: the body of a loop, or steps that recover."""
    inside = _homes(site) if site else set()
    found = None
    home: BlockSite | None = target.home
    while home is not None:
        if home.block is not None and not home.block.exports and id(home) not in inside:
            found = home
        home = home.holder.home if home.holder is not None else None
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
