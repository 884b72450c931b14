"""
What is to happen after a failure: rules that can be reached, steps that exist, ways back that lead back.

The law of the file: whatever would be ignored in a run is told here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.definition.check.policies import unknown_kinds
from stepwell.definition.graph import named_fallbacks, returns, upstream
from stepwell.definition.report import Finding
from stepwell.definition.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stepwell.definition.check.survey import BlockSite, StepSite, Survey
    from stepwell.definition.step import ErrorRule, Location

_BELONGS = {"step": "fallback", "steps": "fallback", "goto": "goto", "max_rounds": "goto", "default": "continue"}
"""Parts of a rule that mean something under one strategy only."""


def check_recovery(survey: Survey) -> Iterator[Finding]:
    """Error rules, compensation and verification of all steps and of the workflow's defaults."""
    yield from _rules(survey.workflow.defaults.on_error or (), ("defaults", "on_error"), None)
    yield from _undoes_nothing(survey)
    yield from _fallback_cycles(survey)
    yield from _kept(survey)
    for block in survey.blocks:
        yield from _ways_back(block, survey)
    undoing = _undoing(survey)
    for site in survey.steps:
        yield from _rules(site.step.on_error or (), (*site.where, "on_error"), site)
        for where, name in _named(site):
            yield from _target(name, site, survey, (*site.where, *where))
        yield from _compensation(site, undoing)
        yield from _verification(site)
        yield from _misplaced_end(site)


def _rules(rules: Sequence[ErrorRule], where: Location, site: StepSite | None) -> Iterator[Finding]:
    taken: set[str] = set()
    for index, rule in enumerate(rules):
        here = (*where, index)
        yield from unknown_kinds(rule.errors, (*here, "errors"))
        yield from _rule(rule, here, "add step: its-id" if site is not None else "add steps: [...]")
        if site is None:
            yield from _for_every_step(rule, here)
        if rule.errors and taken.issuperset(rule.errors):
            message = "this rule is never reached: the rules before it take its errors"
            yield Finding("policy", message, here, "remove it, or put it first", "warning")
        if rule.takes_all and index < len(rules) - 1:
            message = "the rules after this one are never reached: it takes every error"
            yield Finding("policy", message, here, "put it last", "warning")
            return
        if rule.when is None:
            taken.update(rule.errors)


def _rule(rule: ErrorRule, where: Location, hint: str) -> Iterator[Finding]:
    """A rule says all that its strategy needs, and nothing that belongs to another one."""
    said = rule.model_fields_set
    for word, strategy in _BELONGS.items():
        if word in said and rule.strategy != strategy:
            message = f"`{word}` means nothing under strategy: {rule.strategy}"
            mend = f"write strategy: {strategy}, or remove `{word}`"
            yield Finding("policy", message, (*where, word), mend, "error" if strategy == "fallback" else "warning")
    if rule.strategy == "fallback" and rule.step is None and not rule.steps:
        yield Finding("policy", "a fallback names `step`, or holds `steps`", where, hint)
    elif rule.strategy == "fallback" and rule.step is not None and "steps" in said:
        yield Finding("policy", "a fallback has either `step` or `steps`", (*where, "step"), "keep one of them")
    elif rule.strategy == "goto" and rule.goto is None:
        yield Finding("policy", "`goto` names the step to return to", where, "write {goto: its-id}")


def _for_every_step(rule: ErrorRule, where: Location) -> Iterator[Finding]:
    """The workflow's rules hold for steps of every block, so they can name none."""
    if rule.step is not None:
        hint = "hold the steps in the rule: {strategy: fallback, steps: [...]}"
        message = f"a rule for every step cannot name '{rule.step}', which lies in one block"
        yield Finding("policy", message, (*where, "step"), hint)
    if rule.goto is not None:
        message = f"a rule for every step cannot return to '{rule.goto}', which lies in one block"
        yield Finding("policy", message, (*where, "goto"), "write the rule in the steps that return")


def _named(site: StepSite) -> Iterator[tuple[Location, str]]:
    """The steps of the block that a step names for its recovery, with where."""
    for index, rule in enumerate(site.step.on_error or ()):
        if rule.strategy == "fallback" and rule.step:
            yield ("on_error", index, "step"), rule.step
    compensate = site.step.compensate
    if compensate is not None and compensate.step:
        yield ("compensate", "step"), compensate.step


def _target(name: str, site: StepSite, survey: Survey, where: Location) -> Iterator[Finding]:
    """A step kept for another one lies in its block or in one around it, and neither is it nor holds it."""
    around = [holder.step.id for holder in site.holders()]
    if name == site.step.id:
        message = "undo itself" if where[-2] == "compensate" else "stand in for itself"
        yield Finding("policy", f"'{name}' cannot {message}", where)
    elif name in around:
        message = f"'{name}' is the step that this one lies in, and cannot be kept for it"
        yield Finding("policy", message, where, "name another step")
    elif site.around(name) is None:
        yield from _absent(name, site, survey, where, "in this block or around it")


def _absent(
    name: str, site: StepSite, survey: Survey, where: Location, place: str = "in this block"
) -> Iterator[Finding]:
    if name not in survey.parsed.suspects:
        ids = [other for other in site.home.indexes if other != site.step.id]
        elsewhere = any(other.step.id == name for other in survey.steps)
        hint = "it lies in another block" if elsewhere else did_you_mean(name, ids, "steps of this block")
        yield Finding("policy", f"there is no step '{name}' {place}", where, hint)


