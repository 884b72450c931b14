"""`stepwell fmt`: canonical words, the author's layout, the same meaning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import event, given, settings
from hypothesis import strategies as st

from stepwell.definition import json_text, load_text, spellings, yaml_text
from stepwell.definition.canonical import digest_of
from stepwell.definition.canonical_text import canonical_text
from stepwell.definition.positions import plain
from stepwell.definition.report import Report
from stepwell.errors import DefinitionError
from stepwell.kinds import discover

ROOT = Path(__file__).parents[2]
KINDS = discover()
FILES = sorted(
    path
    for folder in ("examples", "src/stepwell/cli/project")
    for path in (ROOT / folder).rglob("*.y*ml")
    if not {"tickets", "tests"} & set(path.relative_to(ROOT).parts)
    if not path.name.endswith((".test.yaml", "people.yaml"))
)


def fmt(text: str, file: str = "f.yaml") -> str:
    return canonical_text(text, file=file, kinds=KINDS)


def data(text: str, file: str = "f.yaml"):
    """The canonical data of a workflow, whatever this version performs."""
    report = Report(file)
    compose = json_text.compose if file.endswith(".json") else yaml_text.compose
    found = plain(spellings.canonical(compose(text.removeprefix("\ufeff"), report), KINDS, report))
    assert not report.has_errors, report.error()
    return found


def comments(text: str) -> list[str]:
    return sorted(line.partition("#")[2].strip() for line in text.splitlines() if "#" in line)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_in_canonical_words_is_left_as_it_is(file):
    text = file.read_text("utf-8")
    assert fmt(text, str(file)) == text


BEFORE = """\
# head
workflow_id: order   # id
# strategies
default_error_strategy: suspend  # pause
global_timeout_ms: 60000

steps:
# first
- step_id: fetch
  type: tool_call
  config:  # mine
    # about the tool
    tool: 'fetch'   # tool
    arguments:
      # deep
      a: |
        text # not a comment
          more

      b: 1
  timeout_ms: 1500

  # retry
  retry_policy:
    max_retries: 2  # two
- config:
    title: Sure
    timeout_ms: 3600000
  step_id: ask
  "type": "human_approval"
  depends_on: [fetch]
- step_id: write
  fallback_step: other  # why
  type: recipe
  recipe: r
  error_strategy: fallback
  compensation_step: undo
  depends_on: [ask]
  inputMapping:
    text:
      source: workflowInput  # the ticket
      path: text
    fixed:
      source: static
      value: |
        block {x}
        text
    list:
      value:
        - 1
        - b: '{{x}}'
      source: static
- {step_id: other, type: set, values: {}}
- {step_id: undo, type: set, depends_on: [], config: {values: {}}}
"""
AFTER = """\
# head
workflow: order   # id
version: "1.0"
# strategies
defaults:
  on_error: suspend  # pause
  timeout: 30
  retry: {max_attempts: 4, initial_delay: 1, on: [timeout, rate_limit, connection_error]}
timeout: 60

steps:
# first
- id: fetch
  type: tool_call
  depends_on: []
  # mine
  # about the tool
  tool: 'fetch'   # tool
  arguments:
    # deep
    a: |
      text # not a comment
        more

    b: 1
  timeout: 1.5

  # retry
  retry:
    max_attempts: 3  # two
    initial_delay: 1
    on: [timeout, rate_limit, connection_error]
- title: Sure
  expires_in: 3600
  id: ask
  "type": "approval"
  depends_on: [fetch]
- id: write
  # why
  type: recipe
  recipe: r
  on_error: {strategy: fallback, step: other}
  compensate: {step: undo}
  depends_on: [ask]
  inputs:
    # the ticket
    text: "{{ workflow_input.text }}"
    fixed: |
      block {x}
      text
    list:
      - 1
      - b: '{{string("{{")}}x}}'
