"""The world that decides: scenarios, workloads, the reference engine and its cache, reports.

What a program or a notebook calls is in :mod:`sim.api`, and here too: ``import sim; sim.replay("scenario.yaml")``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.api import Result, Scenario, load, paired, rates, replay, sweep, wilson

__all__ = ["Result", "Scenario", "load", "paired", "rates", "replay", "sweep", "wilson"]


def __getattr__(name: str) -> Any:
    # Loaded when it is asked for: `import sim.events` stays cheap.
    if name not in __all__:
        raise AttributeError(f"module 'sim' has no attribute {name!r}")
    return getattr(import_module("sim.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
