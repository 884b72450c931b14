"""Documents and code say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import pytest

from stepwell.kinds import discover

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(path for pattern in ("*.md", "docs/**/*.md", "examples/**/README.md") for path in ROOT.glob(pattern))


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]


def _declared() -> set[str]:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    lists = [
        data["project"]["dependencies"],
        *data["project"]["optional-dependencies"].values(),
        *data["dependency-groups"].values(),
        data["build-system"]["requires"],
    ]
    return {_name(requirement) for requirements in lists for requirement in requirements}


def test_every_dependency_has_its_reason_and_no_reason_lacks_its_dependency():
    text = (ROOT / "docs/decisions/dependencies.md").read_text("utf-8")
    explained = {
        name
        for line in text.splitlines()
        if line.startswith("- `")
        for name in re.findall(r"`([^`]+)`", line.split(":")[0])
    }
    assert explained == _declared()


def test_every_decision_is_in_the_list_and_has_a_number_of_its_own():
    listed = (ROOT / "docs/decisions/README.md").read_text("utf-8")
    files = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    assert len({file.name[:4] for file in files}) == len(files)
    for file in files:
        title = file.read_text("utf-8").splitlines()[0].removeprefix("# ")
        assert f"- [{title}]({file.name})" in listed


@pytest.mark.parametrize("kind", discover().names())
def test_every_kind_is_documented_with_all_its_fields(kind):
    text = (ROOT / "docs/reference/language.md").read_text("utf-8")
    found = re.search(rf"^### `{kind}`\n(.*?)(?=^##)", text, re.DOTALL | re.MULTILINE)
    assert found, f"docs/reference/language.md has no section on {kind}"
    common = {"id", "type", "name", "description", "depends_on", "join", "condition", "on_error", "compensate"}
    common |= {"timeout", "retry", "output_schema"}
    model = discover().get(kind)
    assert model is not None
    fields = {field.alias or name for name, field in model.model_fields.items()} - common
    words = set(re.findall(r"\w+", found[1]))
    assert fields <= words, f"{kind}: not documented: {sorted(fields - words)}"


@pytest.mark.parametrize("kind", discover().names())
def test_a_kind_is_marked_as_not_performed_exactly_if_it_is_refused(kind):
    model = discover().get(kind)
    assert model is not None
    text = (ROOT / "docs/reference/language.md").read_text("utf-8")
    step = model.model_construct(id="x", type=kind)
    refused = any(where == ("type",) for where, _ in step.unperformed())
    section = text.split(f"### `{kind}`\n")[1]
    assert section.startswith("†") == refused


def test_every_kind_of_failure_is_documented():
    from stepwell.definition.policy import ERROR_KINDS

    text = (ROOT / "docs/reference/errors.md").read_text("utf-8")
    assert set(re.findall(r"`([a-z_]+)`", text)) >= ERROR_KINDS


def test_every_setting_and_its_variable_are_documented():
    from stepwell.engine.budget_settings import KEYS
    from stepwell.engine.http_settings import HTTP_KEYS
    from stepwell.engine.limit_settings import LIMIT_KEYS
    from stepwell.engine.mcp_settings import MCP_KEYS
    from stepwell.engine.settings import PROJECT_KEYS, known_variables
    from stepwell.engine.settings_models import MODEL_KEYS

    text = (ROOT / "docs/reference/settings.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([a-zA-Z_.]+)` \| `([A-Z_]+)` \|", text, re.MULTILINE))
    sections = {
        "project": PROJECT_KEYS,
        "limits": LIMIT_KEYS,
        "http": HTTP_KEYS,
        "budget.account": KEYS,
        "budget.workflow": KEYS,
        "models.NAME": MODEL_KEYS,
        "mcp.NAME": MCP_KEYS,
    }
    keys = [f"{section}.{key}" for section, known in sections.items() for key in known]
    others = {"secrets.NAME": "STEPWELL_SECRETS_NAME"}
    assert rows == dict(zip(keys, known_variables(["name"], ["name"]), strict=True)) | others


def _choices(command: click.Command) -> list[str]:
    """The words that a command takes as an argument."""
    return [word for each in command.params if isinstance(each.type, click.Choice) for word in each.type.choices]


def test_every_command_is_documented_and_every_documented_command_exists():
    from stepwell.cli.app import stepwell

    text = (ROOT / "docs/reference/cli.md").read_text("utf-8")
    context = click.Context(stepwell)
    commands = set(re.findall(r"^\| `stepwell ([a-z]+)", text, re.MULTILINE))
    assert commands == set(stepwell.list_commands(context))
    for group, command in re.findall(r"`stepwell ([a-z]+) ([a-z]+)", text):
        found = stepwell.get_command(context, group)
        assert found is not None, group
        known = found.list_commands(context) if isinstance(found, click.Group) else _choices(found)
        assert command in known, f"{group} {command}"


def test_the_diagram_of_the_states_of_a_run_knows_every_state_that_is_reached():
    from stepwell.ports import FINAL, PARKED, RUNNABLE

    text = (ROOT / "docs/explanation/run-states.md").read_text("utf-8")
    diagram = re.search(r"```mermaid\n(.*?)```", text, re.DOTALL)
    assert diagram
    arrows = re.findall(r"^    (\S+) --> (\w+|\[\*\])", diagram[1], re.MULTILINE)
    drawn = {state for arrow in arrows for state in arrow} - {"[*]"}
    assert drawn == {*RUNNABLE, *PARKED, *FINAL}
    assert {before for before, after in arrows if after == "[*]"} == set(FINAL)
    assert all(f"`{state}`" in text for state in (*RUNNABLE, *PARKED, *FINAL))


def test_every_reason_of_a_skipped_step_is_documented():
    text = (ROOT / "docs/explanation/run-states.md").read_text("utf-8")
    code = "".join(file.read_text("utf-8") for file in (ROOT / "src/stepwell/interpreter").glob("*.py"))
    known = ("condition_false", "dependencies_skipped", "branch_not_taken", "upstream_failed", "run_ended", "operator")
    assert all(f'"type": "{reason}"' in code for reason in known)
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(known)


def test_every_exception_is_documented():
    from stepwell import errors

    names = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.StepwellError) and not name.startswith("_")
    }
    text = (ROOT / "docs/reference/errors.md").read_text("utf-8")
    assert {name for name in names if f"`{name}" not in text} == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_documents_lead_somewhere(document):
    text = re.sub(r"```.*?```", "", document.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("https://", "http://")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_anchors_of_documents_exist(document):
    text = document.read_text("utf-8")
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", text):
        if target.startswith("http"):
            continue
        other = (document.parent / target).read_text("utf-8") if target else text
        anchors = {
            re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")
            for title in re.findall(r"^#+ (.+)$", other, re.MULTILINE)
        }
        assert anchor in anchors, f"{document.name}: {target}#{anchor}"


def test_the_readme_has_the_two_commands_and_dev_py_knows_them():
    import importlib.util

    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    dev = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dev)
    commands = set(re.findall(r"^python3 dev\.py (\w+)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE))
    assert commands == {"example", "test"}
    assert all(callable(getattr(dev, command)) for command in commands)
    assert "python3 dev.py test" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_dev_py_is_short_and_needs_the_standard_library_only():
    import ast
    import sys

    text = (ROOT / "dev.py").read_text("utf-8")
    assert len(text.splitlines()) < 105
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


@pytest.mark.parametrize("layer", ["interpreter", "engine"])
def test_the_rooms_of_the_architecture_exist(layer):
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    section = text.split(f"## Rooms of the {layer}\n")[1].split("\n## ")[0]
    rooms = {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)
    }
    files = {file.stem for file in (ROOT / "src/stepwell" / layer).glob("*.py")}
    assert len(rooms) >= 10
    assert {room for room in rooms if not any(file.endswith(room.removeprefix("…")) for file in files)} == set()


def test_the_changelog_begins_with_unreleased():
    titles = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert titles[0] == "Unreleased"


def test_the_workflows_of_the_guide_to_failures_are_right():
    from stepwell.definition.load import load_text
    from stepwell.kinds import discover

    text = (ROOT / "docs/guides/when-things-go-wrong.md").read_text("utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    head = "workflow: w\ninput: {type: object, properties: {text: {type: string}, to: {type: string}}}\nsteps:\n"
    for block in blocks:
        load_text(head + block, file="w.yaml", kinds=discover())
