"""The commands and examples of the documents work as they stand there."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import click
import pytest

from stepwell.cli.app import stepwell

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(path for pattern in ("*.md", "docs/**/*.md", "examples/**/README.md") for path in ROOT.glob(pattern))
_BLOCK = r"^( *)```{language}\n(.*?)^ *```"


def _blocks(document: Path, language: str) -> list[str]:
    found = re.findall(_BLOCK.format(language=language), document.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(text) for _, text in found]


def _calls(document: Path) -> list[list[str]]:
    """The calls of the command line in a document's blocks, without the program's own name."""
    lines = [line for block in _blocks(document, "sh") for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [call[1:] for call in words if call and Path(call[0]).name == "stepwell"]


def _command(words: list[str]) -> click.Command:
    command: click.Command = stepwell
    for word in words:
        if not isinstance(command, click.Group):
            break
        found = command.get_command(click.Context(command), word)
        assert found is not None, word
        command = found
    return command


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_in_a_document_exists_with_its_options(document):
    for call in _calls(document):
        command = _command(call)
        known = {option for param in command.params for option in param.opts}
        used = {re.split("=", word)[0] for word in call if re.match(r"--?[a-z]", word)}
        assert used <= known, call


def _shell(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder, with the command line of this environment found as `stepwell`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")}
    env.pop("STEPWELL_DATABASE", None)
    command = ["bash", "-c", script]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)


GUIDE = ROOT / "docs/guides/first-workflow.md"


def test_the_guide_works_from_top_to_bottom_as_it_is_written(tmp_path):
    lines = [line for block in _blocks(GUIDE, "sh") for line in block.splitlines()]
    done = _shell(tmp_path, "\n".join(f"{line}\necho left with $?" for line in lines))
    codes = re.findall(r"^left with (\d+)$", done.stdout, re.MULTILINE)
    assert codes == ["0", "0", "0", "0", "3"], done.stdout + done.stderr
    assert "Bonjour, Ana!" in done.stdout


def test_the_tool_of_the_guide_is_found_in_the_file_that_it_is_put_into(tmp_path):
    (tool,) = _blocks(GUIDE, "python")
    assert _shell(tmp_path, "stepwell init my-project").returncode == 0
    with (tmp_path / "my-project/tools.py").open("a", encoding="utf-8") as file:
        file.write(f"\n\n{tool}")
    done = _shell(tmp_path / "my-project", "stepwell tools list")
    assert done.returncode == 0, done.stderr
    assert "order_status" in done.stdout


LANGUAGE = ROOT / "docs/reference/language.md"
_HEAD = """workflow: example
input: {type: object, required: [order], properties: {order: {type: string}}}
steps:
"""


def _example(folder: Path, marker: str, tools: str) -> None:
    """The steps of the language's example that holds `marker`, as a workflow beside its tools."""
    (steps,) = [block for block in _blocks(LANGUAGE, "yaml") if marker in block]
    (folder / "example.yaml").write_text(_HEAD + textwrap.indent(steps, "  "), "utf-8")
    (folder / "stepwell.toml").write_text('[project]\ntools = ["tools.py"]\n', "utf-8")
    (folder / "tools.py").write_text(f"import os\nimport signal\nimport stepwell\n\n{tools}", "utf-8")


def test_the_event_of_the_language_reaches_the_run_that_it_fits(tmp_path):
    _example(
        tmp_path,
        "event: order-paid",
        "@stepwell.tool\ndef ship(order: str, receipt: str) -> str:\n    return f'{order} shipped for {receipt}'\n",
    )
    (send,) = [block for block in _blocks(LANGUAGE, "sh") if "events send" in block]
    assert _shell(tmp_path, "stepwell run example.yaml -i order=A-17").returncode == 5
    other = send.replace("A-17", "A-18").replace("R-9", "R-8")
    resume = "stepwell runs resume $(stepwell runs list | grep -oE '[0-9a-f]{22}' | head -1)"
    assert _shell(tmp_path, f"{other}\n{resume}").returncode == 5
    done = _shell(tmp_path, f"{send}\n{resume}")
    assert done.returncode == 0, done.stderr
    assert "A-17 shipped for R-9" in done.stdout


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_a_call_in_doubt_is_caught_as_the_language_says(tmp_path):
    _example(
        tmp_path,
        "errors: [in_doubt]",
        "@stepwell.tool\ndef charge(order: str) -> dict[str, str]:\n"
        "    with open('calls', 'a') as file:\n        file.write('.')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n",
    )
    assert _shell(tmp_path, "stepwell run example.yaml -i order=A-17").returncode != 0
    resume = "stepwell runs resume $(stepwell runs list | grep -oE '[0-9a-f]{22}' | head -1)"
    done = _shell(tmp_path, resume)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Was order A-17 charged?" in done.stdout
    assert (tmp_path / "calls").read_text("utf-8") == "."
