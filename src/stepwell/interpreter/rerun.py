"""Going back: what of a run is done again when a person asks for it, worked out from its journal alone.

The law of the file: nothing is edited. What is to be forgotten, what gets another round and what is used again follow
from the journal and the definition; a redrive does again only what was not finished, a rerun also all that comes after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.definition.step import walk
from stepwell.definition.visibility import refs_of
from stepwell.errors import InputError, NotFound, Problem
from stepwell.journal import path as paths
from stepwell.journal.entry import NULL, Draft, read_body
from stepwell.journal.fold import Fold

if TYPE_CHECKING:
    from stepwell.definition.compile import BlockPlan, StepPlan
    from stepwell.interpreter.definition import Definition
    from stepwell.journal.entry import Entry, Outcome

Json: TypeAlias = Any
_UNREACHED = frozenset({"upstream_failed", "run_ended"})
_MARKS = "~@!?$"


@dataclass(slots=True)
class Return:
    """What a journal is told: see `Fold.rewound`. Paths of `stale` are without the last round."""

    stale: list[str] = field(default_factory=list)
    reopen: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)

    def covers(self, path: str, fold: Fold) -> bool:
        """Whether what is recorded at a path is not used any more."""
        if path in self.reopen or any(paths.is_at_or_below(path, top) for top in self.drop):
            return True
        return any(paths.is_at_or_below(path, current(fold, bare)) for bare in self.stale)


class _Tree:
    """The places of a journal by what they lie below."""

    def __init__(self, outcomes: Mapping[str, Outcome]) -> None:
        self.below: dict[str, dict[str, None]] = {}
        for path in outcomes:
            while path:
                above = paths.parent(path)
                inside = self.below.setdefault(above, {})
                if path in inside:
                    break
                inside[path] = None
                path = above  # noqa: PLW2901 -- a walk up from each

    def marks(self, path: str) -> Iterator[str]:
        """What belongs to the step at a path itself."""
        return (one for one in self.below.get(path, ()) if one.rpartition("/")[2][:1] in _MARKS)

    def beside(self, path: str) -> Iterator[str]:
        """Those and all that lies below them: the incident of a trouble, what a fallback waits for, a timer."""
        waiting = list(self.marks(path))
        while waiting:
            place = waiting.pop(0)
            yield place
            waiting += self.below.get(place, ())

    def places(self, path: str) -> list[str]:
        """Steps, branches and iterations directly below, each in its last round."""
        last: dict[str, str] = {}
        for one in self.below.get(path, ()):
            if one.rpartition("/")[2][:1] in _MARKS:
                continue
            bare = paths.bare(one)
            if bare not in last or paths.round_number(one) > paths.round_number(last[bare]):
                last[bare] = one
        return list(last.values())


def current(fold: Fold, bare: str) -> str:
    """The path of the round in which the step at a path (without its round) is now."""
    number = fold.round_of(bare)
    while (found := fold.outcomes.get(paths.with_round(bare, number))) is not None and found.retry_at:
        number += 1
    return paths.with_round(bare, number)


def unfinished(fold: Fold) -> Return:
    """What a redrive forgets: all that failed or was given up, with what was not reached because of it."""
    found = Return(reopen=[""])
    tree = _Tree(fold.outcomes)
    waiting = [""]
    while waiting:
        for path in tree.places(waiting.pop()):
            if path.rpartition("/")[2] == paths.AFTER_FAILURE:
                found.drop.append(path)
            else:
                waiting += _left(path, fold.outcomes, tree, found)
    return found


def _left(path: str, outcomes: Mapping[str, Outcome], tree: _Tree, found: Return) -> list[str]:
    """Forget a place that is not finished; returns it if what is inside is to be looked at."""
    outcome = outcomes.get(path)
    inside = bool(tree.places(path)) or any(mark.endswith("/~start") for mark in tree.marks(path))
    if outcome is None:
        found.drop += [place for place in tree.beside(path) if _was_given_up(place, outcomes)]
        return [path]
    reason = (outcome.reason or {}).get("type")
    if outcome.status == "skipped":
        if reason in _UNREACHED:
            found.drop.append(path)
        return []
    if outcome.status == "completed" or outcome.continued:
        return []
    if not inside:
        found.drop.append(path)
        return []
    found.reopen.append(path)
    kept = _turns(path, outcomes, tree)
    found.drop += [mark for mark in _spent(path, tree) if mark not in kept]
    return [path]


def _was_given_up(place: str, outcomes: Mapping[str, Outcome]) -> bool:
    """Whether a wait was closed because of what failed beside it."""
    return place.endswith("/?") and place in outcomes and outcomes[place].status == "cancelled"


def _spent(path: str, tree: _Tree) -> list[str]:
    """What belongs to a container and is not true any more once it goes on: how a race ended, troubles, fallbacks."""
    return [mark for mark in tree.marks(path) if not mark.endswith("/~start")]


def _turns(path: str, outcomes: Mapping[str, Outcome], tree: _Tree) -> list[str]:
    """What an agent step goes on from: turns and calls that ended, but for a last turn that none of its calls followed.

    That one asked for more than the step may do, and is taken again.
    """
    ended = [mark for mark in tree.marks(path) if "/$" in mark and mark in outcomes]
    last = max((int(mark.rpartition("$t")[2]) for mark in ended if "." not in mark.rpartition("/")[2]), default=0)
    if any(mark.startswith(f"{paths.turn(path, last)}.") for mark in tree.marks(path)):
        return ended
    return [mark for mark in ended if mark != paths.turn(path, last)]


def finished(fold: Fold, top: str) -> list[str]:
    """Places in a container that another round of it need not do again, and what was decided when it began."""
    tree = _Tree(fold.outcomes)
    found = [paths.start(top)] if paths.start(top) in fold.outcomes else []
    waiting = tree.places(top)
    while waiting:
        path = waiting.pop()
        left = Return()
        inside = _left(path, fold.outcomes, tree, left)
        if path in fold.outcomes and not inside and path not in left.drop:
            found.append(path)
        for one in inside:
            found += [paths.start(one)] if paths.start(one) in fold.outcomes else []
            found += _turns(one, fold.outcomes, tree)
        waiting += [below for one in inside for below in tree.places(one)]
    return found


def taken_over(
    entries: Sequence[Entry], rounds: Sequence[tuple[str, str]], fetch: Callable[[str], bytes], *, only_doubts: bool
) -> list[Draft]:
    """What the next rounds begin with: what of those before was finished, or only the calls that are in doubt.

    `rounds` are pairs of paths: of the round that is left, and of the next. Rounds inside begin anew. What undoes a
    step stays with the round that it was done in. A call that is in doubt stays so: its intent is taken over, and not
    made again before somebody has settled it.
    """
    newest = {entry.path: entry for entry in entries}
    fold = Fold(entries, fetch)
    drafts = []
    for old, new in rounds:
        intents = dict(_in_doubt(fold, old))
        begun = [place for path in intents if "/$" in path for place in _conversation(path.partition("/$")[0], fold)]
        taken = dict.fromkeys([*begun, *intents] if only_doubts else [*finished(fold, old), *begun, *intents])
        for path in sorted(taken, key=lambda path: newest[path].order):
            below = "/".join(segment.partition("#")[0] for segment in intents.get(path, path)[len(old) :].split("/"))
            drafts.append(_copied(newest[path], f"{new}{below}", fetch, first=path in intents))
    return drafts


def _copied(entry: Entry, path: str, fetch: Callable[[str], bytes], *, first: bool) -> Draft:
    """An entry for another round; `first` keeps the place that it was taken from first, whose key the call had."""
    body = read_body(entry)
    before, here = body.meta or {}, {"taken_from": entry.path}
    body.undo, body.undo_ref = NULL, ""
    body.meta = here | before if first else before | here
    draft = Draft(path, entry.kind, body, digest=entry.digest)
    draft.text = fetch(body.value_ref) if body.value_ref else bytes(body.value)
    return draft


def _conversation(path: str, fold: Fold) -> list[str]:
    """What an agent step has come to: without it, a call in doubt would be asked for again as if it were another."""
    found = _turns(path, fold.outcomes, _Tree(fold.outcomes))
    return [paths.start(path), *found] if paths.start(path) in fold.outcomes else found


def _in_doubt(fold: Fold, top: str) -> Iterator[tuple[str, str]]:
    """Intents of calls below a place of which nobody knows whether they took effect, each as that of a first attempt.

    One whose incident was withdrawn is among them, however that round of its container ended.
    """
    for place, intent in fold.outcomes.items():
        path, mark, number = place.removesuffix("/~start").rpartition("/@")
        if not mark or intent.kind != "started" or not number.isdigit() or not paths.is_at_or_below(path, top):
            continue
        answer = fold.outcomes.get(paths.attempt(path, int(number)))
        unknown = answer is None or (answer.error or {}).get("kind") == "in_doubt"
        following = paths.start(paths.attempt(path, int(number) + 1))
        if unknown and path not in fold.outcomes and following not in fold.outcomes:
            yield place, paths.start(paths.attempt(path, 1))


# ── rerun ──


@dataclass(frozen=True, slots=True)
class Site:
    """A step on the way to a place: the block it lies in and where that is."""

    where: str
    block: BlockPlan
    step: StepPlan
    path: str


def sites(path: str, definition: Definition, fold: Fold, workflows: Mapping[str, Definition]) -> list[Site]:
    """The steps on the way to the step at a path, outermost first. Raises InputError where there is none."""
    found: list[Site] = []
    where, block, segments = "", definition.plan.root, paths.bare_segments(path)
    while segments:
        name = segments.pop(0)
        step = next((plan for plan in block.steps if plan.id == name), None)
        if step is None:
            raise _nowhere(path, f"{where}/{name}")
        here = current(fold, f"{where}/{name}")
        found.append(Site(where, block, step, here))
        if segments:
            where, block = _inside(path, here, step, segments, fold, workflows)
    return found


def _inside(
    path: str, here: str, step: StepPlan, segments: list[str], fold: Fold, workflows: Mapping[str, Definition]
) -> tuple[str, BlockPlan]:
    """The block of a container that the way goes on in; takes the branch or iteration off `segments`."""
    begun = fold.outcomes.get(paths.start(here))
    if begun is not None and isinstance(begun.value, dict) and begun.value.get("digest") in workflows:
        return here, workflows[begun.value["digest"]].plan.root
    for block in step.step.blocks():
        plan = step.blocks.get(block.where)
        if plan is None:
            continue
        if block.item is not None and segments[0].isdigit():
            if not _has_iteration(segments[0], here, fold, begun):
                raise _nowhere(path, f"{here}/{segments[0]}")
            return f"{here}/{segments.pop(0)}", plan
        if block.segment and block.segment == segments[0]:
            return f"{here}/{segments.pop(0)}", plan
        if not block.segment and block.item is None and any(inner.id == segments[0] for inner in plan.steps):
            _refuse_not_taken(here, block.name, begun)
            return here, plan
    raise _nowhere(path, f"{here}/{segments[0]}")


def _has_iteration(index: str, here: str, fold: Fold, begun: Outcome | None) -> bool:
    """Whether a loop has an iteration; one that has not begun may come to any."""
    if begun is None:
        return True
    if isinstance(begun.value, dict) and "over" in begun.value:
        return index == str(int(index)) and int(index) < len(begun.value["over"])
    return any(place == f"{here}/{index}" or place.startswith(f"{here}/{index}/") for place in fold.outcomes)


def _refuse_not_taken(here: str, name: str, begun: Outcome | None) -> None:
    """Raises NotFound for a branch that a condition did not take: another cannot be taken in the same round."""
    taken = begun.value.get("branch") if begun is not None and isinstance(begun.value, dict) else None
    if taken is not None and taken != name:
        raise NotFound(f"{here} took the branch {taken!r}, so there is nothing in {name!r} to do again")


def _nowhere(path: str, missing: str) -> InputError:
    hint = "give the path of a step as `runs show` prints it"
    return InputError([Problem("error", "path", f"there is no step at {missing}", hint, path=path)])


def from_path(way: list[Site], fold: Fold) -> Return:
    """What a rerun from the last step of a way forgets: it, all that comes after it, and all around it that settled."""
    found = Return(reopen=[""])
    tree = _Tree(fold.outcomes)
    for number, site in enumerate(reversed(way)):
        after = site.block.downstream(site.step.id) or (site.step,)
        fresh = [plan for plan in after if number == 0 or plan.id != site.step.id]
        found.stale += [f"{site.where}/{plan.id}" for plan in fresh]
        if number:
            found.reopen.append(site.path)
            found.drop += _spent(site.path, tree)
        parts = site.where.removeprefix(way[-number - 2].path) if number + 1 < len(way) else ""
        if parts:  # the branch or iteration that the block is
            found.reopen.append(site.where)
            found.drop += _later(way[-number - 2], site.where, tree)
    if paths.AFTER_FAILURE in {place.rpartition("/")[2] for place in tree.places("")}:
        found.drop.append(f"/{paths.AFTER_FAILURE}")
    return found


def _later(loop: Site, iteration: str, tree: _Tree) -> list[str]:
    """Iterations that follow from the one that is done again: those of `until`, and of a loop that looks back."""
    done = _index(iteration)
    if done is None or not (getattr(loop.step.step, "until", None) is not None or _looks_back(loop.step)):
        return []
    return [path for path in tree.places(loop.path) if (index := _index(path)) is not None and index > done]


def _index(path: str) -> int | None:
    last = path.rpartition("/")[2]
    return int(last) if last.isdigit() else None


def _looks_back(loop: StepPlan) -> bool:
    """Whether anything in a loop refers to the output of the iteration before."""
    texts = [text for step in walk([loop.step]) for text in step.texts()]
    return any(str(ref).startswith("loop.previous") for text in texts for ref in refs_of(text.value))


def joined(rerun: Return, redrive: Return, fold: Fold) -> Return:
    """Both together: what the rerun covers already is left out of the redrive."""

    def apart(given: Iterable[str]) -> list[str]:
        return [path for path in given if not rerun.covers(path, fold)]

    return Return(rerun.stale, [*rerun.reopen, *apart(redrive.reopen)], [*rerun.drop, *apart(redrive.drop)])
