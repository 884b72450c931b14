"""Hostile sources, data and templates, all evaluated in one child process.

The law of the file: whatever the input, nothing but an ExpressionError escapes, within 100 ms of processor time and
60 MB of memory, and what comes back is plain JSON.

Run as a program, the module is that child: it evaluates the corpus and prints one JSON report.
"""

from __future__ import annotations

import datetime as dt
import decimal
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stepwell.expressions import (
    FUNCTIONS,
    CheckEnv,
    ExpressionError,
    StepShape,
    check_expression,
    compile_expression,
    compile_template,
    compile_tree,
)

CPU_MS = 100.0
ATTEMPTS = 4
MEMORY_MB = 60.0
BELT_BYTES = 700 * 1024 * 1024
ALARM_SECONDS = 2.0
CODES = frozenset({"syntax", "step", "order", "scope", "path", "enum", "type", "missing", "eval", "limit"})
MB = 1024 * 1024
ROW = [{"a": 1, "b": "x"}]
S, R = "workflow_input.s", "workflow_input.r"


@dataclass(frozen=True, slots=True)
class Is:
    value: object


@dataclass(frozen=True, slots=True)
class Hostile:
    kind: str  # expression | template | tree | check
    want: str | Is  # "any", "value", "error", one or more error codes joined by "|", or the exact value
    source: Any  # a callable is called in the child: large inputs never exist in the parent
    data: Mapping[str, Any]  # merged into workflow_input; callables are called in the child


def expr(want: str | Is, *sources: Any, **data: Any) -> list[Hostile]:
    return [Hostile("expression", want, source, data) for source in sources]


def text(want: str | Is, *sources: Any, **data: Any) -> list[Hostile]:
    return [Hostile("template", want, source, data) for source in sources]


def tree(want: str | Is, *sources: Any, **data: Any) -> list[Hostile]:
    return [Hostile("tree", want, source, data) for source in sources]


def check(*sources: Any, schema: Any) -> list[Hostile]:
    """A static check against a schema: problems are found or not, but it ends and nothing else comes out."""
    return [Hostile("check", "value", source, {"schema": schema}) for source in sources]


