"""The vault: the secrets that a project's workflows may use, and their values where effects are performed.

The law of the file: a value leaves it in two ways only, into the arguments of a call that is about to be made, and into
the redactor that keeps it out of everything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from stepwell.adapters.redaction import Redactor
from stepwell.adapters.spellings import SHORTEST
from stepwell.definition.suggest import did_you_mean
from stepwell.definition.visibility import refs_of
from stepwell.engine.secret import Secret
from stepwell.errors import InputError, Problem, StepFailed

if TYPE_CHECKING:
    from stepwell.definition.load import LoadedWorkflow
    from stepwell.definition.step import Location, Step
    from stepwell.interpreter.effect import Effect

Json: TypeAlias = Any


class Vault:
    """Secrets by name. `others` are those of the settings that no workflow may name, such as keys of models."""

    def __init__(self, secrets: Mapping[str, Secret] | None = None, others: Mapping[str, Secret] | None = None) -> None:
        self._secrets = dict(secrets or {})
        self._others = dict(others or {})

    @cached_property
    def redactor(self) -> Redactor:
        """Keeps the values out of whatever passes it."""
        known = {name: _hidden(secret.reveal()) for name, secret in self._others.items()}
        return Redactor(known | {name: secret.reveal() for name, secret in self._secrets.items()})

    def reveal(self, effect: Effect) -> Effect:
        """The effect with the values of its secrets in their places. Raises StepFailed (auth_error) if one is missing.

        What this gives is performed and never recorded.
        """
        return effect.revealed(self._value)

    def _value(self, name: str) -> str:
        for message, hint in self.problems(name):
            raise StepFailed("auth_error", message, detail={"sent": False, "hint": hint})
        return self._secrets[name].reveal()

    def problems(self, name: str) -> Iterator[tuple[str, str]]:
        """Why a secret cannot be used, and how to mend it."""
        secret = self._secrets.get(name)
        if secret is None:
            close = did_you_mean(name, sorted(self._secrets)) if self._secrets else ""
            yield (
                f"there is no secret {name!r}",
                close or f'write {name} = "env:{name}" under [secrets] in stepwell.toml',
            )
        elif secret.missing:
            yield (
                f"the secret {name!r} is not there: {secret.missing}",
                f"set it, or name another place: stepwell.toml says {name} = {secret.source!r} under [secrets]",
            )
        elif len(secret.reveal()) < SHORTEST:
            said = f"the secret {name!r} has fewer than {SHORTEST} characters"
            yield said, "such a text cannot be kept out of what is recorded; use a longer one"

    def stray(self, value: Json, what: str, file: str) -> Iterator[Problem]:
        """A problem for every secret whose value stands where it would be recorded: in a definition, in an input."""
        for name in self.redactor.named(value):
            hint = f"write {{{{secret.{name}}}}} where it is needed" if name in self._secrets else "take it out"
            yield Problem("error", "secret", f"the value of the secret {name!r} stands in {what}", hint, file)

    def refuse(self, value: Json, what: str) -> None:
        """Raises InputError where the value of a secret stands in what a person says, which is recorded as said."""
        hint = "leave an argument as it is shown and it keeps its secret; nothing that is recorded may hold the value"
        if names := self.redactor.named(value):
            said = (f"the value of the secret {name!r} stands in {what}" for name in names)
            raise InputError([Problem("error", "secret", text, hint) for text in said])

    def missing(self, loaded: LoadedWorkflow, places: Iterator[tuple[Location, Step]]) -> Iterator[Problem]:
        """A problem, with its place, for every secret that the steps of a workflow name and that cannot be used."""
        for where, step in places:
            for text in step.texts():
                for name in dict.fromkeys(str(ref.segs[0]) for ref in refs_of(text.value) if ref.root == "secret"):
                    for message, hint in self.problems(name):
                        place = (*where, *text.where)
                        line, column = loaded.positions.place(place)
                        pointer = "".join(f"/{part}" for part in place)
                        said = f"step {step.id}: {message}"
                        yield Problem("error", "secret", said, hint, loaded.file, line, column, pointer)


def _hidden(value: str) -> str:
    """What of a setting is secret: of an address the password alone."""
    if "://" not in value:
        return value
    password = value.partition("://")[2].partition("/")[0].rpartition("@")[0].partition(":")[2]
    return unquote(password)


class ScriptedVault(Vault):
    """For runs whose effects are scripted: nothing is revealed, nothing is missing."""

    def reveal(self, effect: Effect) -> Effect:
        return effect

    def problems(self, name: str) -> Iterator[tuple[str, str]]:
        del name
        return iter(())


NO_VAULT = Vault()
SCRIPTED = ScriptedVault()
