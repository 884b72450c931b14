"""Recipes in files: where they are found, which one counts, and what is said when there is none."""

from __future__ import annotations

import json

import pytest

from stepwell.definition.load import load_recipe_text
from stepwell.definition.recipe import output_schema_of
from stepwell.errors import DefinitionError, NotFound
from stepwell.library.recipes import FileRecipes

GREET = 'recipe: greet\nversion: "{version}"\nprompt: "Greet {{{{input.name}}}}"\n'
TRIAGE = """
recipe: triage
task: classify
prompt: "{{input.ticket}}"
labels:
  refund: {description: money back, examples: [I want my money back]}
  other: {}
"""


@pytest.fixture
def project(tmp_path):
    flows, shared = tmp_path / "flows", tmp_path / "shared"
    for folder in (flows / "recipes", shared):
        folder.mkdir(parents=True)
    (flows / "support.yaml").write_text("workflow: support\nsteps:\n  - id: a\n    type: recipe\n    recipe: greet\n")
    (flows / "support.json").write_text('{"workflow": "x", "steps": [{"id": "a", "type": "recipe", "recipe": "y"}]}')
    (flows / "ticket.json").write_text('{"ticket": "help"}')
    (flows / "notes.md").write_text("recipe: not one\n")
    (flows / "recipes" / "triage.yml").write_text(TRIAGE)
    (shared / "greet.yaml").write_text(GREET.format(version=1))
    (shared / "greet@2.yaml").write_text(GREET.format(version=2))
    return tmp_path


@pytest.fixture
def recipes(project):
    return FileRecipes(project / "flows" / "support.yaml", [project / "shared", project / "missing"])


def test_recipes_are_found_beside_the_workflow_and_in_the_projects_folders(recipes, project):
    assert recipes.names() == ["greet", "triage"]
    assert recipes.find("triage").file == project / "flows" / "recipes" / "triage.yml"
    assert recipes.find("greet").definition.version == "1"


def test_what_lies_beside_the_workflow_comes_first(recipes, project):
    (project / "flows" / "greet.json").write_text(json.dumps({"recipe": "greet", "version": "9", "prompt": "Hi"}))
    assert recipes.find("greet").definition.version == "9"
    assert recipes.find("greet@1").file == project / "shared" / "greet.yaml"


def test_a_version_is_found_in_its_own_file(recipes):
    assert recipes.find("greet@2").definition.version == "2"
    assert recipes.get("greet", "2")["version"] == "2"


def test_a_missing_version_says_which_there_are(recipes):
    with pytest.raises(NotFound, match="recipe 'greet' has no version '3'; there is 1, 2"):
        recipes.find("greet@3")


def test_a_missing_recipe_says_what_was_probably_meant(recipes):
    with pytest.raises(NotFound, match="there is no recipe 'greeet'; did you mean 'greet'"):
        recipes.find("greeet")


@pytest.mark.parametrize("name", ["../shared/greet", "*", "", "greet.yaml", "/etc/passwd"])
def test_a_name_that_is_a_path_finds_nothing(recipes, name):
    with pytest.raises(NotFound):
        recipes.find(name)


def test_plain_data_makes_the_same_recipe_again(recipes):
    found = recipes.find("triage")
    again = load_recipe_text(json.dumps(found.data), file="x.json")
    assert again == found.definition
    assert list(again.labels) == ["refund", "other"]


def test_the_digest_is_that_of_what_a_recipe_does(recipes, project):
    before = recipes.find("greet").digest
    file = project / "shared" / "greet.yaml"
    file.write_text("# a comment\nname: Greeting\n" + file.read_text())
    assert FileRecipes(None, [project / "shared"]).find("greet").digest == before
    file.write_text(file.read_text().replace("Greet", "Welcome"))
    assert FileRecipes(None, [project / "shared"]).find("greet").digest != before


def test_a_wrong_file_is_told_with_its_place_and_has_no_schema(recipes, project):
    (project / "flows" / "recipes" / "broken.yaml").write_text("recipe: broken\ntask: classify\nprompt: x\n")
    assert recipes.output_schema("broken") is None
    assert "broken" in recipes.names()
    with pytest.raises(DefinitionError, match=r"broken\.yaml"):
        recipes.find("broken")
    assert [problem.file for problem in recipes.problems()] == [str(project / "flows" / "recipes" / "broken.yaml")]


def test_a_file_name_must_be_the_recipes_id(recipes, project):
    (project / "flows" / "recipes" / "other.yaml").write_text(GREET.format(version=1))
    with pytest.raises(DefinitionError, match="holds the recipe 'greet', but its name says 'other'"):
        recipes.find("other")


def test_problems_of_references_come_all_at_once(recipes):
    problems = recipes.problems(["greet", "nope", "greet@7", "nope"])
    assert [problem.message for problem in problems] == [
        "there is no recipe 'nope'",
        "recipe 'greet' has no version '7'; there is 1, 2",
    ]
    assert "shared" in problems[0].hint


def test_a_classification_has_a_label_a_confidence_and_scores(recipes):
    schema = recipes.output_schema("triage")
    assert schema["properties"]["label"]["enum"] == ["refund", "other"]
    assert schema["properties"]["scores"]["required"] == ["refund", "other"]
    assert schema["required"] == ["label", "confidence", "scores"]


def test_a_summary_has_text_and_sentences_and_a_plain_answer_text():
    summary = output_schema_of(load_recipe_text('recipe: s\ntask: extract_summary\nprompt: "{{input.text}}"\n'))
    assert list(summary["properties"]) == ["text", "sentences"]
    assert list(output_schema_of(load_recipe_text("recipe: g\nprompt: hi\n"))["properties"]) == ["text"]
    shaped = load_recipe_text("recipe: g\nprompt: hi\noutput_schema: {type: object, required: [a]}\n")
    assert output_schema_of(shaped) == {"type": "object", "required": ["a"]}


def test_an_unknown_recipe_has_no_schema(recipes):
    assert recipes.output_schema("nope") is None
