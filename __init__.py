"""stateat checks every cached recurrent state of a simulated server: does a slot hold the state that its hash claims?

>>> import stateat
>>> result = stateat.replay("s02-anatomy")
>>> result.variants["old gate"].poisoned
1

What a program or a notebook calls is in :mod:`stateat.sim.api`, and here; docs/python.md tells it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stateat.sim.api import RecordedResult, Result, Scenario, load, paired, rates, replay, sweep, wilson
    from stateat.sim.errors import (
        DepartureWarning,
        EngineError,
        InputError,
        MissingError,
        NotAsExpected,
        PolicyError,
        StateatError,
    )

    __version__: str

_ERRORS = (
    "DepartureWarning",
    "EngineError",
    "InputError",
    "MissingError",
    "NotAsExpected",
    "PolicyError",
    "StateatError",
)
__all__ = [
    "DepartureWarning",
    "EngineError",
    "InputError",
    "MissingError",
    "NotAsExpected",
    "PolicyError",
    "RecordedResult",
    "Result",
    "Scenario",
    "StateatError",
    "__version__",
    "load",
    "paired",
    "rates",
    "replay",
    "sweep",
    "wilson",
]


def __getattr__(name: str) -> Any:
    # Loaded when it is asked for: `import stateat.sim.events` stays cheap.
    if name == "__version__":
        return import_module("importlib.metadata").version("stateat")
    if name not in __all__:
        raise AttributeError(f"module 'stateat' has no attribute {name!r}")
    return getattr(import_module("stateat.sim.errors" if name in _ERRORS else "stateat.sim.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
