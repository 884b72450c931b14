"""
The language of conditions and of `{{ }}`: CEL's syntax on JSON's data model, pure and bounded.

It imports nothing of the rest of the engine, has no clock and no chance, and raises nothing but `ExpressionError`.
"""

from __future__ import annotations

from .check import CheckEnv, StepShape, check_expression, check_template
from .errors import ExpressionError, ExpressionWarning
from .functions import FUNCTIONS as _FUNCTIONS
from .notes import Note
from .program import Json, Program, compile_expression
from .refs import Ref, Wild
from .template import SecretName, Template, compile_template
from .tree import TemplateTree, compile_tree
from .vocabulary import MACROS, ROOTS

FUNCTIONS: tuple[str, ...] = (*sorted({*_FUNCTIONS, "default", "has"}),)

__all__ = [
    "FUNCTIONS",
    "MACROS",
    "ROOTS",
    "CheckEnv",
    "ExpressionError",
    "ExpressionWarning",
    "Json",
    "Note",
    "Program",
    "Ref",
    "SecretName",
    "StepShape",
    "Template",
    "TemplateTree",
    "Wild",
    "check_expression",
    "check_template",
    "compile_expression",
    "compile_template",
    "compile_tree",
]
