"""Properties of templates and expressions that hold for every input, tried on random ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from stepwell.expressions import (
    FUNCTIONS,
    ROOTS,
    ExpressionError,
    Ref,
    compile_expression,
    compile_template,
    compile_tree,
)

CODES = frozenset({"syntax", "step", "order", "scope", "path", "enum", "type", "missing", "eval", "limit"})
FIXED = {"derandomize": True, "deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
many = settings(max_examples=800, **FIXED)
some = settings(max_examples=250, **FIXED)

FOREIGN_WORDS = [
    "user",
    "x",
    "stp",
    "workflow",
    "Step",
    "STEPS",
    "stepx",
    "loops",
    "ste",
    "if",
    "each",
    "item",
    "range",
    "url_for",
    "runs",
    "客户",
]
PIECES = [
    "{",
    "}",
    "{{",
    "}}",
    "{{{",
    "}}}",
    "\\",
    "\\\\",
    " ",
    "\n",
    "\t",
    "#",
    "/",
    "!",
    "-",
    "(",
    ")",
    ".",
    "|",
    "%",
    "$",
    '"',
    "'",
    ":",
    ",",
    "0",
    "1.5",
    "é",
    "工",
]
assert not set(FOREIGN_WORDS) & (set(ROOTS) | set(FUNCTIONS))

soups = st.lists(
    st.one_of(st.sampled_from(PIECES), st.sampled_from(FOREIGN_WORDS), st.text(max_size=3)), max_size=40
).map("".join)
code_pieces = st.sampled_from(
    [
        *PIECES,
        *FOREIGN_WORDS,
        *sorted(ROOTS),
        *sorted(FUNCTIONS),
        "workflow_input.a",
        "step.my-step.b",
        "[0]",
        "?.",
        "??",
        "?",
        "&&",
        "||",
        "and",
        "or",
        "not",
        "in",
        "==",
        "!=",
        "<",
        "<=",
        "+",
        "*",
        "true",
        "null",
        "has(",
        ".map(x, x)",
        ".exists(",
        "`",
        "r'",
        '"a"',
        "'\\u00e9'",
        "[",
        "]",
        "=",
        "1e5",
        "99",
        "\\ud800",
        "；",
        "\u202e",
        "\x00",
        "default(",
    ]
)
code_soups = st.lists(st.one_of(code_pieces, st.text(max_size=2)), max_size=25).flatmap(
    lambda parts: st.sampled_from(["", " "]).map(lambda glue: glue.join(parts))
)
evil_texts = st.lists(
    st.sampled_from(
        [
            "{{step.x}}",
            "}}",
            "{{",
            "\\{{",
            "\\{{step.x}}",
            "{{workflow_input.secret}}",
            "{%",
            "%s",
            "${x}",
            "{0}",
            "'",
            '"',
            "\\",
            "text",
            "\n",
            "{{{{workflow_input.secret}}}}",
        ]
    ),
    max_size=8,
).map("".join)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    evil_texts,
    st.text(max_size=6),
)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=12,
)


def has_live_reference(text: str) -> bool:
    """Whether a soup happens to hold a root or a function's name: then it is not foreign any more."""
    return any(name in text for name in (*ROOTS, *FUNCTIONS))


# --- templates -------------------------------------------------------------------------------------------------------


@many
@given(soups)
@example("{{ user.name }} {{#each x}} {{}} {{{ }}} style={{color:red}} {{! x}} {{-}} {{(}} {{")
def test_braces_without_a_known_root_come_back_byte_for_byte(text):
    assume(not has_live_reference(text) and "\\{{" not in text)
    template = compile_template(text)
    assert template.is_constant
    assert template.refs() == ()
    assert template.render({}) == text
    assert all(0 <= note.offset <= len(text) for note in template.notes())


@some
@given(st.text(max_size=80))
def test_any_text_without_braces_is_constant(text):
    assume("{{" not in text)
    template = compile_template(text)
    assert template.is_constant
    assert template.render({}) == text
    assert template.notes() == ()


@many
@given(soups)
def test_an_escaped_opening_comes_out_as_itself(text):
    assume(not text.endswith("\\"))
    source = text.replace("\\", "").replace("{{", "\\{{")
    assert compile_template(source).render({}) == text.replace("\\", "")


