"""What a browser's server says of its page, and whether the page that a run had is still there.

The law of the file: what the server says is read, and no log or process of it; where it says nothing, nothing is known.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from stepwell.adapters.mcp.failures import McpConnectError, McpConnectionLost
from stepwell.adapters.mcp.result import plain, text_of

if TYPE_CHECKING:
    from mcp_types import CallToolResult

Json: TypeAlias = Any

BLANK = "about:blank"
_OPENS = re.compile(r"navigate|tabs?$|close|resize|install")
"""In the names of tools that need no page."""
_DIED = re.compile(r"(page, context or )?browser has been closed|Target (page )?crashed|Browser closed")
_SECTION = re.compile(r"^### (.+)$", re.MULTILINE)
_PAGE = re.compile(r"^- Page (URL|Title): (.*)$", re.MULTILINE)
_DOWNLOADED = re.compile(r'^- Downloaded file (.+) to "(.+)"$', re.MULTILINE)
_FENCED = re.compile(r"^```[a-z]*\n(.*?)\n?```$", re.DOTALL)


def seen(answer: CallToolResult, tool: str, arguments: dict[str, Json], *, new: bool) -> Json:
    """The result of a call of a browser's tool; `new` says that nothing was called in the session before.

    Text in the sections of Playwright's server becomes an object: its `text`, and of `result`, `page`, `snapshot` and
    `downloads` what is there. Raises McpConnectError where the page is not the run's, McpConnectionLost where the
    browser died in the call, and McpRefused.
    """
    text = text_of(answer)
    if text.startswith("### Error") and _DIED.search(text):
        raise McpConnectionLost("the browser ended during the call")
    if not _OPENS.search(tool):
        page = _page(text)
        if page.get("url") == BLANK and BLANK not in json.dumps(arguments):
            raise McpConnectError("the run's page is lost: the browser was started anew, and its page is blank")
        if new and text.startswith("### Error"):
            raise McpConnectError(f"the run's page is lost, if it had one: this session is new ({text.strip()[:500]})")
    result = plain(answer)
    if not text.startswith("### "):
        return result
    found: dict[str, Json] = {"text": text} | _read(text)
    if isinstance(result, dict) and "attachments" in result:
        found["attachments"] = result["attachments"]
    return found


def _read(text: str) -> dict[str, Json]:
    sections = dict(_sections(text))
    found: dict[str, Json] = {}
    if "Result" in sections:
        found["result"] = _value(sections["Result"])
    if page := _page(text):
        found["page"] = page
    if fenced := _FENCED.match(sections.get("Snapshot", "")):
        found["snapshot"] = fenced[1]
    if saved := _DOWNLOADED.findall(text):
        found["downloads"] = [{"name": name, "path": path} for name, path in saved]
    return found


def _sections(text: str) -> list[tuple[str, str]]:
    heads = list(_SECTION.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return [(head[1].strip(), text[head.end() : end].strip()) for head, end in zip(heads, ends, strict=True)]


def _value(said: str) -> Json:
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return said


def _page(text: str) -> dict[str, str]:
    names = {"URL": "url", "Title": "title"}
    return {names[name]: value.strip() for name, value in _PAGE.findall(text)}