- {id: other, type: set, depends_on: [], values: {}}
- {id: undo, type: set, depends_on: [], values: {}}
"""


def test_every_spelling_is_rewritten_where_it_stands_and_comments_stay():
    assert fmt(BEFORE) == AFTER
    assert fmt(AFTER) == AFTER
    assert digest_of(data(BEFORE)) == digest_of(data(AFTER))


def test_line_ends_and_the_byte_order_mark_stay():
    text = "\ufeff" + BEFORE.replace("\n", "\r\n")
    assert fmt(text) == "\ufeff" + AFTER.replace("\n", "\r\n")


def test_a_file_without_a_last_line_break_gets_none():
    text = "workflow: w\nsteps:\n- id: a\n  type: approval\n  config: {title: t, timeoutMs: 30000}"
    assert fmt(text) == "workflow: w\nsteps:\n- id: a\n  type: approval\n  title: t\n  expires_in: 30"


def test_what_people_wrote_as_data_is_not_touched():
    text = (
        "workflow: w\nsteps:\n- {id: a, type: tool_call, tool: t,\n   arguments: {stepId: 1, config: {timeout_ms: 5},"
        " type: human_approval}}\n"
    )
    assert fmt(text) == text


def test_a_json_file_keeps_its_lines():
    text = """\
{
  "workflowId": "w",
  "version": 1.10,
  "default_error_strategy": "fail",
  "steps": [
    {
      "stepId": "a",
      "type": "humanApproval",
      "dependsOn": [],
      "config": {
        "title": "x",
        "show": {
          "k": 1
        },
        "timeoutMs": 1500
      }
    }
  ]
}
"""
    assert (
        fmt(text, "a.json")
        == """\
{
  "workflow": "w",
  "version": "1.10",
  "defaults": {"on_error": "fail", "timeout": 30, "retry": {"max_attempts": 4, "initial_delay": 1, \
"on": ["timeout", "rate_limit", "connection_error"]}},
  "steps": [
    {
      "id": "a",
      "type": "approval",
      "depends_on": [],
      "title": "x",
      "show": {
        "k": 1
      },
      "expires_in": 1.5
    }
  ]
}
"""
    )


def test_anchors_stay_where_they_mean_the_same_and_are_written_out_where_they_do_not():
    same = "workflow: w\nsteps:\n- id: a\n  type: toolCall\n  tool: t\n  arguments: &x {k: 1}\n- {id: b, type: tool_call, tool: t, arguments: *x}\n"
    assert fmt(same) == same.replace("toolCall", "tool_call")
    differs = "workflow: w\nsteps:\n- id: a\n  type: tool_call\n  config: &x {tool: t, timeout_ms: 2000}\n- {id: b, type: tool_call, config: *x}\n"
    found = fmt(differs)
    assert data(found) == data(differs)
    assert "config" not in found
    assert fmt(found) == found


def test_a_wrong_file_is_refused_with_all_its_problems():
    with pytest.raises(DefinitionError) as caught:
        fmt("workflow: w\nsteps:\n- {stepId: a, type: tool_call}\n- {id: a, type: nope}\n")
    assert len(caught.value.problems) >= 2


def test_a_recipe_is_rewritten_too():
    text = "recipeId: r  # mine\ninputSchema: {type: object}\nprompt: hi {{input.x}}\noutputSchema: {type: object}\n"
    assert (
        fmt(text) == "recipe: r  # mine\ninput: {type: object}\nprompt: hi {{input.x}}\noutput_schema: {type: object}\n"
    )


_TEXTS = st.sampled_from(
    ["plain", "with: colon", "# hash", "{{workflow_input.x}}", "a\nb\n", "yes", "12", "é 中文", "it's", '"q"', ""]
)
_VALUES = st.recursive(
    _TEXTS | st.integers(-5, 5) | st.none() | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "timeout_ms", "stepId"]), inner, max_size=2)
    ),
    max_leaves=5,
)
_INPUTS = st.one_of(
    _VALUES,
    st.fixed_dictionaries(
        {"source": st.just("workflowInput")},
        optional={"path": st.sampled_from(["a.b", "k[0]['x y']"]), "default": _VALUES},
    ),
    st.fixed_dictionaries({"source": st.just("static"), "value": _VALUES}),
)
_RETRY = st.fixed_dictionaries(
    {},
    optional={
        "max_retries": st.integers(0, 4),
        "initial_delay_ms": st.sampled_from([5, 250, 1000]),
        "retryable_errors": st.just(["timeout"]),
    },
)


@st.composite
def _steps(draw, depth=0):
    steps = []
    for _ in range(draw(st.integers(1, 3))):
        number = draw(st.integers(0, 10**6))
        kind = draw(
            st.sampled_from(
                ["toolCall", "human_approval", "recipe", "set", "condition", "loop", "parallel"][: 4 if depth else 7]
            )
        )
        own = draw({
            "toolCall": st.fixed_dictionaries({"tool": st.just("t")}, optional={"inputs": st.dictionaries(st.sampled_from("xyz"), _INPUTS, max_size=2)}),
            "human_approval": st.fixed_dictionaries({"title": _TEXTS.filter(bool)}, optional={"timeout_ms": st.integers(1, 5000)}),
            "recipe": st.fixed_dictionaries({"recipe_id": st.just("r")}, optional={"inputMapping": st.dictionaries(st.sampled_from("xyz"), _INPUTS, max_size=3)}),
            "set": st.fixed_dictionaries({"values": st.dictionaries(st.sampled_from("xyz"), _VALUES, max_size=2)}),
            "condition": st.fixed_dictionaries({"condition": st.just("workflow_input.x == 1"), "thenSteps": _steps(1)}, optional={"elseSteps": _steps(1)}),
            "loop": st.fixed_dictionaries({"over": st.just([1]), "steps": _steps(1)}),
            "parallel": st.fixed_dictionaries({"branches": st.fixed_dictionaries({"p": _steps(1), "q": _steps(1)})}),
        }[kind])  # fmt: skip
        around = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "error_strategy": st.sampled_from(["continue", "fallback"]),
                    "name": _TEXTS,
                    "dependsOn": st.just([]),
                },
            )
        )
        if kind in {"toolCall", "recipe"}:
            around |= draw(
                st.fixed_dictionaries({}, optional={"retry_policy": _RETRY, "timeout_ms": st.integers(1, 9000)})
            )
        if depth == 0 and (around.get("error_strategy") == "fallback" or draw(st.integers(0, 4)) == 0):
            around["fallback_step"] = "kept"
            if around.get("error_strategy") == "continue":
                del around["error_strategy"]
        elif around.get("error_strategy") == "fallback":
            del around["error_strategy"]
        if depth == 0 and draw(st.integers(0, 4)) == 0:
            around["compensation_step"] = "kept"
        wrapped = {"config": own} if draw(st.booleans()) else own
        step = {draw(st.sampled_from(["id", "stepId", "step_id"])): f"s{number}", "type": kind, **around, **wrapped}
        steps.append(dict(draw(st.permutations(list(step.items())))))
    return steps


_WORKFLOWS = st.fixed_dictionaries(
    {"workflow_id": st.just("w"), "steps": _steps()},
    optional={
        "version": st.sampled_from([1, 1.5, "2"]), "default_error_strategy": st.just("fail"), "global_timeout_ms": st.just(1500),
        "retry_policy": _RETRY, "defaults": st.fixed_dictionaries({}, optional={"timeout_ms": st.just(100)}),
    },
)  # fmt: skip


def _ids(steps):
    for step in steps:
        yield step.get("id") or step.get("stepId") or step.get("step_id")
        own = step.get("config", step)
        for inner in ("thenSteps", "elseSteps", "steps"):
            yield from _ids(own.get(inner, []))
        for branch in own.get("branches", {}).values():
            yield from _ids(branch)


@given(_WORKFLOWS, st.sampled_from(["block", "flow", "mixed", "json", "json lines"]), st.data())
@settings(max_examples=150, deadline=None)
def test_formatting_never_changes_the_meaning_and_is_done_at_once(workflow, style, draw):
    workflow["steps"].append({"step_id": "kept", "type": "set", "config": {"values": {}}})
    names = [*_ids(workflow["steps"])]
    if len(names) != len(set(names)):
        return
    match style:
        case "json":
            text, file = json.dumps(workflow, ensure_ascii=False), "a.json"
        case "json lines":
            text, file = json.dumps(workflow, ensure_ascii=False, indent=draw.draw(st.integers(0, 4))), "a.json"
        case _:
            flow = {"block": False, "flow": True, "mixed": None}[style]
            text = yaml.safe_dump(
                workflow, default_flow_style=flow, sort_keys=False, allow_unicode=True, width=60,
                indent=draw.draw(st.integers(2, 4)),
            )  # fmt: skip
            file = "a.yaml"
    if style == "block":
        lines = text.splitlines()
        at = draw.draw(st.integers(0, len(lines) - 1))
        if lines[at].endswith(":") and '"' not in lines[at] and "'" not in lines[at]:
            lines[at] += "  # remark"
            text = "\n".join(lines) + "\n"
    before = data(text, file)
    try:
        load_text(text, file=file, kinds=KINDS)
    except DefinitionError as error:
        if any(problem.severity == "error" and problem.code != "not_performed" for problem in error.problems):
            event("wrong")
            return
    event(style)
    found = fmt(text, file)
    assert data(found, file) == before
    assert digest_of(data(found, file)) == digest_of(before)
    assert fmt(found, file) == found
    assert comments(found).count("remark") == comments(text).count("remark")
    for word in ("workflow_id", "inputMapping", "thenSteps", "retry_policy", "fallback_step", "config:"):
        assert word not in found or word in json.dumps(before)


@pytest.mark.parametrize("name", ["FIRST", "SECOND"])
def test_both_source_designs_are_rewritten_whole(name):
    from tests.unit.definition import test_spellings

    text = getattr(test_spellings, name)
    found = fmt(text)
    assert data(found) == data(text)
    assert fmt(found) == found
    assert not {"config", "step_id", "inputMapping", "thenSteps", "llmCall", "error_strategy"} & set(
        found.replace(":", " ").replace("{config: {x: 1}", "").replace("config  {x  1}", "").split()
    )


_LAYOUTS = {
    "document marks": "%YAML 1.2\n---\n# a\nworkflowId: w\nsteps:\n- {stepId: a, type: set, values: {}}\n...\n# end\n",
    "explicit keys": "workflow: w\nsteps:\n- ? id\n  : a\n  ? type\n  : humanApproval\n  title: x\n",
    "explicit key of a config": "workflow: w\nsteps:\n- id: a\n  type: set\n  ? config\n  : values: {}\n",
    "indented lists": "workflow: w\nsteps:\n    -   stepId: a\n        type: set\n        config:\n              values:\n                  x: 1\n",
    "a dash alone": "workflow: w\nsteps:\n-\n  stepId: a\n  type: set\n  config:\n    values: {}\n",
    "indentation indicators": "workflow: w\nsteps:\n- id: a\n  type: llm_call\n  config:\n    prompt: |2-\n        two more\n       one more\n\n    maxTokens: 5\n",
    "kept line ends": "workflow: w\nsteps:\n- id: a\n  type: llm_call\n  config:\n      prompt: |+\n        text\n         \n\n      maxTokens: 5\n\n\n",
    "a last text that keeps its line ends": "workflow: w\nsteps:\n- id: a\n  type: llm_call\n  config:\n      maxTokens: 5\n      prompt: |+\n        text\n\n\n",
    "folded texts": "workflow: w\nsteps:\n- id: a\n  type: llm_call\n  config:\n    prompt: >\n      one\n      two\n\n        more\n    system: plain\n      goes on\n",
    "quotes over lines": "workflow: w\nsteps:\n- id: a\n  type: llm_call\n  config:\n    prompt: \"one\n  two\n      three\"\n    system: 'x\n\n      y'\n",
    "brackets over lines": "workflow: w\nsteps:\n- {\n    stepId: a,  # mine\n    type: approval,\n    config: {\n      title: x,\n      timeoutMs: 1000,\n    },\n  }\n",
    "comments in brackets": "workflow: w\nsteps:\n- {  # open\n    stepId: a,\n    # about it\n    type: approval, config: {title: x}\n    # last\n  }\n",
"comments inside brackets that go": "workflow: w\nsteps:\n- {\n    id: a,\n    type: approval,\n    # before\n    config: {  # open\n      # inside\n      title: x  # behind\n    }  # after\n  }\n",
    "comments inside forms": "workflow: w\nsteps:\n- id: a\n  type: recipe\n  recipe: r\n  inputMapping:\n    x: {  # one\n      source: workflowInput,  # two\n      path: a\n    }  # three\n",
    "no space after": "workflow: w\nsteps: [{stepId: a,type: approval,config: {title: x}}]",
    "json in yaml": '{"workflow": "w", "steps": [{"stepId": "a", "type": "set", "config": {"values": {"a": 1}}}]}',
    "an empty config": "workflow: w\nsteps:\n- id: a\n  type: browser_action\n  config: {}\n  server: s\n  tool: t\n- id: b\n  type: set\n  values: {}\n  config: {}\n",
    "nothing but a config": "workflow_id: w\nsteps:\n- config:\n    step_id: a\n    type: set\n    values: {}\n",
    "inputs by brackets": "workflow: w\nsteps:\n- id: a\n  type: recipe\n  recipe: r\n  inputMapping: {x: {source: workflowInput, path: a}, y: {source: static, value: [1, {z: '{{q}}'}]}}\n",
    "an anchored form": "workflow: w\nsteps:\n- id: a\n  type: recipe\n  recipe: r\n  inputMapping:\n    x: &x {source: workflowInput, path: a}\n    y: *x\n",
    "an anchored block form": "workflow: w\nsteps:\n- id: a\n  type: recipe\n  recipe: r\n  inputMapping:\n    x: &x\n      source: workflowInput\n      path: a\n    y: *x\n",
    "an alias of a config": "workflow: w\nsteps:\n- id: a\n  type: set\n  config: &c\n    values: {x: 1}\n- id: b\n  type: set\n  config: *c\n",
    "root words beside defaults": "workflow: w\nretry_policy:  # why\n  max_retries: 1  # one\ndefaults:\n  timeout_ms: 5\ndefault_error_strategy: continue\nsteps: [{id: a, type: set, values: {}}]\n",
    "root words by brackets beside defaults": "workflow: w\nretry_policy: {max_retries: 1}\ndefaults: {timeout_ms: 5}\nsteps: [{id: a, type: set, values: {}}]\n",
    "a rule with steps": "workflow: w\nsteps:\n- id: a\n  type: tool_call\n  tool: t\n  on_error:\n    strategy: fallback\n    steps:\n    - {stepId: b, type: set, config: {values: {}}}\n",
    "steps that undo, verify and stand in": "workflow: w\ndefault_error_strategy:\n  strategy: fallback\n  steps:\n  - {stepId: z, type: set, config: {values: {}}}  # zero\nsteps:\n- {stepId: x, type: set, config: {values: {}}}\n- id: a\n  dependsOn: [x]\n  type: tool_call\n  tool: t\n  verify:  # why\n    steps:\n    - {stepId: b, type: tool_call, config: {tool: find}}  # one\n    tookEffect: step.b.found\n  compensate:\n    steps:\n    - stepId: c  # two\n      type: toolCall\n      config: {tool: cancel}\n  on_error:\n  - {errors: [timeout], strategy: fallback, steps: [{stepId: d, type: set, config: {values: {}}}]}\n  - goto: x\n    maxRounds: 2  # three\n",
    "tabs between": "workflow:\tw\nsteps:\n- stepId:\ta\t# x\n  type:\tset\n  config:\n    values:\t{}\n",
}  # fmt: skip


@pytest.mark.parametrize("name", _LAYOUTS)
def test_every_layout_is_rewritten_and_keeps_its_comments(name):
    text = _LAYOUTS[name]
    found = fmt(text)
    assert data(found) == data(text)
    assert fmt(found) == found
    assert comments(found) == comments(text)
    for word in (
        "stepId",
        "config",
        "workflowId",
        "inputMapping",
        "humanApproval",
        "retry_policy",
        "max_retries",
        "tookEffect",
        "maxRounds",
    ):
        assert word not in found
