"""Names of people: which are allowed, and when two of them are one.

The law of the file: two names are one if their keys are equal; a key is a name's compatible form (NFKC) in folded case,
so that nobody enters the directory under a name that reads like another's.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from stepwell.errors import InputError, Problem
from stepwell.ports import Person

LONGEST = 100
_ROLE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_EMAIL = re.compile(r"[^\s@<>\"(),:;\\\[\]]{1,64}@[^\s@<>\"(),:;\\\[\]_]{1,190}")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that show nothing or steer what is shown."""
Place: TypeAlias = tuple[str, int, int]
"""File, line and column of what was read; zeros and "" where there is none."""
NOWHERE: Place = ("", 0, 0)
RESERVED = ("local operator",)


def key_of(name: str) -> str:
    """What two spellings of one name share."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def wrong_with(text: str, what: str = "a name") -> str:
    """Why a text cannot stand for a person or department; "" if it can."""
    if not text.strip():
        return f"{what} is not empty"
    if len(text) > LONGEST:
        return f"{what} has at most {LONGEST} characters, this has {len(text)}"
    for character in text:
        if unicodedata.category(character) in _UNSEEN or (character.isspace() and character != " "):
            return f"{what} has no control, direction or invisible characters, this has U+{ord(character):04X}"
    if text != text.strip() or "  " in text:
        return f"{what} has no spaces at its ends and no two in a row"
    return f"{what} does not begin with a dash" if text.startswith("-") else ""


def problems_of(person: Person, where: Place = NOWHERE) -> list[Problem]:
    """Everything that keeps a person out of the directory, but for who is there already."""
    said = [wrong_with(person.name)]
    if not said[0] and key_of(person.name) in RESERVED:
        said.append(f"the name {person.name!r} is taken by Stepwell itself")
    if person.display:
        said.append(wrong_with(person.display, "a displayed name"))
    if person.email and (not _EMAIL.fullmatch(person.email) or wrong_with(person.email)):
        said.append(f"{_shown(person.email)} is not an e-mail address")
    said += [
        f"{_shown(role)} is no role: write a word such as care-manager" for role in person.roles if not _role(role)
    ]
    said += [wrong_with(department, "a department") for department in person.departments]
    return [_problem(text, where) for text in said if text]


def settled(
    known: Iterable[Person], new: Sequence[Person], *, replaces: bool, where: Sequence[Place] = ()
) -> list[Person]:
    """The people to be stored, each role and department once. Raises InputError with everything that is wrong.

    Without `replaces` nobody may be there already; with it, one of the very same name is taken the place of. `where`
    says of each where it was read.
    """
    problems: list[Problem] = []
    owners = {key: (person, "the directory") for person in known for key in keys_of(person)}
    before = {person.name: person for person, _ in owners.values()}
    taken: list[Person] = []
    for number, person in enumerate(new):
        place = where[number] if number < len(where) else NOWHERE
        found = problems_of(person, place)
        there = [owners[key] for key in keys_of(person) if key in owners]
        found += _clashes(person, there, place, replaces=replaces)
        problems += found
        if not found:
            for key in keys_of(before[person.name]) if person.name in before else ():
                del owners[key]
            owners |= dict.fromkeys(keys_of(person), (person, "the same list"))
            taken.append(_tidy(person))
    if problems:
        raise InputError(problems)
    return taken


def keys_of(person: Person) -> list[str]:
    """Every key by which a person is found."""
    return list(dict.fromkeys(key for key in (key_of(person.name), key_of(person.email)) if key))


def _clashes(person: Person, there: Sequence[tuple[Person, str]], where: Place, *, replaces: bool) -> list[Problem]:
    for owner, place in there:
        same = owner.name == person.name
        if same and replaces and place == "the directory":
            continue
        if same:
            hint = "replace them with --replace" if place == "the directory" else "leave one of them out"
            return [_problem(f"{person.name} is in {place} already", where, hint)]
        said = f"{_shown(person.name)} cannot be told from {_shown(owner.name)}, who is in {place} already"
        return [_problem(said, where, "their names and e-mail addresses must differ in more than case or form")]
    return []


def _tidy(person: Person) -> Person:
    roles, departments = tuple(sorted(set(person.roles))), tuple(dict.fromkeys(person.departments))
    return replace(person, roles=roles, departments=departments)


def _role(text: str) -> bool:
    return _ROLE.fullmatch(text) is not None


def _shown(text: str) -> str:
    return ascii(text) if wrong_with(text) else repr(text)


def _problem(message: str, where: Place, hint: str = "") -> Problem:
    return Problem("error", "person", message, hint, *where)