@some
@given(
    st.sampled_from(["step.x", " step.x ", "workflow_input.a ?? 1", "size(step.x)", "name", "}", ""]),
    soups.filter(lambda s: "\\" not in s and "{" not in s),
)
def test_an_escaped_reference_is_text_even_beside_a_live_one(inside, around):
    assume(not has_live_reference(around))
    template = compile_template(around + "\\{{" + inside + "}}" + around + "{{workflow_input.v}}")
    assert template.render({"workflow_input": {"v": "V"}}) == around + "{{" + inside + "}}" + around + "V"


@some
@given(st.integers(0, 6), evil_texts)
def test_backslashes_before_a_reference_pair_up_to_the_last(count, value):
    rendered = compile_template("a" + "\\" * count + "{{workflow_input.v}}b").render({"workflow_input": {"v": value}})
    literal = "{{workflow_input.v}}"
    allowed = {0: {"a" + value + "b"}, 1: {"a" + literal + "b"}, 2: {"a\\" + value + "b"}}
    if count in allowed:
        assert rendered in allowed[count]
    else:
        assert rendered.endswith((value + "b") if count % 2 == 0 else (literal + "b"))


@many
@given(evil_texts, evil_texts, soups.filter(lambda s: "\\" not in s and "{" not in s))
def test_an_inserted_value_is_never_parsed_again(first, second, around):
    assume(not has_live_reference(around))
    context = {"workflow_input": {"v": first, "w": second, "secret": "CANARY"}}
    text = around + "{{workflow_input.v}}" + around + "{{ workflow_input.w }}" + around
    rendered = compile_template(text).render(context)
    assert rendered == around + first + around + second + around
    assert "CANARY" not in rendered


@some
@given(trees)
def test_interpolated_containers_are_their_json_and_nothing_in_them_is_parsed(value):
    assume(not isinstance(value, str))
    rendered = compile_template("<{{workflow_input.v}}>").render({"workflow_input": {"v": value}})
    assert rendered == f"<{json.dumps(value, ensure_ascii=False)}>"


@some
@given(trees, st.sampled_from(["", " ", "\n", " \t\n"]), st.sampled_from(["", " ", "\n"]))
def test_a_whole_value_keeps_its_identity(value, before, after):
    context = {"workflow_input": {"v": value, "l": [value]}}
    for path in ("workflow_input.v", " workflow_input['v'] ", "workflow_input.l.0", "workflow_input.l[-1]"):
        template = compile_template(before + "{{" + path + "}}" + after)
        assert template.is_whole
        assert template.render(context) is value


@some
@given(trees, soups.filter(lambda s: bool(s.strip()) and "\\" not in s and "{" not in s))
def test_a_reference_with_text_beside_it_is_always_text(value, around):
    assume(not has_live_reference(around))
    template = compile_template("{{workflow_input.v}}" + around)
    assert not template.is_whole
    assert isinstance(template.render({"workflow_input": {"v": value}}), str)


# --- trees -----------------------------------------------------------------------------------------------------------

constants = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8).filter(lambda s: "{{" not in s)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(st.text(max_size=4), evil_texts), inner, max_size=4)
    ),
    max_leaves=15,
)


@some
@given(constants)
def test_a_constant_tree_renders_as_the_same_object(value):
    tree = compile_tree(value)
    assert tree.is_constant
    assert tree.refs() == ()
    assert tree.render({}) is value


@some
@given(constants, constants, trees)
def test_constant_branches_are_shared_and_whole_values_keep_identity_in_a_tree(left, right, value):
    source = {"left": left, "{{step.x}}": "{{workflow_input.v}}", "list": [right, " {{workflow_input.v}}\n"]}
    before = copy.deepcopy(source)
    rendered = compile_tree(source).render({"workflow_input": {"v": value}})
    assert source == before
    assert rendered["left"] is left
    assert rendered["{{step.x}}"] is value
    assert rendered["list"][0] is right
    assert rendered["list"][1] is value
    assert list(rendered) == list(source)


