"""Random expressions over random contexts must agree with Google's CEL (cel-expr-python) in the shared subset.

Intended differences, and how each is excluded:

- `&&`, `||`, `exists` and `all` do not swallow errors. A value of ours must be CEL's value; an error of ours must be an
  error of CEL's once these operators are spelled so that CEL cannot swallow either (`a ? (b ? true : false) : false`).
- int and float are one type. One profile writes every number as a double for CEL; the other uses integers alone.
- `/` is division, not integer division: only in the double profile, by constants (CEL's doubles divide by zero).
- Integers do not end at 64 bits: CEL's message "integer overflow" is not compared.
- `%` of negative operands keeps the sign of the divisor: only non-negative operands are generated.
- `has(a.b.c)` is false when `a.b` is missing, an error in CEL: only fields of objects that exist are asked for.
- Negative indices count from the end, `x.0` is an index, `in` finds substrings, booleans have no order, `not`, `??`,
  `?.` and filters do not exist in CEL: not generated.
- `string()` writes any value as JSON, `join()` takes numbers, `contains()` looks into lists and objects: CEL's "No matching
  overloads" for exactly these three is not compared. `int()` takes no boolean: not generated.
- Object keys are strings: no other keys are generated. Iterating an object keeps its order: orders are not compared.

CEL runs in a child process (this module as a program): cel-expr-python 0.1.3 releases None once too often for each null
it returns, which ends the interpreter sooner or later.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import pytest
from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

from stepwell.expressions import ExpressionError, compile_expression

if TYPE_CHECKING:
    from collections.abc import Callable

Domain = Literal["double", "int"]
Kind = Literal["num", "str", "bool", "nums", "strs", "rows", "obj", "any"]
ROOTS_USED = ("workflow_input", "step", "loop_item")
TERNARY, OR, AND, COMPARE, ADD, MUL, UNARY, POSTFIX = range(8)
ENV = cel.NewEnv(variables=dict.fromkeys(ROOTS_USED, cel.Type.DYN), extensions=[ext_strings.ExtStrings()])
EXAMPLES = 2000
UNMATCHED = "No matching overloads found : "
INTENDED = (
    "integer overflow",
    *(
        UNMATCHED + call
        for call in ("string(map)", "string(list)", "string(null_type)", "join", "(list).contains(", "(map).contains(")
    ),
)
LETTERS = ["a", "b", "A", " ", "é", "工", "\U0001f600", "\uffff", "-", ",", '"', "'", "\\", "\n", "1"]


@dataclass(frozen=True, slots=True)
class Code:
    """One expression in three spellings, with the level of its outermost operator."""

    ours: str
    plain: str
    strict: str
    level: int = POSTFIX

    def at(self, level: int) -> Code:
        if self.level >= level:
            return self
        return Code(f"({self.ours})", f"({self.plain})", f"({self.strict})")


def same(text: str, level: int = POSTFIX) -> Code:
    return Code(text, text, text, level)


def fill(
    shape: str, *parts: Code, level: int = POSTFIX, cel_shape: str | None = None, strict: str | None = None
) -> Code:
    cel_shape = cel_shape or shape
    plain = cel_shape.format(*(part.plain for part in parts))
    return Code(
        shape.format(*(part.ours for part in parts)),
        plain,
        (strict or cel_shape).format(*(part.strict for part in parts)),
        level,
    )


def quoted(text: str, style: int) -> str:
    """A literal that means `text` in both languages: escaped in either quote, by number, or raw."""
    if style == 0 and not set(text) & {"\\", '"', "\n"}:
        return f'r"{text}"'
    if style == 1:
        return "'" + "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}" for c in text) + "'"
    quote = '"' if style == 2 else "'"
    return quote + text.replace("\\", "\\\\").replace("\n", "\\n").replace(quote, "\\" + quote) + quote


class Writer:
    """Draws expressions of a wanted kind; now and then of another, so that errors are compared too."""

    def __init__(self, chance: Random, domain: Domain) -> None:
        self.chance, self.domain, self.bound = chance, domain, 0
        self.variables: list[tuple[str, Kind]] = []

    def pick(self, *options: Any) -> Any:
        return self.chance.choice(options)

    def write(self, kind: Kind, depth: int) -> Code:
        if self.chance.random() < 0.015:
            kind = self.pick("num", "str", "bool", "nums", "strs", "obj", "any")
        if kind == "any":
            kind = self.pick("num", "str", "bool", "nums", "strs", "obj", "null", "mixed")
        if depth <= 0 or self.chance.random() < 0.1:
            return self.leaf(kind)
        if self.chance.random() < 0.08:
            parts = self.write("bool", depth - 1).at(OR), self.write(kind, depth - 1), self.write(kind, depth - 1)
            middle = parts[1].at(OR)
            return fill("{} ? {} : {}", parts[0], middle, parts[2], level=TERNARY)
        grow = getattr(self, f"write_{kind}", None)
        return grow(depth - 1) if grow else self.leaf(kind)

    def leaf(self, kind: str) -> Code:
        mine = [name for name, its in self.variables if its == kind]
        rows = [name for name, its in self.variables if its == "obj"]
        if mine and self.pick(True, True, False):
            return same(self.pick(*mine))
        base = (
            self.pick(*rows)
            if rows and self.pick(True, False)
            else self.pick("workflow_input", "workflow_input.o", "step.one", "loop_item")
        )
        fields: dict[str, tuple[str, ...]] = {
            "num": ("n", "m"),
            "str": ("s", "t"),
            "bool": ("flag",),
            "null": ("none",),
        }
        fields |= {"nums": ("nums",), "strs": ("strs",), "mixed": ("mixed",), "rows": ("rows",), "obj": ("p",)}
        field = self.pick(*fields[kind]) if self.chance.random() < 0.98 else "zz"
        literal = self.literal(kind)
        if literal is not None and self.pick(True, False):
            return literal
        return same(self.pick(f"{base}.{field}", f'{base}["{field}"]', f"{base}.{field}"))

    def literal(self, kind: str) -> Code | None:
        match kind:
            case "num":
                number = self.chance.randint(0, 20)
                if self.domain == "int":
                    return same(str(number))
                return self.pick(
                    Code(str(number), f"{number}.0", f"{number}.0"), same(f"{number / 4}"), same(f"{number}e1")
                )
            case "str":
                return same(quoted(some_text(self.chance), self.chance.randrange(4)))
            case "bool":
                return same(self.pick("true", "false"))
            case "null":
                return same("null")
            case "nums" | "strs" | "mixed":
                member = {"nums": "num", "strs": "str", "mixed": "null"}[kind]
                return fill("[{}, {}]", self.leaf(member), self.leaf(member)) if self.pick(True, False) else same("[]")
            case _:
                return None

    def write_num(self, depth: int) -> Code:
        shape = self.pick("add", "sub", "mul", "neg", "div", "mod", "size", "index", "int")
        if shape in ("add", "sub"):
            return fill(
                "{} + {}" if shape == "add" else "{} - {}",
                self.write("num", depth).at(ADD),
                self.write("num", depth).at(MUL),
                level=ADD,
            )
        if shape == "mul":
            return fill("{} * {}", self.write("num", depth).at(MUL), self.write("num", depth).at(UNARY), level=MUL)
        if shape == "neg":
            return fill("-{}", self.write("num", depth).at(POSTFIX), level=UNARY)
        if shape == "div" and self.domain == "double":
            number = self.pick(1, 2, 3, 7, 10)
            return fill(
                "{} / {}", self.write("num", depth).at(MUL), Code(str(number), f"{number}.0", f"{number}.0"), level=MUL
            )
        if shape == "mod" and self.domain == "int":
            return fill(
                "{} % {}",
                fill("size({})", self.write(self.pick("str", "nums"), depth)),
                same(self.pick("1", "2", "3", "7")),
                level=MUL,
            )
        if shape == "index":
            return fill("{}[{}]", self.write("nums", depth).at(POSTFIX), same(self.pick("0", "0", "1", "3")))
        if shape == "int" and self.domain == "double":
            return fill("int({})", self.leaf("num"), cel_shape="double(int({}))")
        call = self.pick("size({})", "{}.size()")
        inner = self.write(self.pick("str", "nums", "strs", "obj"), depth).at(POSTFIX)
        return fill(call, inner, cel_shape=call if self.domain == "int" else f"double({call})")

    def write_str(self, depth: int) -> Code:
        shape = self.pick("add", "add", "index", "join", "replace", "trim", "string")
        if shape == "add":
            return fill("{} + {}", self.write("str", depth).at(ADD), self.write("str", depth).at(MUL), level=ADD)
        if shape == "index":
            return fill("{}[{}]", self.write("strs", depth).at(POSTFIX), same(self.pick("0", "1", "2")))
        if shape == "join":
            return fill("{}.join({})", self.write("strs", depth).at(POSTFIX), self.write("str", depth))
        if shape == "replace":
            return fill(
                "{}.replace({}, {})",
                self.write("str", depth).at(POSTFIX),
                same(self.pick('"a"', "'é'", '"ab"')),
                self.write("str", depth),
            )
        if shape == "string":
            return fill("string({})", self.leaf("num" if self.domain == "int" else "bool"))
        return fill("{}.trim()", self.write("str", depth).at(POSTFIX))

    def write_bool(self, depth: int) -> Code:
        shape = self.pick(
            "and", "or", "not", "compare", "compare", "equal", "in", "key", "text", "matches", "macro", "macro", "has"
        )
        if shape in ("and", "or"):
            left, right = self.write("bool", depth), self.write("bool", depth)
            return self.junction(shape, left, right)
        if shape == "not":
            return fill("!{}", self.write("bool", depth).at(POSTFIX), level=UNARY)
        if shape == "compare":
            kind = self.pick("num", "num", "str")
            return fill(
                "{} " + self.pick("<", "<=", ">", ">=") + " {}",
                self.write(kind, depth).at(ADD),
                self.write(kind, depth).at(ADD),
                level=COMPARE,
            )
        if shape == "equal":
            kind = self.pick("any", "num", "str", "nums", "obj")
            other = self.pick(kind, kind, "any")
            return fill(
                "{} " + self.pick("==", "!=") + " {}",
                self.write(kind, depth).at(ADD),
                self.write(other, depth).at(ADD),
                level=COMPARE,
            )
        if shape == "in":
            kind, many = self.pick(("num", "nums"), ("str", "strs"), ("any", "mixed"), ("any", "nums"))
            return fill("{} in {}", self.write(kind, depth).at(ADD), self.leaf(many), level=COMPARE)
        if shape == "key":
            return fill(
                "{} in {}",
                same(self.pick('"n"', '"zz"', '"flag"')),
                same(self.pick("workflow_input", "step.one")),
                level=COMPARE,
            )
        if shape == "text":
            call = self.pick("contains", "startsWith", "endsWith")
            return fill("{}." + call + "({})", self.write("str", depth).at(POSTFIX), self.write("str", depth))
        if shape == "matches":
            return fill(
                "matches({}, {})",
                self.write("str", depth),
                same(self.pick('"^a"', "'a.*é'", r'r"\\?[a-b]+$"', '"(?i)A|工"', "'^.?$'")),
            )
        if shape == "has":
            rows = [name for name, its in self.variables if its == "obj"]
            return same(
                f"has({self.pick('workflow_input', 'step.one', 'workflow_input.o', *rows)}.{self.pick('n', 's', 'none', 'zz', 'o')})"
            )
        return self.macro(self.pick("exists", "all", "exists_one"), self.pick("num", "str", "obj"), "bool", depth)

    def junction(self, shape: str, left: Code, right: Code) -> Code:
        level = AND if shape == "and" else OR
        left, right = left.at(level), right.at(level + 1)
        word = self.pick("&&", "and") if shape == "and" else self.pick("||", "or")
        strict = "({} ? (({}) ? true : false) : false)" if shape == "and" else "({} ? true : (({}) ? true : false))"
        drawn = fill(
            "{} " + word + " {}", left, right, level=level, cel_shape="{} && {}" if shape == "and" else "{} || {}"
        )
        return Code(drawn.ours, drawn.plain, strict.format(f"({left.strict})", right.strict), level)

    def macro(self, name: str, member: Kind, body: Kind, depth: int) -> Code:
        source = self.write({"num": "nums", "str": "strs", "obj": "rows"}[member], depth).at(POSTFIX)
        variable = f"v{self.bound}"
        self.bound += 1
        self.variables.append((variable, member))
        inner = self.write(body, depth)
        self.variables.pop()
        strict = f"{{}}.map({variable}, ({{}}) ? true : false).{name}(yes, yes)" if name in ("exists", "all") else None
        return fill(f"{{}}.{name}({variable}, {{}})", source, inner, strict=strict)

    def write_nums(self, depth: int) -> Code:
        return self.many("num", "nums", depth)

    def write_strs(self, depth: int) -> Code:
        if self.pick(*[False] * 5, True):
            return fill("{}.split({})", self.write("str", depth).at(POSTFIX), same(self.pick('","', "'a'", '"é"')))
        return self.many("str", "strs", depth)

    def write_rows(self, depth: int) -> Code:
        return self.macro("filter", "obj", "bool", depth)

    def many(self, member: Kind, kind: Kind, depth: int) -> Code:
        shape = self.pick("literal", "map", "map", "filter")
        if shape == "literal":
            return fill("[{}, {}, {}]", *(self.write(member, depth) for _ in range(3)))
        if shape == "filter":
            return self.macro("filter", member, "bool", depth)
        return self.macro("map", self.pick("num", "str", "obj"), member, depth)

    def write_obj(self, depth: int) -> Code:
        return fill(
            '{{"n": {}, "s": {}, "zz": {}}}',
            self.write("num", depth),
            self.write("str", depth),
            self.write("any", depth),
        )


def some_text(chance: Random) -> str:
    return "".join(chance.choices(LETTERS, k=chance.randrange(6)))


def some_list(chance: Random, *members: Callable[[], Any]) -> list[Any]:
    return [chance.choice(members)() for _ in range(chance.randrange(4))]


def some_context(chance: Random, domain: Domain) -> dict[str, Any]:
    def number() -> float:
        whole = chance.randint(-20, 20)
        return whole if domain == "int" or chance.random() < 0.5 else whole / 4

    def words() -> str:
        return some_text(chance)

    def row() -> dict[str, Any]:
        fields = {"n": number(), "m": number(), "s": words(), "t": words(), "flag": chance.random() < 0.5, "none": None}
        return {key: value for key, value in fields.items() if key == "n" or chance.random() < 0.97}

    def document() -> dict[str, Any]:
        mixed = some_list(chance, number, words, lambda: chance.random() < 0.5, lambda: None)
        lists = {
            "nums": some_list(chance, number),
            "strs": some_list(chance, words),
            "mixed": mixed,
            "rows": some_list(chance, row),
        }
        return {**row(), **lists, "p": {"n": number(), "s": words()}}

    return {"workflow_input": {**document(), "o": document()}, "step": {"one": document()}, "loop_item": document()}


def some_example(chance: Random, domain: Domain) -> tuple[Code, dict[str, Any]]:
    writer = Writer(chance, domain)
    kind = chance.choice(["bool", "bool", "bool", "num", "str", "nums", "strs", "obj", "rows"])
    return writer.write(kind, chance.choice([1, 2, 3, 3, 4, 4])), some_context(chance, domain)


def doubles(value: Any) -> Any:
    """The value with every integer written as a double, booleans left alone."""
    match value:
        case bool() | None | str() | float():
            return value
        case int():
            return float(value)
        case list():
            return [doubles(item) for item in value]
        case _:
            return {key: doubles(item) for key, item in value.items()}


def alike(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(alike, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(alike(left[key], right[key]) for key in left)
    return bool(left == right)


def by_ours(source: str, context: dict[str, Any]) -> tuple[str, Any]:
    try:
        return "value", compile_expression(source).evaluate(context)
    except ExpressionError as error:
        return "error", error.code


def by_cel(source: str, context: dict[str, Any]) -> tuple[str, Any]:
    value = ENV.compile(source, disable_check=True).eval(data=context)
    return ("error" if value.type().name() == "ERROR" else "value"), value.plain_value()


def disagreement(code: Code, context: dict[str, Any], domain: Domain, seen: Counter[str]) -> str | None:
    outcome, ours = by_ours(code.ours, context)
    theirs = doubles(context) if domain == "double" else context
    seen[outcome] += 1
    if outcome == "value":
        kind, expected = by_cel(code.plain, theirs)
        if kind == "error":
            return None if any(words in expected for words in INTENDED) else f"{code.ours} is {ours!r}, CEL: {expected}"
        agreed = alike(doubles(ours) if domain == "double" else ours, expected)
        return None if agreed else f"{code.ours} is {ours!r}, CEL: {expected!r}"
    kind, expected = by_cel(code.strict, theirs)
    agreed = kind == "error" and ours in ("type", "missing", "eval")
    return None if agreed else f"{code.ours} is an error ({ours}), CEL: {expected!r}"


def compare_many(domain: Domain) -> dict[str, Any]:
    seen: Counter[str] = Counter()
    written: set[str] = set()
    wrong: list[str] = []
    for seed in range(EXAMPLES):
        code, context = some_example(Random(f"{domain} {seed}"), domain)
        written.add(code.ours)
        problem = disagreement(code, context, domain, seen)
        if problem:
            wrong.append(f"{problem} over {context}")
    return {"wrong": sorted(wrong, key=len), "written": len(written), **seen}


def swallowed() -> list[str]:
    """Spellings that are not strict: where CEL gives a value although a part is an error."""
    context: dict[str, Any] = {"workflow_input": {"nums": [1, 2]}, "step": {}, "loop_item": {}}
    writer = Writer(Random(0), "int")
    missing, yes = same("workflow_input.zz"), same("true")
    either = writer.junction("or", missing, yes)
    some = fill(
        "workflow_input.nums.exists(v, {})",
        either,
        strict="workflow_input.nums.map(v, ({}) ? true : false).exists(yes, yes)",
    )
    return [
        code.plain
        for code in (either, some)
        if by_cel(code.plain, context) != ("value", True)
        or by_cel(code.strict, context)[0] != "error"
        or by_ours(code.ours, context)[0] != "error"
    ]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    child = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr[-3000:]
    return json.loads(child.stdout)


@pytest.mark.parametrize("domain", ["double", "int"])
def test_random_expressions_agree_with_googles_cel(report, domain):
    assert report[domain]["wrong"][:5] == []


@pytest.mark.parametrize("domain", ["double", "int"])
def test_the_random_expressions_are_many_different_and_mostly_right(report, domain):
    assert report[domain]["written"] > EXAMPLES * 0.6
    assert report[domain]["value"] > EXAMPLES * 0.5
    assert report[domain]["error"] > EXAMPLES * 0.05


def test_the_strict_spelling_leaves_nothing_for_cel_to_swallow(report):
    assert report["swallowed"] == []


if __name__ == "__main__":
    spare = [None] * 1_000_000  # what cel-expr-python releases too often
    sys.stdout.write(
        json.dumps({"double": compare_many("double"), "int": compare_many("int"), "swallowed": swallowed()})
    )
    sys.stdout.flush()
    os._exit(0)
