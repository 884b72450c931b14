"""Calls of the tool `http`: arguments that exist, and methods that may not be repeated without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.definition.fields import Value
from stepwell.definition.http_call import HTTP, METHODS, PARAMETERS, REPEATABLE, WITHOUT_BODY
from stepwell.definition.report import Finding
from stepwell.definition.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepwell.definition.check.survey import StepSite, Survey
    from stepwell.definition.step import Location

_NAMES = tuple(PARAMETERS["properties"])


def check_http(survey: Survey) -> Iterator[Finding]:
    """What can be known of a request before the run."""
    for site in survey.steps:
        if site.step.type == "tool_call" and getattr(site.step, "tool", None) == HTTP and not site.broken:
            arguments: Mapping[str, Value] = getattr(site.step, "arguments", {})
            yield from _arguments(site, arguments)
            yield from _method(site, arguments)


def _arguments(site: StepSite, arguments: Mapping[str, Value]) -> Iterator[Finding]:
    place: Location = (*site.where, "arguments")
    for name in arguments:
        if name not in _NAMES:
            hint = did_you_mean(name, _NAMES) or f"it takes {', '.join(_NAMES)}"
            yield Finding("input", f"the tool http has no argument '{name}'", (*place, name), hint, key=True)
    if "url" not in arguments:
        yield Finding("input", "the tool http needs the argument 'url'", place if arguments else site.where,
                      "write url: https://...")  # fmt: skip
    elif isinstance(url := _known(arguments["url"]), str) and not url.startswith(("http://", "https://")):
        yield Finding("input", "an address names its scheme, http or https", (*place, "url"), "write url: https://...")
    if {"json", "body"} <= arguments.keys():
        yield Finding("input", "`json` and `body` exclude each other", (*place, "body"), "`json` is sent as JSON")


def _method(site: StepSite, arguments: Mapping[str, Value]) -> Iterator[Finding]:
    place: Location = (*site.where, "arguments", "method")
    given = arguments.get("method")
    method = "GET" if given is None else _known(given)
    if isinstance(method, str) and method.upper() not in METHODS:
        hint = did_you_mean(method.upper(), METHODS) or f"one of {', '.join(METHODS)}"
        yield Finding("input", f"there is no method '{method}'", place, hint)
        return
    bodied = next((name for name in ("json", "body") if name in arguments), None)
    if isinstance(method, str) and method.upper() in WITHOUT_BODY and bodied is not None:
        said = f"a {method.upper()} request has no body"
        yield Finding("input", said, (*site.where, "arguments", bodied), "use `query`, or say another `method`")
    if getattr(site.step, "idempotent", None) is None and not (
        isinstance(method, str) and method.upper() in REPEATABLE
    ):
        word = method.upper() if isinstance(method, str) else "request whose method is known only at run time"
        said = f"a {word} is not repeated once it may have been sent; the step does not say whether it may be"
        yield Finding("idempotent", said, place if given is not None else site.where,
                      "write idempotent: true if the service heeds the Idempotency-Key, else idempotent: false",
                      "note")  # fmt: skip


def _known(value: Value) -> object:
    return value.source if value.tree.is_constant else None
