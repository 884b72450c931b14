"""What a scripted model provider does with one request.

The law of the file: data only; every way in which providers fail is one field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from stepwell.ports import ToolRequest

Json: TypeAlias = Any
Ending: TypeAlias = Literal["end", "drop", "reset", "hang", "garbage", "error"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server does.

    `body` replaces the whole answer (text or JSON); `delay` is seconds before anything is sent; `hang` sends nothing
    until the client goes; `reset` breaks the connection with RST; `truncate` sends so many bytes of the announced body
    and closes. `calls` are tools that the model asks for; arguments that are text are sent as they are.

    Of a streamed answer, `cut` events are sent and `then` comes: the response ends in good form, the connection is
    dropped or reset, nothing comes any more, no JSON comes, or the provider says that it has failed. `pause` is seconds
    before each event.
    """

    content: str | None = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | Json = None
    finish_reason: str = "stop"
    refusal: str | None = None
    calls: Sequence[ToolRequest] = ()
    input_tokens: int = 10
    output_tokens: int = 5
    cached_tokens: int = 0
    delay: float = 0.0
    hang: bool = False
    reset: bool = False
    truncate: int | None = None
    cut: int | None = None
    then: Ending = "end"
    pause: float = 0.0