def _ways_back(block: BlockSite, survey: Survey) -> Iterator[Finding]:
    """Whoever returns to a step returns to one that has run before, in the same block."""
    aside = survey.aside
    before: list[int] = []
    for site in block.steps:
        for place, name in returns(site.step):
            where = (*site.where, *place)
            before = before or upstream(block.order)
            index = block.indexes.get(name)
            if index is None:
                yield from _absent(name, site, survey, where)
            elif site.step.id in aside:
                message = (
                    f"'{site.step.id}' is kept for '{aside[site.step.id]}' and cannot return to a step of the flow"
                )
                yield Finding("policy", message, where, f"let '{aside[site.step.id]}' return there")
            elif name in aside:
                message = f"'{name}' is kept for '{aside[name]}' and never runs by itself"
                yield Finding("policy", message, where, f"return to '{aside[name]}'")
            elif not before[site.index] >> index & 1:
                hint = "" if block.order.sequence else f"add '{name}' to depends_on of '{site.step.id}'"
                yield Finding("policy", f"'{name}' does not run before this step; `goto` goes back", where, hint)


def _fallback_cycles(survey: Survey) -> Iterator[Finding]:
    """
    Chains of fallbacks that come back to a step in them, from steps to fallbacks and from containers to what is inside.

    The workflow's own fallbacks do not hold inside them, and so are on no chain.
    """
    sites = {site.step.id: site for site in reversed(survey.steps)}
    settled: set[str] = set()
    for start in [site.step.id for site in survey.steps]:
        chain: dict[str, Iterator[str]] = {start: _entered(sites[start])} if start not in settled else {}
        while chain:
            name, following = next(reversed(chain.items()))
            target = next(following, None)
            if target is None:
                settled.add(name)
                del chain[name]
            elif target in chain and target != name:
                names = [*list(chain)[list(chain).index(target) :], target]
                if target not in {holder.step.id for holder in sites[name].holders()}:
                    message = f"these steps are each other's fallback: {' -> '.join(names)}"
                    hint = "a fallback chain ends somewhere"
                    yield Finding("policy", message, (*sites[name].where, "on_error"), hint)
            elif target in sites and target not in settled and target not in chain:
                chain[target] = _entered(sites[target])


def _entered(site: StepSite) -> Iterator[str]:
    """The steps that may run, and fail, in the course of a step or in its place."""
    yield from named_fallbacks(site.step)
    for block in site.blocks:
        yield from (inner.step.id for inner in block.steps)


def _kept(survey: Survey) -> Iterator[Finding]:
    """What a step says of its place in the flow means nothing once it is kept out of it."""
    for site in survey.steps if survey.aside else ():
        keeper = survey.aside.get(site.step.id)
        if keeper is not None and site.step.depends_on:
            message = (
                f"`depends_on` means nothing: '{site.step.id}' is kept for '{keeper}', and runs when that needs it"
            )
            yield Finding("policy", message, (*site.where, "depends_on"), "remove it", "warning")


def _compensation(site: StepSite, undoing: set[str]) -> Iterator[Finding]:
    compensate = site.step.compensate
    where = (*site.where, "compensate")
    if compensate is None or site.broken:
        return
    if compensate.step is None and not compensate.steps:
        yield Finding("policy", "`compensate` has no steps", where, "write compensate: {step: its-id}")
    if site.step.type == "end":
        message = f"'{site.step.id}' is never undone: it ends the run"
        yield Finding("policy", message, where, "remove it", "warning")
    elif _undoes(site, undoing):
        message = f"'{site.step.id}' is never undone: it undoes another step"
        yield Finding("policy", message, where, "remove it", "warning")


def _undoing(survey: Survey) -> set[str]:
    """The ids of the steps that are named for undoing others, and for nothing else."""
    named = {site.step.compensate.step for site in survey.steps if site.step.compensate is not None}
    fallbacks = {name for site in survey.steps for name in named_fallbacks(site.step)}
    return {name for name in named if name is not None and name not in fallbacks}


def _undoes(site: StepSite, undoing: set[str]) -> bool:
    """Whether a step runs only while the run is undone."""
    for around in (site, *site.holders()):
        block = around.home.block
        if around.step.id in undoing or (block is not None and block.purpose == "undo"):
            return True
    return False


def _undoes_nothing(survey: Survey) -> Iterator[Finding]:
    """The strategy `compensate` where no step says how it is undone; what is called may say so."""
    if any(site.step.compensate is not None or site.step.type == "sub_workflow" for site in survey.steps):
        return
    rules = [((*site.where, "on_error"), site.step.on_error) for site in survey.steps]
    for where, held in ((("defaults", "on_error"), survey.workflow.defaults.on_error), *rules):
        for index, rule in enumerate(held or ()):
            if rule.strategy == "compensate":
                message = "nothing is undone: no step of this workflow has `compensate`"
                hint = "add compensate: {steps: [...]} to the steps that are to be undone, or write strategy: fail"
                yield Finding("policy", message, (*where, index), hint, "warning")


def _verification(site: StepSite) -> Iterator[Finding]:
    if site.step.verification() is None:
        return
    for holder in (around.home for around in (site, *site.holders())):
        if holder.block is not None and "call" in holder.block.binds and holder.holder is not None:
            message = f"'call' is what `verify` of '{site.step.id}' knows the call by"
            yield Finding("name", message, (*holder.holder.where, "as"), "give the item another name")
    if getattr(site.step, "idempotent", None) is True:
        message = "`verify` is never used: an idempotent step is simply called again"
        yield Finding("policy", message, (*site.where, "verify"), "write idempotent: false", "warning")


def _misplaced_end(site: StepSite) -> Iterator[Finding]:
    if site.step.type != "end":
        return
    for around in (site, *site.holders()):
        block = around.home.block
        if block is not None and block.purpose in {"undo", "verify"}:
            words = "undo a step" if block.purpose == "undo" else "verify a call"
            hint = "let the steps complete or fail"
            yield Finding("policy", f"'end' cannot stand in steps that {words}", (*site.where, "type"), hint)
            return