class Endless(Mapping[str, int]):
    """A mapping that never stops giving keys, as a faulty lazy loader would."""

    def __getitem__(self, key: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        number = 0
        while True:
            yield f"k{number}"
            number += 1

    def __len__(self) -> int:
        return sys.maxsize


class Engine:
    secret = "CANARY"

    @property
    def name(self) -> str:
        raise AssertionError("an attribute was read")

    def __getitem__(self, key: object) -> str:
        raise AssertionError("an item was read")


def nested(depth: int, wrap: Callable[[Any], Any]) -> Callable[[], Any]:
    def build() -> Any:
        value: Any = 1
        for _ in range(depth):
            value = wrap(value)
        return value

    return build


def as_list(value: Any) -> Any:
    return [value]


def as_dict(value: Any) -> Any:
    return {"a": value}


def doubled(value: Any) -> Any:
    return [value, value]


def cyclic_list() -> Any:
    value: list[Any] = [1]
    value.append(value)
    return value


def cyclic_dict() -> Any:
    value: dict[str, Any] = {"b": 1}
    value["a"] = value
    return value


deep_list, deep_dict = (
    nested(300_000, as_list),
    nested(300_000, as_dict),
)  # built anew each time: two of them are distinct
dag = nested(200, doubled)
mb = "a" * MB


def ints(count: int) -> Callable[[], list[int]]:
    return lambda: list(range(count))


def big() -> int:
    return 10**99_999


# One family of attacks to a line: formatted, they would be a thousand lines longer.
# fmt: off
def attribute_walks() -> list[Hostile]:
    dunder = "__class__"
    return [
        *expr("missing", f"workflow_input.{dunder}", f'workflow_input["{dunder}"]', f"workflow_input . {dunder}", f"workflow_input.\n{dunder}"),
        *expr("missing", 'workflow_input["__cla" + "ss__"]', 'workflow_input["\\u005f\\u005fclass\\u005f\\u005f"]', f"workflow_input.`{dunder}`"),
        *expr("missing", "workflow_input.get", "workflow_input.keys", "workflow_input.get.__self__", "workflow_input.ｇet"),
        *expr("missing", f"workflow_input.{dunder}.__mro__[1].__subclasses__", "step.x.__init__.__globals__", "steps.x.__dict__"),
        *expr("error", "workflow_input.＿＿class＿＿", "step.__init__", "steps.__class__", f"workflow_input.{dunder}.__mro__[1].__subclasses__()", "workflow_input.items()"),
        *expr("type", f'"".{dunder}', f"[].{dunder}", f"true.{dunder}", '"".join', "[1].append"),
        *expr("error", f"(1).{dunder}", "(1).real", "null.__doc__", f"[1].map(x, x.{dunder})", f"workflow_input.map(k, k.{dunder})"),
        *expr("syntax", "workflow_input['\\x5f\\x5fclass\\x5f\\x5f']", "ｗorkflow_input.a", "ｓteps.__class__", "getattr(workflow_input, 'a')"),
        *expr("syntax", "vars()", "globals()", "locals()", "dir(workflow_input)", '__import__("os")', 'eval("1")', 'exec("1")', 'open("x")', "lambda: 1"),
        *expr("syntax", "size.__globals__", "map.__call__", "__builtins__", "[x for x in workflow_input]", "(x := 1)", "workflow_input.a; 1", "import os"),
        *expr("syntax", 'f"{workflow_input}"', 'b"x"', "workflow_input.a = 1", "def f(): 1", "workflow_input.a if true else 1", "a.b", "*workflow_input"),
        *expr("error", '"{0.__class__}".format(workflow_input)', 'workflow_input.s.format("{0}")', '"%s" % workflow_input.a', '"%(a)s" % workflow_input'),
        *expr("error", '"%999999999d" % 1', '"a" * 1000000000', "[0] * 100000000", "9 ** 9 ** 9", "2 << 99999999", "workflow_input.l.__len__()"),
        *expr(Is(value=False), f"has(workflow_input.{dunder})"),
        *expr(Is(None), f"workflow_input?.{dunder}"),
        *expr(Is(1), f"workflow_input.{dunder} ?? 1"),
        *expr(Is("data"), f"workflow_input.{dunder}", f'workflow_input["{dunder}"]', __class__="data"),
        *expr("error", "workflow_input.o.name", "workflow_input.o.secret", "workflow_input.o[0]", "workflow_input.o()", o=Engine),
        *expr("error", "workflow_input.o", "string(workflow_input.o)", "json(workflow_input.o)", "workflow_input.o + 1", "size(workflow_input.o)", o=Engine),
        *[case for value in (dict, len, os, {1, 2}, b"x", 1j, decimal.Decimal(1), ..., range(9), memoryview(b"x")) for case in foreign(value)],
        *expr("any", "workflow_input.d", "workflow_input.d.year", "string(workflow_input.d)", d=lambda: dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        *text("error", "x{{workflow_input.o}}", "x{{ workflow_input.o | json }}", "{{workflow_input.o}}", o=Engine),
    ]


def foreign(value: object) -> list[Hostile]:
    """A Python object that is not JSON, as data (behind a function, since callables are built)."""
    return [
        *expr("error", "workflow_input.v", "json([workflow_input.v])", "workflow_input.v.__class__", v=lambda: value),
        *text("error", "x{{workflow_input.v}}", "x{{workflow_input.w}}", v=lambda: value, w=lambda: [value]),
    ]


def numbers() -> list[Hostile]:
    nan, inf = float("nan"), float("inf")
    huge = "workflow_input.big"
    return [
        *expr("limit", "*".join(["9" * 90] * 80), f"{huge} * {huge}", f"{huge} + {huge}", f"string({huge})", f"json({huge})", f"[{huge}].join(',')", big=big),
        *expr("any", f"{huge} == {huge}", f"{huge} < 1", f"float({huge})", f"{huge} / 3", f"{huge} % 7", f"1.5 * {huge}", f"-{huge}", f"abs({huge})", big=big),
        *expr("any", f"round({huge})", f"floor({huge})", f"sum([{huge}, {huge}])", f"max([{huge}, 1.5])", f"{huge} - {huge}", f"1 / {huge}", f"[1][{huge}]", big=big),
        *text("limit|type|eval", "x{{workflow_input.big}}", "x{{workflow_input.box}}", big=big, box=lambda: [big()]),
        *expr("error", "1e999999", "-1e999999", "9" * 101, "9" * 8000, "1" + "0" * 7000 + ".0", "1e" + "9" * 90, "1e400"),
        *expr("any", "1e308 * 10", "1e308 * 10 - 1e308 * 10", "5e-324 / 2", "1e308 + 1e308", "0.0 * -1", "10 % 0.1", "1e22 % 7"),
        *expr("eval", "1 / 0", "1.5 / 0.0", "1 % 0", "0 / 0"),
        *expr("error", "int(workflow_input.t)", "float(workflow_input.t)", "int(workflow_input.t) * int(workflow_input.t)", t=lambda: "9" * 100_000),
        *expr("error", 'int("1e999999")', 'int("0x10")', 'int("1_000")', 'int("")', 'int("1 2")', 'float("1_0.5")', 'int("9" + "-")', 'float("")', 'bool("maybe")'),
        *expr("any", 'int("１２")', 'float("nan")', 'float("inf")', 'float("-Infinity")', 'float("1e999999")', 'int(" 12 ")', "int(1e300)", "float(1)", "int('-')"),
        *expr("any", "int(workflow_input.n)", "round(workflow_input.n)", "floor(workflow_input.n)", "ceil(workflow_input.n)", "json(workflow_input.n)", n=nan),
        *expr("any", "int(workflow_input.n)", "round(workflow_input.n)", "floor(workflow_input.n)", "ceil(workflow_input.n)", "string(workflow_input.n)", n=inf),
        *expr(Is(value=False), "workflow_input.n == workflow_input.n", "workflow_input.l == workflow_input.l", "workflow_input.n in workflow_input.l", n=nan, l=[nan]),
        *expr("any", "sort(workflow_input.l)", "unique(workflow_input.l)", "min(workflow_input.l)", "sum(workflow_input.l)", l=[nan, 1, inf, nan]),
        *text("any", "x{{workflow_input.n}}", "{{workflow_input.n}}", "x{{workflow_input.l}}", n=nan, l=[nan, inf]),
        *expr("missing", "workflow_input.l[99999999999999999999]", "workflow_input.l[-99999999999999999999]", "workflow_input.l.99999999999999999999", l=[1]),
        *expr("error", "workflow_input.l[1e300]", "workflow_input.l[0.5]", "workflow_input.l[true]", "workflow_input.l[null]", "workflow_input.l['0']", l=[1, 2]),
        *expr("error", "workflow_input.l[workflow_input.n]", "workflow_input.l[-workflow_input.n]", "workflow_input.l[[0]]", "workflow_input.l[{}]", l=[1], n=nan),
        *expr("any", f'substring("abc", {"9" * 50})', f'substring("abc", -{"9" * 50}, {"9" * 50})', f'truncate("abc", {"9" * 50})', 'truncate("abc", -1)'),
        *expr("any", f"slice([1], {'9' * 50})", f"slice([1], -{'9' * 50}, {'9' * 50})", "slice([1], 0.5)", 'substring("abc", 1.5)', 'substring("abc", true)'),
        *expr("any", "round(1.5, 1000000000)", f"round(1.5, {'9' * 50})", "round(12345, -1000000000)", f"round(12345, -{'9' * 50})", "round(1e300, 308)"),
        *expr("any", "json([[1]], 1000000000)", f"json([1], {'9' * 50})", "json([[1]], -5)", 'json([1], "\\n")', "json([1], true)", "json([1], 0.5)"),
    ]


def calendar() -> list[Hostile]:
    early, late = 'timestamp("0001-01-01T00:00:00+14:00")', 'timestamp("9999-12-31T23:59:59Z")'
    return [
        *expr("any", early, late, f"string({early})", f'{late} + duration("1000h")', f'{early} - duration("1000h")', f"{late} - {early}", f"json({early})"),
        *expr("error", 'duration("99999999999999999h")', f'duration("{"9" * 5000}s")', 'duration("")', 'duration("h")', 'duration("1e400s")', 'duration("nan s")'),
        *expr("error", 'timestamp("2024-13-01T00:00:00Z")', 'timestamp("2024-01-01T00:00:00")', 'timestamp("")', "timestamp(1e300)", f'timestamp("{"9" * 5000}")'),
        *expr("error", 'timestamp("2024-01-01T00:00", "../../../etc/passwd")', 'timestamp("2024-01-01T00:00", "/etc/passwd")', 'timestamp("2024-01-01T00:00", "Nowhere/X")'),
        *expr("error", 'timestamp("2024-01-01T00:00", "")', 'timestamp("2024-01-01T00:00", "a\\0b")', 'timestamp("2024-01-01T00:00", "' + "A/" * 2000 + '")'),
        *expr("any", f'format_date({late}, "{"%Y" * 3000}")', f'format_date({late}, "%")', f'format_date({late}, "%999999999d")', f'format_date({late}, "a\\0b%Y")'),
    ]


def growth() -> list[Hostile]:
    tenfold = "'aaaaaaaaaa'" + ".replace('a', 'aaaaaaaaaa')" * 12
    return [
        *expr("limit", tenfold, "'" + "x" * 5000 + "'" + ".replace('x', '" + "x" * 2500 + "')", "'" + "a," * 100 + "'" + ".split('a').join('aaaaaaaaaaaa')" * 30),
        *expr("limit|eval", "workflow_input.s.replace('', 'xxxxxxxxxx')", "workflow_input.s + workflow_input.s", "[workflow_input.s, workflow_input.s].join(workflow_input.s)", s=lambda: mb),
        *expr("any", "workflow_input.s.split('')", "workflow_input.s.split('a')", "size(workflow_input.s.split('a'))", "workflow_input.s.lines()", s=lambda: mb),
        *expr("limit", "workflow_input.l.map(x, workflow_input.s).join('')", "json(workflow_input.l.map(x, workflow_input.s))", s=lambda: mb, l=ints(1000)),
        *expr("limit", "workflow_input.l.join(workflow_input.s)", s=lambda: mb, l=lambda: ["x"] * 1000),
        *expr("limit", "json(" * 25 + "'\\\\\\\\\\\\\\\\\\\\\\\\'" + ")" * 25, "'\\\\\\\\\\\\'" + " | json" * 40),
        *expr("any", "upper(workflow_input.s)", "lower(workflow_input.s)", "workflow_input.s.trim()", "base64(workflow_input.s)", s=lambda: "ßİﬃ" * (MB // 3)),
        *expr("any", "parse_json(workflow_input.s)", s=lambda: "[" * MB),
        *expr("any", "parse_json(workflow_input.s)", s=lambda: "[" + "1," * (MB // 2 - 1) + "1]"),
        *expr("any", "parse_json(workflow_input.s)", s=lambda: '{"a":' * 10_000 + "1" + "}" * 10_000),
        *[
            case
            for source in ("NaN", "1e999999", "-Infinity", '"\\ud800"', '{"a":1,"a":2}', "", "{", "\ufeff1", "[" * 190 + "]" * 190, '"\x00"', "9" * 5000)
            for case in expr("any", "parse_json(workflow_input.s)", s=source)
        ],
        *expr("limit", "workflow_input.l.map(x, x)", "workflow_input.l.filter(x, x > 0)", "workflow_input.l.exists(x, x < 0)", l=ints(1_000_000)),
        *expr("any", *[f"{name}(workflow_input.l)" for name in sorted(FUNCTIONS)], l=ints(1_000_000)),
        *expr("any", *[f"{name}(workflow_input.l)" for name in sorted(FUNCTIONS)], l=lambda: [cyclic_list(), deep_list(), cyclic_dict()]),
        *expr("any", *[f"{name}(workflow_input.s)" for name in sorted(FUNCTIONS)], s=lambda: "a, \n" * (MB // 4)),
        *expr("any", *[f"{name}(workflow_input.s, workflow_input.s)" for name in sorted(FUNCTIONS)], s=lambda: mb),
        *expr("any", *[f"{name}(workflow_input.s, 'a', workflow_input.s)" for name in sorted(FUNCTIONS)], s=lambda: mb),
        *expr("any", *[f"{name}(workflow_input.s, '')" for name in sorted(FUNCTIONS)], s=lambda: mb),
        *expr("any", *[f"{name}()" for name in sorted(FUNCTIONS)], *[f"{name}({', '.join('1' * 200)})" for name in sorted(FUNCTIONS)]),
        *expr("any", *[f"{name}(null)" for name in sorted(FUNCTIONS)], *[f"{name}({{'a': [null, true]}}, -1)" for name in sorted(FUNCTIONS)]),
        *expr("error", "sort([1, 'a'])", "sum(['a'])", "sum([true])", "min([])", "max([null, 1])", "join([1, [2]], 1)", "keys([1])", "flatten(1)"),
    ]


def macros() -> list[Hostile]:
    row = "workflow_input.l"
    loops = f"{row}.map(a, {row}.map(b, {row}.map(c, {row}.map(d, {row}.map(e, 1)))))"
    quiet = f"{row}.all(a, {row}.all(b, {row}.all(c, {row}.all(d, {row}.all(e, true)))))"
    counted = f"{row}.filter(a, {row}.exists_one(b, {row}.exists(c, {row}.exists(d, c + d < 0))))"
    return [
        *expr("limit", loops, quiet, counted, l=ints(100)),
        *expr("limit", "[[0]]" + "".join(f".map(v{n}, [v{n}, v{n}])" for n in range(60)), "[0]" + "".join(f".map(v{n}, [v{n}, v{n}, v{n}])" for n in range(40))),
        *expr("limit", "[[0]]" + "".join(f".map(v{n}, [v{n}, v{n}])" for n in range(60)) + " | json"),
        *expr("limit", "[[0]]" + "".join(f".map(v{n}, v{n} + v{n})" for n in range(60)), "['aaaaaaaa']" + "".join(f".map(v{n}, v{n} + v{n})" for n in range(60))),
        *expr("limit", "[7]" + "".join(f".map(v{n}, v{n} * v{n})" for n in range(60)), "[[1]]" + "".join(f".map(v{n}, flatten([v{n}, v{n}]))" for n in range(60))),
        *expr("limit", "[{'a': 1}]" + "".join(f".map(v{n}, {{'a': v{n}, 'b': v{n}}})" for n in range(60))),
        *expr("limit", "[1, 1].map(x, workflow_input.l)[0].map(y, workflow_input.l)", l=ints(10_000)),
        *expr("limit", "workflow_input.l.map(x, workflow_input.l)", l=ints(1_000)),
        *expr("any", "workflow_input.d == workflow_input.e", "workflow_input.d in [workflow_input.e]", "unique([workflow_input.d, workflow_input.e])", d=dag, e=dag),
        *expr("limit", "json(workflow_input.d)", "string(workflow_input.d)", "json(workflow_input.d, 2)", d=dag),
        *expr("any", "flatten(workflow_input.d)", "sort(workflow_input.d)", "workflow_input.d", "[workflow_input.d]", "workflow_input.d.map(x, x)", "size(workflow_input.d)", d=dag),
        *text("limit", "x{{workflow_input.d}}", d=dag),
        *expr("any", "workflow_input.e.map(k, k)", "keys(workflow_input.e)", "values(workflow_input.e)", "json(workflow_input.e)", "workflow_input.e == {}", e=Endless),
        *expr("any", "size(workflow_input.e)", "workflow_input.e == workflow_input.f", "workflow_input.e.exists(k, k == '')", "string(workflow_input.e)", e=Endless, f=Endless),
        *text("error", "x{{workflow_input.e}}", e=Endless),
        *expr("error", "[1].map(step, step)", "[1].map(workflow_input, 1)", "[1].map(x.y, 1)", "[1].map(1, 1)", "[1].map(x)", "[1].map()", "[1].map(x, y, z)"),
        *expr("error", "map([1], x, x)", "[1].map(true, 1)", "[1].map(x, x) x", "x", "[1].all(x, 1)", "[1].filter(x, null)", "1.map(x, x)", "null.map(x, x)"),
    ]


def unpaid_work() -> list[Hostile]:
    """Work that a single operation hides, repeated as often as the fuel for the operation allows."""
    wide = nested(190, as_list)
    thick: dict[str, Any] = {"s": lambda: mb, "r": lambda: mb[1:] + mb[:1], "o": lambda: {mb: 1}, "l": ints(60_000)}

    def random_text() -> str:
        return "".join(Random(1).choices("ab", k=MB))

    return [
        *expr("any", *[f'matches(workflow_input.s, "{p}")' for p in ("(a|b)*a(a|b){30}c", "a[ab]{60}c", "(?:a|b|ab|ba|aab)*a.{80}c", "a.{9}b.{9}c")], s=random_text),
        *expr("any", *[f"workflow_input.l.map(x, matches('ab', string(x) + '{p}'))" for p in (r"\\pL{50}", "[a-z]{900}", r"(\\pL|\\pN)*x{20}")], l=ints(390)),
        *text("any", "{{ workflow_input.l.exists(x, x < 0) }}," * 1000, "{{workflow_input.l}}," * 1000, "{{ size(json(workflow_input.l)) }}," * 1000, l=ints(60_000)),
        *text("any", "{{workflow_input.l}}," * 1000, "{{ workflow_input.l == workflow_input.m }}," * 1000, l=lambda: [1] * 190_000, m=lambda: [1] * 190_000),
        *expr("any", *[f"size(json(workflow_input.d, {indent}))" for indent in (0, 1, 2, 4, 8)], d=lambda: [wide(), [1] * 190_000, wide()]),
        *expr("any", *[f"size(json(workflow_input.d, {indent}))" for indent in (1, 2, 8)], d=lambda: nested_around([1] * 190_000)),
        *expr("any", "size(json(workflow_input.l))", l=lambda: ["\x00" * MB] * 3),
        *text("any", "x{{workflow_input.l}}", l=lambda: ["\U0001f600" * MB] * 3),
        *expr("any", *[f"workflow_input.l.all(x, {test})" for test in (f"{S} == {R}", f"{S} <= {R}", f"[{S}] == [{R}]", f"{S} in [{R}]", f"{S} != {R} || true")], **thick),
        *expr("any", *[f"workflow_input.l.all(x, {test})" for test in (f"unique([{S}, {R}]) != []", f"workflow_input.o[{R}] == 1", f"{R} in workflow_input.o")], **thick),
        *expr("any", *[f"workflow_input.l.all(x, {test})" for test in (f"min([{S}, {R}]) != ''", f"sort([{S}, {R}]) != []", f"{S}.startsWith({R})", f"{R} in {S}")], **thick),
        *expr("any", *[f"workflow_input.l.all(x, {test})" for test in ("workflow_input.b == workflow_input.c", "workflow_input.b > 1.5")], l=ints(60_000), b=big, c=big),
        *expr("any", "workflow_input.l.map(x, workflow_input.o.zzz ?? 1)", "workflow_input.l.map(x, has(workflow_input.o.zzz))", "workflow_input.l.map(x, workflow_input?.zz)", l=ints(40_000), o={}),
        *expr("any", "size(workflow_input.s.split(','))", "size(workflow_input.s.lines())", "size(workflow_input.s.split(''))", s=lambda: "工,\n" * (MB // 3)),
        *expr("any", "unique(workflow_input.l)", "sort(workflow_input.l)", "workflow_input.l.map(x, x.a)", "unique(workflow_input.l.map(x, [x.a]))", l=lambda: [{"a": str(n)} for n in range(30_000)]),
        *expr("any", "sort(workflow_input.l)", "max(workflow_input.l)", "unique(workflow_input.l)", "workflow_input.l == workflow_input.l", l=lambda: ["a" * 5000 + str(n) for n in range(5000)]),
        *expr("any", f"{R} in {S}", f"{S}.replace({R}, 'x')", f"{S}.split({R})", f"{S}.contains({R})", f"{S}.endsWith({R})", s=lambda: mb, r=lambda: "a" * (MB // 2) + "b"),
    ]


def nested_around(value: Any) -> Any:
    for _ in range(190):
        value = [value]
    return value


def patterns() -> list[Hostile]:
    bomb = "a" * 30 + "!"
    return [
        *expr(Is(value=False), *[f'matches("{bomb}", "{p}")' for p in ("^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "^(.*a){12}$", "^(a?){30}a{31}$")]),
        *expr("any", 'matches(workflow_input.s, "(.*)*x")', 'matches(workflow_input.s, "(a+)+$")', 'matches(workflow_input.s, "(x+x+)+y")', s=lambda: mb),
        *expr("error", 'matches("a", "(((a{1000}){1000}){1000})")', 'matches("a", "a{1001}")', 'matches("a", "(?=a)")', 'matches("a", r"(a)\\1")', 'matches("a", "(")'),
        *expr("any", 'matches("a", "' + "(?:" * 300 + ")" * 300 + '")', 'matches("a", "' + "(" * 500 + ")" * 500 + '")', 'matches("a", r"[\\p{L}\\p{N}]{900}")'),
        *expr("error", 'matches("a", "' + "a" * 1001 + '")', 'matches("a", 5)', 'matches(5, "a")', 'matches("a")', 'matches("a", "[")', 'matches("a", "(?P<n>a")'),
        *expr("any", "matches('a', workflow_input.p)", "matches(workflow_input.p, 'a')", p=lambda: "\ud800"),
        *expr("any", "matches('a', workflow_input.p)", p=lambda: "(" * MB),
        *expr("any", 'matches("a\\0b", "a\\0b")', 'matches("", "")', r'matches("a", r"\C")', 'matches("a", "(?i)" + "A")', 'matches("é", "^.$")'),
        *expr("limit", "workflow_input.l.all(x, matches(workflow_input.s, '(a|b|c|d)*e|(.*)z') == false)", s=lambda: mb, l=ints(1000)),
        *expr("any", "workflow_input.l.map(x, matches('a', string(x) + '[a-z]{100}'))", l=ints(500)),
    ]


def long_sources() -> list[Hostile]:
    whole: list[Hostile] = []
    for count in (10_000, 2_000):
        opened = [("(", ")"), ("[", "]"), ("{'a':", "}"), ("size(", ")"), ("-(", ")"), ("!(", ")"), ("[1].map(x,", ")"), ("has(", ")"), ("1+(", ")")]
        whole += expr("limit|syntax", *[left * count + "1" + right * count for left, right in opened], *[left * count for left, _ in opened])
        prefixes = ["!", "-", "not ", "- -", "true ? 1 : ", "1 ?? ", "1 + ", "1 * ", "true && ", "false or ", "1 == ", "1 in ", "true ? ", "!-", "1 < (2 + "]
        whole += expr("limit|syntax", *[prefix * count + "1" for prefix in prefixes])
        suffixes = [".a", "[0]", ".0", "?.a", "[workflow_input", ".size()", " | string", ".map(x, x)", " ? 1 : 2", "()", ".`a`", " not in []", "..", "?."]
        whole += expr("error", *["workflow_input" + suffix * count for suffix in suffixes])
        whole += text("error", *["{{workflow_input" + suffix * count + "}}" for suffix in suffixes], "{{" + "(" * count + "workflow_input" + ")" * count + "}}")
    return [
        *whole,
        *expr("limit", lambda: "1 " * MB, lambda: " " * (4 * MB), lambda: "'" + mb + "'", lambda: "workflow_input." + mb, lambda: "[" + "1," * 4000 + "1]"),
        *expr("limit", "[" + ",".join("1" * 1100) + "]", "{" + ",".join(f"'{n}':1" for n in range(1001)) + "}", "+".join("1" * 600)),
        *expr("limit|syntax", "size(" + ",".join("1" * 1100) + ")", "[1].map(x, " + ",".join("1" * 1100) + ")"),
        *expr("limit", "workflow_input" + ".a" * 70, "workflow_input" + "[0]" * 70),
    ]


def spellings() -> list[Hostile]:
    strings = ["'\\x41'", "'\\u12'", "'\\u{41}'", "'\\N{DIGIT ONE}'", "'\\'", "'abc", "'''", 'r"', "r'a", "'\\ud83d\\ude00'", "'\\ud800'", "'\\U00110000'", "'\\U0000d800'", "'\\q'"]
    glyphs = ["１ + 1", "1 ＋ 1", "“a” == 'a'", "1 == 1；", "workflow_input。a", "workflow_input．a", "1 ＞ 0", "true ＆＆ true", "（1）", "1 \u2212 1", "1\u200b+1", "٣", "²", "Ⅷ + 1"]
    broken = ["", " ", "\t\n", "# x", "// x", "/* x */", "1 2", "1 +", "+", "()", "[,]", "[1,,2]", "{1}", "{'a'}", "{'a':}", "{a b: 1}", "1..2", ".5", "0x10", "1_000", "1e", "1e+", "."]
    return [
        *expr("syntax", *strings, *glyphs, *broken),
        *expr("any", "01", "1.", "[1,]", "{'a':1,'a':2}", "{1: 2}", "{true: 1}", "{'a':1}.a", "'a\nb'", "1\u00a0+ 1", "\ufeff1", "1\r\n+ 1", "1\u2028+ 1", "1\f+ 1", "'\0'"),
        *expr("error", "1.e5", "workflow_input.a\u202e == 1", "\u2066workflow_input.a\u2069", "workflow_input.\u200da", "workflow_input.а", "workflow_input.é", "wоrkflow_input.a", "workflow_input.a\x00"),
        *expr("error", "has(1)", "has('a')", "has(size('a'))", "has()", "has(workflow_input.a, 1)", "has(workflow_input.a + 1)", "has", "true.a", "true()", "null[0]", "workflow_input()"),
        *expr("error", "{{workflow_input.a}} x", "{{1}}{{2}}", "{{}}", "{{ }}", "{{", "}}", "{{workflow_input.a}", "{workflow_input.a}", "x{{workflow_input.a}}", "{{{{workflow_input.a}}}}"),
        *expr("error", lambda: "workflow_input.\ud800", lambda: "\ud800", lambda: "'a' + \udfff", lambda: "workflow_input.`\ud800`"),
        *expr("any", lambda: "'\ud800'", lambda: "workflow_input['\udc00']"),
        *expr("any", *[f"{name}(workflow_input.s)" for name in sorted(FUNCTIONS)], "workflow_input.s == '\U0001f600'", "workflow_input.s < 'a'", s=lambda: "\ud83d a"),
        *expr("any", *[f"{name}(workflow_input.s, workflow_input.s)" for name in sorted(FUNCTIONS)], s=lambda: "\udc80"),
        *text("any", "x{{workflow_input.s}}", "{{workflow_input.s}}", "x{{workflow_input}}", lambda: "\ud800{{workflow_input.s}}\udfff", s=lambda: "\ud800"),
        *expr("any", "json(workflow_input.m)", "keys(workflow_input.m)", "sort(keys(workflow_input.m))", "workflow_input.m.map(k, k)", "workflow_input.m == {}", m=lambda: {1: 2, None: 1, (1, 2): 3, "a": 4}),
        *expr("any", "workflow_input.m[0]", "workflow_input.m[1]", "workflow_input.m[null]", "workflow_input.m.zz", "workflow_input.m[[1]]", "[1] in workflow_input.m", m=lambda: {1: 2, None: 1, (1, 2): 3}),
        *expr("missing", "workflow_input." + "x" * 5000, "workflow_input['" + "x" * 5000 + "']", "workflow_input.zz", **{f"{'y' * 500}{n}": n for n in range(500)}),
    ]


def deep_data() -> list[Hostile]:
    cases: list[Hostile] = []
    for build in (deep_list, deep_dict, cyclic_list, cyclic_dict):
        cases += expr("limit|type|eval", "json(workflow_input.d)", "json([workflow_input.d], 2)", d=build)
        cases += text("limit|type|eval", "x{{workflow_input.d}}", "x{{ workflow_input.d | json }}", d=build)
        cases += expr("any", "workflow_input.d == workflow_input.e", "workflow_input.d in [workflow_input.e]", "workflow_input.d != workflow_input.e", d=build, e=build)
        cases += expr("any", "[workflow_input.d, 1].map(x, x)", "[workflow_input.d]", "workflow_input.d ?? 1", "{'a': workflow_input.d}", "workflow_input.d == workflow_input.d", d=build)
        cases += expr("any", "unique([workflow_input.d, workflow_input.e])", "sort([workflow_input.d, workflow_input.e])", "flatten([workflow_input.d])", "workflow_input.d < 1", d=build, e=build)
        cases += text("any", "{{workflow_input.d}}", "{{workflow_input.d[0].a}}", "{{workflow_input}}", d=build)
        cases += tree("any", {"x": ["{{workflow_input.d}}", {"y": " {{workflow_input.d}} "}]}, d=build)
        cases += tree("limit", build)
    return [
        *cases,
        *tree("limit", nested(33, as_list), nested(33, as_dict), nested(5_000, as_dict), lambda: [*nested(33, as_list)(), "{{workflow_input.a}}"]),
        *tree("limit|any", lambda: ["{{workflow_input.a}}"] * 1001, dag),
        *tree("any", {"a": object}, {1: "{{workflow_input.a}}", None: ["{{workflow_input.a}}"]}, {"a": ("{{workflow_input.a}}",)}),
        *tree("error", {"a": "{{workflow_input.a"}, {"a": ["{{workflow_input.zz}}"]}, {"a": "{{workflow_input.a.__class__}}"}),
    ]


def long_texts() -> list[Hostile]:
    four = 4 * MB
    return [
        *text("value", lambda: "x" * four, lambda: "{" * 1_000_000, lambda: "}" * 1_000_000, lambda: "\\" * 1_000_000, lambda: "{{" * 500_000, lambda: "}}{{" * 250_000),
        *text("value", lambda: "\\{{" * 300_000, lambda: "{{ }} " * 160_000, lambda: "{{x}}\n" * 160_000, lambda: "{{#if a.b.c}}" * 80_000, lambda: "{{stp.a}}\n" * 100_000),
        *text("value", lambda: "{{" + " " * 1_000_000, lambda: ("{{" + " " * 1000) * 1000, lambda: "{{" + "(" * 1_000_000, lambda: "{{(" * 300_000, lambda: "{{-" * 300_000, lambda: "{{!" * 300_000),
        *text("limit", lambda: "x" * (four + 1), lambda: "{{workflow_input.a}}" + "x" * four, lambda: "{{workflow_input.a}}" * 1001, lambda: "x" * (16 * MB)),
        *text("value", lambda: "{{workflow_input.a}}" * 1000, lambda: "x" * (four - 100) + "{{workflow_input.a}}"),
        *text("error", lambda: "{{workflow_input.a" + " " * 1_000_000, lambda: "{{workflow_input.a + '" + "x" * 1_000_000, lambda: "{{workflow_input." + "a" * 1_000_000 + "}}"),
        *text("error", lambda: "{{workflow_input.a " * 100_000, lambda: "{{workflow_input" * 200_000, lambda: "\n" * 1_000_000 + "{{workflow_input.a", lambda: "{{size(" * 100_000, "{{workflow_input.a}"),
        *text("limit", "".join(f"{{{{workflow_input.s}}}}{n}" for n in range(900)), s=lambda: mb),
        *text("any", "{{workflow_input.s}}{{workflow_input.s}}", "{{ workflow_input.s | json }}!", "{{workflow_input.s}} ", s=lambda: "\\" * MB),
        *text(Is("{{workflow_input.secret}}!"), "{{workflow_input.s}}!", s="{{workflow_input.secret}}", secret="CANARY"),
        *text("error", "{{workflow_input.a b}}", "{{workflow_input.}}", "{{workflow_input.a | nosuch}}", "{{workflow_input[}}", "{{step}}!", "{{steps[workflow_input.a]}}", "{{step.}}", "{{step.-}}"),
    ]


def schemas() -> list[Hostile]:
    paths = ("workflow_input.a.a.a", "workflow_input.a == 'b'", "step.x.a[0].b > 1", "workflow_input.a.map(x, x.b + 1)", "workflow_input." + "a" * 40 + "_")
    chain = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2, "anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    loops = ({"$ref": "#"}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, {"allOf": [{"$ref": "#"}, {"$ref": "#"}]})
    broken = (True, False, 5, "x", [], {"properties": [1]}, {"type": 5}, {"type": [[]]}, {"enum": {}}, {"items": "x"}, {"properties": {"a": 7}}, {"anyOf": 3}, {"const": float("nan")})
    refs = ({"$ref": ref} for ref in (5, "", "#/", "#/%zz", "#/$defs/no", "http://127.0.0.1:9/x", "file:///etc/passwd", "#/properties/0", "#" * 100_000, "#" + "/a" * 100_000))
    fields = ({"properties": {"a": {"enum": [[1], {}, None, 1.5, "c"]}}}, {"patternProperties": {"^(a+)+$": {}, "(": {}, "(a|a)*b$": {"type": "string"}}, "additionalProperties": False})
    deep = nested(300_000, lambda inner: {"properties": {"a": inner}, "items": inner})
    large = ({"properties": {"a": {"enum": [f"v{n}" * 20 for n in range(50_000)]}}}, {"anyOf": [{"properties": {"a": {"const": f"{n}"}}} for n in range(50_000)]})
    wide = ({"properties": {f"a{n}": {} for n in range(100_000)}, "additionalProperties": False}, {"properties": {"a": {"const": mb}}}, {"type": ["object"] * 100_000})
    whole = [check(*paths, schema=(lambda schema=schema: schema)) for schema in (*loops, *broken, *refs, *fields, {"$defs": chain, "$ref": "#/$defs/d0"}, *large, *wide)]
    return [case for family in (*whole, check(*paths, schema=deep), check(*paths, schema=cyclic_schema)) for case in family]


def cyclic_schema() -> Any:
    schema: dict[str, Any] = {"type": "object"}
    schema |= {"properties": {"a": schema}, "items": schema, "allOf": [schema, schema], "anyOf": [schema]}
    return schema


def corpus() -> list[Hostile]:
    parts = (attribute_walks, numbers, calendar, growth, macros, unpaid_work, patterns, long_sources, spellings, deep_data, long_texts, schemas)
    return [case for part in parts for case in part()]


# fmt: on
# --- the child -------------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    """Not an Exception, so that no code under test can take it for one of its own."""


def plain(value: Any) -> bool:
    """Whether a result holds JSON types alone; walks a graph once and without recursion."""
    seen: set[int] = set()
    waiting = [value]
    while waiting and len(seen) < 500_000:
        item = waiting.pop()
        if item is None or type(item) in (bool, int, float, str):
            continue
        if id(item) in seen:
            continue
        seen.add(id(item))
        if type(item) in (list, tuple):
            waiting.extend(item)
        elif isinstance(item, Mapping):
            waiting.extend(item.values() if type(item) is dict else ())
        else:
            return False
    return True


def run(case: Hostile, source: Any, context: Mapping[str, Any]) -> tuple[str, Any]:
    """(error code, rendered error) or ("value", result)."""
    try:
        if case.kind == "expression":
            program = compile_expression(source)
            program.refs()
            return "value", program.evaluate(context)
        if case.kind == "check":
            schema = context["workflow_input"]["schema"]
            env = CheckEnv(visible={"x": StepShape(schema)}, known=("x",), input=schema, strict=len(source) % 2 == 0)
            problems = check_expression(compile_expression(source), env, boolean=True)
            return "value", [problem.render().encode() and problem.code for problem in problems]
        if case.kind == "template":
            template = compile_template(source)
            template.refs()
            template.notes()
            return "value", template.render(context)
        arguments = compile_tree(source)
        arguments.refs()
        return "value", arguments.render(context)
    except ExpressionError as error:
        return error.code, error.render()


def peak_and_now_mb() -> tuple[float, float]:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(fields["VmHWM"].split()[0]) / 1024, int(fields["VmRSS"].split()[0]) / 1024


def judge(case: Hostile, code: str, result: Any) -> str | None:
    """What is wrong with an outcome, or None."""
    if code == "value":
        if not plain(result) and case.want not in ("any", "value"):
            return f"not JSON: {type(result).__name__}"
        if isinstance(case.want, Is):
            same = type(result) is type(case.want.value) and result == case.want.value
            return None if same else f"gave {str(result)[:60]!r}, wanted {case.want.value!r}"
        return None if case.want in ("any", "value", "limit|any") else f"gave a value, wanted {case.want}"
    if code not in CODES:
        return f"unknown code {code!r}"
    if len(result) > 1200 or "CANARY" in result:
        return f"error text of {len(result)} characters: {result[:80]!r}"
    result.encode("utf-8")
    if isinstance(case.want, Is) or case.want == "value":
        return f"[{code}] {result[:100]!r}, wanted a value"
    return None if case.want in ("any", "error") or code in case.want.split("|") else f"[{code}], wanted {case.want}"


def measure(case: Hostile, data: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate one case: the problem if any, processor milliseconds and megabytes of growth."""
    source = case.source() if callable(case.source) else case.source
    record = {"status": "completed", "result": {"a": 1}, "attempts": 1}
    fields = {"a": 1, "s": "text", "l": ROW, **data}
    context = {"workflow_input": fields, "step": {"x": {"a": 1}}, "steps": {"x": record}}
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak, so each case answers for itself
    before = peak_and_now_mb()[1]
    problem = None
    signal.setitimer(signal.ITIMER_PROF, ALARM_SECONDS)
    started = time.process_time()
    try:
        code, result = run(case, source, context)
    except BaseException as error:  # noqa: BLE001 - what escapes is what is tested
        code, result = "escaped", None
        problem = f"escaped: {type(error).__name__}: {str(error)[:200]!r}"
    took = (time.process_time() - started) * 1000
    signal.setitimer(signal.ITIMER_PROF, 0)
    grown = peak_and_now_mb()[0] - before
    try:
        problem = problem or judge(case, code, result)
    except UnicodeEncodeError:
        problem = "the error cannot be written as UTF-8"
    return {"problem": problem, "ms": took, "mb": grown, "code": code}


def pace() -> float:
    """
    Processor milliseconds of a fixed amount of work.

    Neighbours on the same core slow a process down in processor time too; a slow input is measured again, against this.
    """
    started = time.process_time()
    total: dict[int, list[int]] = {}
    for number in range(50_000):
        total.setdefault(number % 1000, []).append(number)
    return (time.process_time() - started) * 1000


def ring(*_: object) -> None:
    raise TooLong


def evaluate_corpus() -> None:
    signal.signal(signal.SIGPROF, ring)
    compile_expression('matches("a", "a") && timestamp("2024-01-01T00:00", "UTC") != null').evaluate(
        {}
    )  # lazy imports are not the input's doing
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + BELT_BYTES, size + BELT_BYTES))
    rows: list[dict[str, Any]] = []
    quickest = min(pace() for _ in range(10))
    recipe: Mapping[str, Any] = {}
    data: Mapping[str, Any] = {}
    for number, case in enumerate(corpus()):
        shown = case.source.__qualname__ if callable(case.source) else repr(case.source)
        name = f"{number} {case.kind} {shown if len(shown) < 110 else shown[:70] + '...' + shown[-30:]} {sorted(case.data)[:4]}"
        sys.stderr.write(name.encode("ascii", "backslashreplace").decode() + "\n")
        if case.data is not recipe:  # a family shares its data
            recipe, data = case.data, {key: value() if callable(value) else value for key, value in case.data.items()}
            gc.collect()
            gc.freeze()  # so that no collection during a case pays for the size of its data
        row = measure(case, data)
        for _ in range(ATTEMPTS):
            if row["problem"] is None and (CPU_MS <= row["ms"] < 10 * CPU_MS or row["mb"] >= MEMORY_MB):
                before, again, after = pace(), measure(case, data), pace()
                quickest = min(quickest, before, after)
                calm = again["ms"] * min(1.0, 2 * quickest / (before + after))
                row |= {"ms": min(row["ms"], calm), "mb": min(row["mb"], again["mb"])}
        rows.append({"name": name, **row})
    sys.stdout.write(json.dumps(rows))


# --- the parent ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report() -> list[dict[str, Any]]:
    child = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=300, check=False)
    assert child.returncode == 0, f"the child died with {child.returncode} at: {child.stderr[-2000:]}"
    return json.loads(child.stdout)


def test_the_corpus_is_large_and_every_input_was_evaluated(report):
    assert len(report) == len(corpus())
    assert len({row["name"].split(" ", 1)[1] for row in report}) >= 500


def test_nothing_but_an_expression_error_escapes_from_hostile_input(report):
    assert [f"{row['name']}: {row['problem']}" for row in report if row["code"] == "escaped"] == []


def test_hostile_input_gives_the_documented_outcome(report):
    assert [f"{row['name']}: {row['problem']}" for row in report if row["problem"] and row["code"] != "escaped"] == []


def test_no_hostile_input_takes_100_milliseconds(report):
    assert [f"{row['name']}: {row['ms']:.0f} ms" for row in report if row["ms"] >= CPU_MS] == []


def test_no_hostile_input_takes_60_megabytes(report):
    assert [f"{row['name']}: {row['mb']:.0f} MB" for row in report if row["mb"] >= MEMORY_MB] == []


if __name__ == "__main__":
    evaluate_corpus()
