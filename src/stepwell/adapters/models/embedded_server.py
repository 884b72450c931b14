"""The child process of the embedded text model: serves one gguf file on 127.0.0.1 until its parent goes.

It is run by its file name, reads one line of JSON from standard input, answers with one line of JSON on standard
output (`{"address": ...}` or `{"error": ..., "type": ...}`), and ends when standard input does.

The law of the file: it outlives its parent by nothing, however the parent dies: Linux kills it (PR_SET_PDEATHSIG),
and everywhere the end of standard input ends it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import IO, Any

_PR_SET_PDEATHSIG = 1


def _die_with(parent: int) -> None:
    """Ask Linux for SIGKILL when the parent dies; it may already have died before this was asked."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)


def _private_output() -> IO[str]:
    """Standard output for the answer alone: llama.cpp writes its logs to descriptors 1 and 2."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    return answer


def _serve(settings: dict[str, Any]) -> Any:
    """Start the server; `slots` requests run at once, each with `context` tokens."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["gguf"]
    params.model_alias = {settings["alias"]}  # else every answer names the file's path
    params.n_ctx = settings["context"] * settings["slots"]
    params.n_parallel = settings["slots"]
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.n_predict = settings["max_tokens"]  # without a bound it generates until the context is full
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.use_jinja = True
    params.warmup = True
    return xllamacpp.Server(params)


def main() -> None:
    """Serve until standard input ends."""
    answer = _private_output()
    settings = json.loads(sys.stdin.readline())
    _die_with(settings["parent"])
    try:
        server = _serve(settings)
        said = {"address": server.listening_address}
    except Exception as error:  # noqa: BLE001 -- told to the parent, which raises it
        said = {"error": str(error), "type": type(error).__name__}
    print(json.dumps(said), file=answer, flush=True)
    if "address" in said:
        sys.stdin.read()
    os._exit(0)  # the server's threads would hold up an ordinary end


if __name__ == "__main__":
    main()
