"""Settings: what stepwell.toml and the environment may say, and how mistakes are told."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from stepwell.adapters.models.price import Price
from stepwell.engine.http_settings import HTTP_KEYS, HttpSettings
from stepwell.engine.limit_settings import LIMIT_KEYS, LimitSettings
from stepwell.engine.settings import PROJECT_KEYS, Settings, absolute_database, known_variables
from stepwell.engine.settings_models import MODEL_KEYS
from stepwell.errors import DefinitionError


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, text: str) -> Path:
    file = folder / "stepwell.toml"
    file.write_text(text, encoding="utf-8")
    return file


def problems(folder: Path, text: str, environ=None) -> list[str]:
    write(folder, text)
    with pytest.raises(DefinitionError) as caught:
        Settings.load(folder, environ or {})
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def test_without_a_file_the_defaults_hold(project):
    found = Settings.load(project, {})
    assert found.file is None
    assert found.root == project
    assert found.database == f"sqlite:///{project}/stepwell.db"
    assert found.default_model == "embedded"
    assert found.models["embedded"].provider == "embedded"
    assert found.durability == "full"


def test_the_file_is_searched_upwards_from_the_workflow_then_in_the_working_folder(project, tmp_path_factory):
    write(project, '[project]\nrecipes = "r"\n')
    deep = project / "a" / "b"
    deep.mkdir(parents=True)
    workflow = deep / "w.yaml"
    workflow.write_text("x")
    assert Settings.load(workflow, {}).recipes == (project / "r",)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert Settings.load(elsewhere / "w.yaml", {}).recipes == (project / "r",)
    write(deep, '[project]\nrecipes = "near"\n')
    assert Settings.load(workflow, {}).recipes == (deep / "near",)


def test_paths_are_relative_to_the_file_and_those_of_the_environment_to_the_working_folder(project):
    sub = project / "sub"
    sub.mkdir()
    write(sub, '[project]\nworkflows = "w"\ntools = ["t.py", "more/u.py"]\ndatabase = "sqlite:///data/x.db"\n')
    found = Settings.load(sub, {})
    assert found.workflows == (sub / "w",)
    assert found.tools == (sub / "t.py", sub / "more" / "u.py")
    assert found.database == f"sqlite:///{sub}/data/x.db"
    environ = {"STEPWELL_DATABASE": "sqlite:///y.db", "STEPWELL_TOOLS": os.pathsep.join(["a.py", "b.py"])}
    found = Settings.load(sub, environ)
    assert found.database == f"sqlite:///{project}/y.db"
    assert found.tools == (project / "a.py", project / "b.py")


def test_every_key_has_a_twin_in_the_environment(project):
    write(project, '[models.big-one]\nprovider = "openai"\nmodel = "m"\n')
    values = {
        "STEPWELL_WORKFLOWS": "w",
        "STEPWELL_RECIPES": "r",
        "STEPWELL_TOOLS": "t.py",
        "STEPWELL_DATABASE": "sqlite:////tmp/z.db",
        "STEPWELL_DEFAULT_MODEL": "big-one",
        "STEPWELL_DURABILITY": "normal",
        "STEPWELL_EMBEDDED_GGUF": "m.gguf",
        "STEPWELL_USER": "ana",
        "STEPWELL_LIMITS_MODEL_CALLS": "4",
        "STEPWELL_LIMITS_REDIS": "redis://:a-very-secret@cache:6379/1",
        "STEPWELL_LIMITS_LEASE": "12.5",
        "STEPWELL_LIMITS_ON_LIMITER_ERROR": "closed",
        "STEPWELL_HTTP_ALLOW_PRIVATE": "localhost:8000,10.0.0.0/8, ::1",
        "STEPWELL_HTTP_MAX_BYTES": "1000",
        "STEPWELL_BUDGET_ACCOUNT_TOKENS": "1000",
        "STEPWELL_BUDGET_ACCOUNT_USD": "7.5",
        "STEPWELL_BUDGET_ACCOUNT_PERIOD": "day",
        "STEPWELL_BUDGET_ACCOUNT_ON_EXCEED": "suspend",
        "STEPWELL_BUDGET_WORKFLOW_TOKENS": "100",
        "STEPWELL_BUDGET_WORKFLOW_USD": "1",
        "STEPWELL_BUDGET_WORKFLOW_PERIOD": "month",
        "STEPWELL_BUDGET_WORKFLOW_ON_EXCEED": "big-one",
        "STEPWELL_MODELS_BIG_ONE_PROVIDER": "anthropic",
        "STEPWELL_MODELS_BIG_ONE_BASE_URL": "https://b",
        "STEPWELL_MODELS_BIG_ONE_API_KEY": "sk-very-secret",
        "STEPWELL_MODELS_BIG_ONE_MODEL": "other",
        "STEPWELL_MODELS_BIG_ONE_MAX_CONCURRENCY": "3",
        "STEPWELL_MODELS_BIG_ONE_FALLBACK": "embedded",
        "STEPWELL_MODELS_BIG_ONE_USD_PER_MILLION_INPUT": "2.5",
        "STEPWELL_MODELS_BIG_ONE_USD_PER_MILLION_OUTPUT": "10",
        "STEPWELL_MODELS_BIG_ONE_USD_PER_MILLION_CACHED_INPUT": "0",
    }
    assert sorted(values) == sorted(known_variables(["big-one"]))
    assert len(values) == len(PROJECT_KEYS) + len(LIMIT_KEYS) + len(HTTP_KEYS) + len(MODEL_KEYS) + 8
    found = Settings.load(project, values)
    assert (found.budgets.account.period, found.budgets.account.budget.on_exceed) == ("day", "suspend")
    assert found.budgets.workflow.budget.on_exceed == {"model": "big-one"}
    assert found.http == HttpSettings(("localhost:8000", "10.0.0.0/8", "::1"), 1000)
    model = found.models["big-one"]
    assert (found.durability, found.default_model) == ("normal", "big-one")
    assert found.user == "ana"
    assert found.embedded_gguf == str(project / "m.gguf")
    assert (model.provider, model.base_url, model.model, model.max_concurrency) == (
        "anthropic",
        "https://b",
        "other",
        3,
    )
    assert model.api_key.reveal() == "sk-very-secret"
    limits = found.limits
    assert (limits.model_calls, limits.lease, limits.on_limiter_error) == (4, 12.5, "closed")
    assert limits.redis.reveal() == values["STEPWELL_LIMITS_REDIS"]
    assert "a-very-secret" not in f"{found!r}"
    assert (model.fallback, model.price) == (("embedded",), Price(2.5, 10.0, 0.0))


def test_a_model_can_be_made_by_the_environment_alone(project):
    environ = {"STEPWELL_MODELS_FAST_PROVIDER": "openai", "STEPWELL_MODELS_FAST_MODEL": "m"}
    found = Settings.load(project, environ)
    assert found.models["fast"].model == "m"
    assert found.default_model == "fast"


def test_keys_come_from_the_environment_or_a_file_and_are_never_shown(project):
    (project / "key.txt").write_text("sk-from-file\n")
    write(
        project,
        '[models.a]\nprovider = "openai"\nmodel = "m"\napi_key = "env:A_KEY"\n'
        '[models.b]\nprovider = "openai"\nmodel = "m"\napi_key = "file:key.txt"\n'
        '[models.c]\nprovider = "openai"\nmodel = "m"\napi_key = "env:NOT_SET"\n',
    )
    found = Settings.load(project, {"A_KEY": "sk-from-environ"})
    assert found.models["a"].api_key.reveal() == "sk-from-environ"
    assert found.models["b"].api_key.reveal() == "sk-from-file"
    assert found.models["c"].api_key.missing == "the environment variable NOT_SET is not set"
    shown = f"{found!r} {found} {found.models['a'].api_key} {[*found.models.values()]}"
    assert "sk-from" not in shown
    assert "env:A_KEY" in shown
    with pytest.raises(TypeError):
        pickle.dumps(found.models["a"].api_key)


def test_a_key_written_into_the_file_is_refused_and_not_repeated(project):
    told = problems(project, '[models.a]\nprovider = "openai"\nmodel = "m"\napi_key = "sk-oops"\n')
    said = "stepwell.toml:4:1: error[settings] a key is not written into stepwell.toml"
    assert told == [f'{said}\n    hint: write api_key = "env:NAME_OF_A_VARIABLE" or "file:PATH"']


def test_all_mistakes_are_told_at_once_with_their_places(project):
    told = problems(
        project,
        '[project]\nworkflow = "w"\ndurability = "fast"\ntools = [1]\n\n[modles.a]\n\n[mail]\nhost = "x"\n'
        '[models.a]\nprovider = "opnai"\nmodel = "m"\n  base_url = "ftp://x"\nmax_concurrency = -1\n',
    )
    assert [line.partition("\n")[0] for line in told] == [
        "stepwell.toml:6:2: error[unknown] there is no key 'modles'",
        "stepwell.toml:8:2: error[not_performed] [mail] is not read by this version",
        "stepwell.toml:2:1: error[unknown] there is no key 'workflow'",
        "stepwell.toml:4:1: error[settings] tools is a path or a list of paths",
        "stepwell.toml:3:1: error[settings] durability is full or normal, this is 'fast'",
        "stepwell.toml:14:1: error[settings] max_concurrency is a whole number of calls, 0 for no limit",
        "stepwell.toml:11:1: error[unknown] there is no provider 'opnai'",
        "stepwell.toml:13:3: error[settings] base_url begins with http:// or https://, this is 'ftp://x'",
    ]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("[project\n", "stepwell.toml:1:9: error[syntax] not TOML: Expected ']' at the end of a table declaration"),
        ("[project]\na = 1\na = 2\n", "stepwell.toml:3:6: error[syntax] not TOML: Cannot overwrite a value"),
        ('project = "x"\n', "stepwell.toml:1:1: error[settings] project is a section"),
        ('database = "x"\n', "stepwell.toml:1:1: error[unknown] there is no key 'database'"),
        ('[project]\ndatabase = "postgresql://x/y"\n', "stepwell.toml:2:1: error[settings] databases of this version"),
        (
            '[project]\ndefault_model = "bg"\n[models.big]\nprovider="openai"\nmodel="m"\n',
            "stepwell.toml:2:1: error[unknown] there is no model 'bg'",
        ),
        ('[models.x]\nmodel = "m"\n', "stepwell.toml:1:2: error[settings] the model 'x' has no provider"),
        ('[models.x]\nprovider = "openai"\n', "stepwell.toml:1:2: error[settings] the model 'x' has no `model`"),
        ("[models]\nx = 1\n", "stepwell.toml:2:1: error[settings] models.x is a section"),
    ],
)
def test_a_mistake_is_told_where_it_is(project, text, first):
    assert problems(project, text)[0].startswith(first)


def test_a_mistake_in_the_environment_names_the_variable(project):
    with pytest.raises(DefinitionError) as caught:
        Settings.load(project, {"STEPWELL_DURABILITY": "none"})
    assert str(caught.value).startswith("STEPWELL_DURABILITY: error[settings] durability is full or normal")


def test_variables_of_others_and_empty_ones_are_left_alone(project):
    found = Settings.load(project, {"STEPWELL_TEST_POSTGRES": "x", "STEPWELL_DATABASE": "", "STEPWELL_MODELS_X": "y"})
    assert found.database.endswith("/stepwell.db")
    assert list(found.models) == ["embedded"]


def test_the_default_model_is_the_only_one_declared_unless_said(project):
    write(project, '[models.big]\nprovider = "openai"\nmodel = "m"\n')
    assert Settings.load(project, {}).default_model == "big"
    write(project, '[project]\ndefault_model = "embedded"\n[models.big]\nprovider = "openai"\nmodel = "m"\n')
    assert Settings.load(project, {}).default_model == "embedded"


def test_a_byte_order_mark_and_windows_lines_are_fine(project):
    (project / "stepwell.toml").write_bytes(b'\xef\xbb\xbf[project]\r\nrecipes = "r"\r\n')
    assert Settings.load(project, {}).recipes == (project / "r",)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///x.db", "/p/x.db"),
        ("sqlite:///./x.db", "/p/x.db"),
        ("sqlite:////data/x.db", "/data/x.db"),
        ("x.db", "/p/x.db"),
        ("/data/x.db", "/data/x.db"),
    ],
)
def test_databases_are_made_absolute(url, path):
    assert absolute_database(url, Path("/p")) == f"sqlite:///{path}"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "redis://x", "sqlite://x.db"])
def test_what_names_no_file_is_no_database(url):
    with pytest.raises(ValueError):
        absolute_database(url, Path("/p"))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("model_calls = -1", "model_calls is a whole number of calls, 0 for no limit"),
        ("model_calls = true", "model_calls is a whole number of calls, 0 for no limit"),
        ("lease = 0.5", "lease is a number of seconds from 1 to 3600"),
        ("lease = nan", "lease is a number of seconds from 1 to 3600"),
        ('on_limiter_error = "maybe"', "on_limiter_error is local, open or closed, this is 'maybe'"),
        ('redis = "redis://:pass-word@cache"', "a password is not written into stepwell.toml"),
        ('redis = "unix:///run/r.sock?password=pass-word"', "a password is not written into stepwell.toml"),
        ('redis = "http://cache"', "redis is an address redis://HOST:PORT/DB, rediss://HOST:PORT/DB or unix://PATH"),
        ('redis = "redis://cache:port"', "redis is no address that can be read"),
        ('redis = "redis://"', "redis is an address redis://HOST:PORT/DB, rediss://HOST:PORT/DB or unix://PATH"),
        ('redis = "env:NOT_SET"', "redis has no address: the environment variable NOT_SET is not set"),
        ("redis = 1", "redis is an address"),
    ],
)
def test_limits_that_cannot_be_are_refused_where_they_are_written(project, lines, message):
    (told,) = problems(project, f"[limits]\n{lines}\n")
    assert told.startswith(f"stepwell.toml:2:1: error[settings] {message}\n    hint: write ")
    assert "pass-word" not in told


def test_limits_have_defaults_and_an_unknown_key_is_told(project):
    write(project, '[limits]\nmodel_calls = 3\nredis = "redis://cache/2"\n')
    found = Settings.load(project, {}).limits
    assert found == LimitSettings(model_calls=3, redis=found.redis)
    assert found.redis.reveal() == "redis://cache/2"
    assert problems(project, "[limits]\nmodelcalls = 3\n")[0].startswith("stepwell.toml:2:1: error[unknown]")


def test_prices_and_fallbacks_are_whole_and_known(project):
    told = problems(
        project,
        '[models.a]\nprovider = "openai"\nmodel = "m"\nusd_per_million_input = -1\nfallback = "b"\n'
        '[models.b]\nprovider = "openai"\nmodel = "m"\nusd_per_million_output = 3\n'
        '[models.c]\nprovider = "openai"\nmodel = "m"\nfallback = ["c", "d", "embedded", "embedded"]\n',
    )
    text = "\n".join(told)
    for said in (
        "a price is US dollars per million tokens",
        "fallback lists names of models",
        "the model 'b' has half a price: usd_per_million_input is not said",
        "the model 'c' falls back to 'c' more than once",
        "the model 'c' falls back to 'embedded' more than once",
        "there is no model 'd'",
    ):
        assert said in text
    write(
        project,
        '[models.a]\nprovider = "openai"\nmodel = "m"\nusd_per_million_input = 1\nusd_per_million_output = 2.5\n'
        'fallback = ["embedded"]\n',
    )
    model = Settings.load(project, {}).models["a"]
    assert (model.price, model.fallback) == (Price(1.0, 2.5), ("embedded",))
    assert Settings.load(project, {}).models["embedded"].price is None


def test_budgets_are_read_exactly(project):
    write(
        project,
        '[budget.account]\nusd = 50.10\n[budget.workflow]\ntokens = 2_000_000\nperiod = "day"\n'
        '[budget.workflows.triage]\nusd = 5\non_exceed = {model = "small"}\n',
    )
    said = {"STEPWELL_BUDGET_ACCOUNT_USD": "7.5", "STEPWELL_BUDGET_WORKFLOW_ON_EXCEED": "small"}
    both = Settings.load(project, said).budgets
    assert both.account.budget.usd == 7.5
    assert (both.workflow.budget.on_exceed, both.workflow.budget.tokens) == ({"model": "small"}, 2_000_000)
    alone = Settings.load(project.parent, {"STEPWELL_BUDGET_WORKFLOW_TOKENS": "500"}).budgets
    assert alone.workflow.budget.tokens == 500
    with pytest.raises(DefinitionError, match="tokens is a whole number"):
        Settings.load(project.parent, {"STEPWELL_BUDGET_ACCOUNT_TOKENS": "many"})
    budgets = Settings.load(project, {}).budgets
    at = 1_800_000_000.0
    triage, account = budgets.limits("triage", at)
    assert (account.scope, account.period, account.nano_usd) == ("account", "2027-01", 50_100_000_000)
    assert (triage.subject, triage.tokens, triage.on_exceed) == ("triage", None, {"model": "small"})
    other = budgets.limits("other", at)[0]
    assert (other.period, other.tokens, other.on_exceed) == ("2027-01-15", 2_000_000, "fail")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[budget.account]\ntokens = 0", "stepwell.toml:2:1: error[settings] tokens is a whole number of tokens"),
        ("[budget.account]\nusd = 0.1234567", "stepwell.toml:2:1: error[settings] usd has at most six decimals"),
        ('[budget.account]\nusd = 1\nperiod = "week"', 'stepwell.toml:3:1: error[settings] period is "day" or "month"'),
        ('[budget.workflow]\nperiod = "day"', "stepwell.toml:1:2: error[settings] a budget needs tokens or usd"),
        ("[budget.workflows.a]\nusd = 1\nlimit = 2", "stepwell.toml:3:1: error[unknown] there is no key 'limit'"),
        ("[budget.run]\ntokens = 1", "stepwell.toml:1:2: error[unknown] there is no key 'run'"),
        ("[budget]\naccount = 5", "stepwell.toml:2:1: error[settings] budget.account is a section"),
        ('[budget.account]\nusd = 1\non_exceed = "stop"', "stepwell.toml:3:1: error[settings] on_exceed is fail"),
    ],
)
def test_a_wrong_budget_is_told_where_it_is(project, text, told):
    (problem,) = problems(project, text + "\n")
    assert problem.startswith(told)