@some
@given(st.lists(st.one_of(st.text(max_size=4), st.integers(0, 3)), min_size=1, max_size=6))
def test_a_reference_in_a_tree_is_found_with_the_path_of_its_argument(path):
    value: Any = "a {{workflow_input.v.w}}"
    for part in reversed(path):
        value = [None] * part + [value] if isinstance(part, int) else {part: value}
    tree = compile_tree(value)
    assert [(where, str(ref)) for where, ref in tree.refs()] == [(tuple(path), "workflow_input.v.w")]


# --- nothing but ExpressionError -------------------------------------------------------------------------------------


def well_placed(error: ExpressionError, source: str) -> bool:
    inside = 0 <= error.offset <= len(source) + 1 and error.line >= 1 and error.column >= 1
    return inside and error.code in CODES and f"[{error.code}]" in error.render()


def outcome(source: str, context: Mapping[str, Any]) -> tuple[str, Any]:
    """("value", result) or ("error", code); anything but an ExpressionError goes through."""
    try:
        return "value", compile_expression(source).evaluate(context)
    except ExpressionError as error:
        caught = error
    assert well_placed(caught, source)
    return "error", caught.code


def rendered_or_code(text: str, context: Mapping[str, Any]) -> tuple[str, Any]:
    try:
        return "value", compile_template(text).render(context)
    except ExpressionError as error:
        caught = error
    assert well_placed(caught, text)
    return "error", caught.code


@many
@given(code_soups)
def test_random_code_raises_nothing_but_an_expression_error_and_does_so_again(source):
    context = {"workflow_input": {"a": [1, {"b": "x"}], "x": 1}, "step": {"my-step": {"b": 1.5}}, "run": {"id": "r"}}
    assert repr(outcome(source, context)) == repr(outcome(source, context))


@some
@given(st.text(max_size=60))
def test_random_text_is_no_program_that_reads_an_empty_context(source):
    kind, result = outcome(source, {})
    assert kind == "error" or not isinstance(result, Mapping) or result == {}


@many
@given(code_soups, code_soups)
def test_random_templates_raise_nothing_but_an_expression_error(left, right):
    text = left + "{{" + right + "}}"
    kind, result = rendered_or_code(text, {"workflow_input": {"a": "A"}, "step": {}})
    assert kind == "error" or isinstance(result, str) or compile_template(text).is_whole


# --- reading ---------------------------------------------------------------------------------------------------------


class Recorder(Mapping[str, Any]):
    """A mapping that notes the path of every value read from it."""

    def __init__(self, value: Mapping[str, Any], path: tuple[Any, ...], reads: set[tuple[Any, ...]]) -> None:
        self.value, self.path, self.reads = value, path, reads

    def __getitem__(self, key: str) -> Any:
        self.reads.add((*self.path, key))
        return wrapped(self.value[key], (*self.path, key), self.reads)

    def __iter__(self) -> Iterator[str]:
        self.reads.add(self.path)
        return iter(self.value)

    def __len__(self) -> int:
        self.reads.add(self.path)
        return len(self.value)


def wrapped(value: Any, path: tuple[Any, ...], reads: set[tuple[Any, ...]]) -> Any:
    if isinstance(value, dict):
        return Recorder(value, path, reads)
    if isinstance(value, list):
        return [wrapped(item, (*path, number), reads) for number, item in enumerate(value)]
    return value


def covers(ref: Ref, read: tuple[Any, ...]) -> bool:
    """A reference covers the reads on the way to it, at it and below it."""
    segs = (ref.root, *ref.segs)
    pairs = zip(segs, read, strict=False)
    return all(
        not isinstance(seg, str | int) or str(seg) == str(key) or (isinstance(seg, int) and seg < 0)
        for seg, key in pairs
    )


