"""
The text of a definition in canonical words (`stepwell fmt`).

The law of the file: what is given back loads to the same data as before; where that cannot be had, it is an error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stepwell.definition import json_text, spellings, yaml_text
from stepwell.definition.load import from_data, load_file, load_recipe_text, load_text
from stepwell.definition.positions import Node, plain
from stepwell.definition.report import Report, TooWrong
from stepwell.definition.rewrite import rewritten
from stepwell.errors import DefinitionError, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from stepwell.definition.positions import Json
    from stepwell.definition.step import Kinds
    from stepwell.definition.workflow import Workflow

_ELSEWHERE = frozenset({"not_performed"})
"""Errors that say nothing against the text itself."""
_BOM = "\ufeff"


def canonical_text(text: str, *, file: str = "", kinds: Kinds) -> str:
    """
    A workflow or recipe in canonical words, in the layout of its author.

    Raises DefinitionError with all problems of a wrong text, and where its layout cannot be kept.
    """
    bare = text.removeprefix(_BOM)
    is_json = file.endswith(".json") or (bare.lstrip()[:1] == "{" and not file.endswith((".yaml", ".yml")))
    is_recipe = _is_recipe(bare, is_json=is_json)
    _check(bare, file, is_recipe=is_recipe, kinds=kinds)
    canonical = _canonical(bare, is_json=is_json, is_recipe=is_recipe, kinds=kinds)
    meaning = _meaning(canonical)
    for expand in (False, True):
        try:
            found = rewritten(bare, canonical, is_json=is_json, expand=expand)
            same = _meaning(_canonical(found, is_json=is_json, is_recipe=is_recipe, kinds=kinds)) == meaning
        except (ValueError, DefinitionError):
            same = False
        if same:
            return (_BOM if text.startswith(_BOM) else "") + found
    message = "the spellings of this file cannot be rewritten where they stand"
    raise DefinitionError([Problem("error", "layout", message, "write the steps in question by indentation", file)])


def understood(file: Path, *, kinds: Kinds) -> Workflow:
    """A workflow from a file for who only reads it, also where this version would refuse to perform it.

    Raises DefinitionError.
    """
    try:
        return load_file(file, kinds=kinds).workflow
    except DefinitionError as error:
        if _is_wrong(error):
            raise
    text = file.read_text("utf-8-sig")
    is_json = file.suffix == ".json" or (text.lstrip()[:1] == "{" and file.suffix not in {".yaml", ".yml"})
    return from_data(plain(_canonical(text, is_json=is_json, is_recipe=False, kinds=kinds)), kinds)


def _is_wrong(error: DefinitionError) -> bool:
    return any(problem.severity == "error" and problem.code not in _ELSEWHERE for problem in error.problems)


def _check(text: str, file: str, *, is_recipe: bool, kinds: Kinds) -> None:
    try:
        if is_recipe:
            load_recipe_text(text, file=file)
        else:
            load_text(text, file=file, kinds=kinds)
    except DefinitionError as error:
        if _is_wrong(error):
            raise


def _composed(text: str, *, is_json: bool) -> Node:
    """The text as nodes. Raises DefinitionError."""
    report = Report("")
    try:
        root: Node = (json_text if is_json else yaml_text).compose(text, report)
    except TooWrong:
        raise report.error() from None
    if report.has_errors:
        raise report.error()
    return root


def _is_recipe(text: str, *, is_json: bool) -> bool:
    try:
        keys = {spellings.snake(key) for key in _composed(text, is_json=is_json).mapping}
    except DefinitionError:
        return False
    return bool(keys & {"recipe", "recipe_id"}) and not keys & {"workflow", "workflow_id", "steps"}


def _canonical(text: str, *, is_json: bool, is_recipe: bool, kinds: Kinds) -> Node:
    root = _composed(text, is_json=is_json)
    return spellings.canonical_recipe(root) if is_recipe else spellings.canonical(root, kinds, Report(""))


def _meaning(node: Node) -> str:
    data: Json = plain(node)
    return json.dumps(data, sort_keys=True)