DOCUMENT = {
    "a": 1,
    "b": "text",
    "flag": True,
    "none": None,
    "o": {"a": 2, "b": "a", "o": {"a": 3, "l": [1, 2]}, "flag": False},
    "l": [{"a": 1, "b": "x", "o": {"a": 5}}, {"a": 2, "b": "y", "o": {"a": 6}}],
    "n": [1, 2, 3],
}
roots = st.sampled_from(["workflow_input", "step.s-1", "steps.s-1.result", "loop_item", "loop.parent.item", "event"])
fields = st.sampled_from(
    [
        ".a",
        ".b",
        ".o",
        ".l",
        ".n",
        ".flag",
        ".none",
        ".zz",
        '["a"]',
        '["o"]',
        "[0]",
        "[-1]",
        ".1",
        "?.o",
        "?.zz",
        ".`l`",
    ]
)
paths = st.builds(lambda root, parts: root + "".join(parts), roots, st.lists(fields, max_size=4))
readers = st.recursive(
    st.one_of(paths, st.sampled_from(["1", '"a"', "true", "null", "[]"])),
    lambda inner: st.one_of(
        st.builds("({} ?? {})".format, paths, inner),
        st.builds(
            "(has({}) ? {} : {})".format, paths.filter(lambda p: p.count(".") > 1 and "?" not in p), inner, inner
        ),
        st.builds("({} == {} ? {} : {})".format, inner, inner, inner, inner),
        st.builds("({} != null && {} == 1)".format, inner, inner),
        st.builds("{}.map(v, v.o)".format, paths),
        st.builds("{}.map(v, [v, {}])".format, paths, inner),
        st.builds("{}.filter(v, v.a == 1).map(w, w.o.a)".format, paths),
        st.builds("{}.exists(v, v.o.a == {})".format, paths, inner),
        st.builds("{}.map(v, {}.map(w, [v.a, w.b]))".format, paths, paths),
        st.builds("json([{}, {}])".format, inner, inner),
        st.builds(
            "({})[{}]".format,
            inner,
            st.sampled_from(["0", '"a"', "workflow_input.b", "workflow_input.a", "workflow_input.o.b"]),
        ),
        st.builds("[{}, {}][{}].a".format, inner, inner, inner),
        st.builds('{{"k": {}, "o": {}}}.o.a'.format, inner, inner),
        st.builds("({} ? {} : {}).o.a".format, paths, paths, paths),
        st.builds("keys({})".format, inner),
        st.builds("({} | default({}))".format, inner, inner),
        st.builds("({}.l + {}.l).map(v, v.o.a)".format, roots, roots),
    ),
    max_leaves=6,
)


def document_context(document: Any) -> dict[str, Any]:
    record = {"status": "completed", "result": document, "attempts": 1}
    loop = {"index": 0, "parent": {"item": document}}
    return {
        "workflow_input": document,
        "step": {"s-1": document},
        "steps": {"s-1": record},
        "loop_item": document,
        "loop": loop,
        "event": document,
    }


@many
@given(readers)
def test_every_path_that_is_read_is_covered_by_a_reference(source):
    reads: set[tuple[Any, ...]] = set()
    context = {root: wrapped(value, (root,), reads) for root, value in document_context(DOCUMENT).items()}
    kind, code = outcome(source, context)
    if kind == "error" and code in ("syntax", "step", "limit") and not reads:
        return
    refs = compile_expression(source).refs()
    assert [read for read in reads if not any(covers(ref, read) for ref in refs)] == []


@some
@given(readers)
def test_lazy_mappings_and_plain_dicts_give_the_same(source):
    context = document_context(DOCUMENT)
    lazy = {root: wrapped(value, (root,), set()) for root, value in context.items()}

    def shape(result: Any) -> Any:
        if isinstance(result, Mapping):
            return {key: shape(result[key]) for key in result}
        return [shape(item) for item in result] if isinstance(result, list | tuple) else result

    assert shape(outcome(source, lazy)) == shape(outcome(source, context))


@some
@given(readers, trees)
def test_evaluation_never_changes_the_context(source, extra):
    context = document_context({**copy.deepcopy(DOCUMENT), "x": extra})
    before = copy.deepcopy(context)
    outcome(source, context)
    outcome(f"sort(keys(workflow_input)) + unique([{source}]) + flatten([[workflow_input.n]])", context)
    assert context == before
    assert repr(context) == repr(before)


@some
@given(readers)
def test_evaluating_twice_gives_the_same(source):
    context = document_context(DOCUMENT)
    assert outcome(source, context) == outcome(source, context)
