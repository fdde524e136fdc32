"""Key tables of docs/scenario-files.md, printed from the models: what is the default and what a key says.

Run as a module it writes the page anew. Prose, and the cells of types, examples and most allowed values, stay as
written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stateat.sim.options import METHODS, Costs, GroupOptions, Offload, Options, Speculative
from stateat.sim.releases.presets import PRESETS
from stateat.sim.scenario.models import (
    Bounds,
    File,
    FindingModel,
    Override,
    SomeEnds,
    VariantExpectation,
)
from stateat.sim.scenario.truth import STATES, Truth
from stateat.sim.schema import fields_of
from stateat.sim.workload.arrivals import ClosedLoop, Gamma, Poisson, Steps
from stateat.sim.workload.generate import Workload
from stateat.sim.workload.inline import Request
from stateat.sim.workload.lengths import Empirical, Fixed, Lognormal, Uniform
from stateat.sim.workload.named_states import NamedState
from stateat.sim.workload.prefixes import Level, MultiTurn, NoPrefixes, Repeat, Tree
from stateat.sim.workload.traces import Trace

PAGE = Path(__file__).parents[2] / "docs" / "scenario-files.md"
TABLES: dict[str, tuple[type[Any], ...]] = {
    "`file`": (File,),
    "`engine`": (Options,),
    "`engine.groups[]`": (GroupOptions,),
    "`engine.speculative`": (Speculative,),
    "`engine.offload`": (Offload,),
    "`engine.costs`": (Costs,),
    "`workload`": (Workload,),
    "`workload.requests[]`": (Request,),
    "`workload.evict[]`": (NamedState,),
    "`workload.arrivals` with `kind: poisson`": (Poisson,),
    "`workload.arrivals` with `kind: gamma`": (Gamma,),
    "`workload.arrivals` with `kind: closed-loop`": (ClosedLoop,),
    "`workload.arrivals` with `kind: steps`": (Steps,),
    "`workload.prompt` with `kind: fixed`": (Fixed,),
    "`workload.prompt` with `kind: uniform`": (Uniform,),
    "`workload.prompt` with `kind: lognormal`": (Lognormal,),
    "`workload.prompt` with `kind: empirical`": (Empirical,),
    "`workload.prefixes` with `kind: none`": (NoPrefixes,),
    "`workload.prefixes` with `kind: tree`": (Tree,),
    "`workload.prefixes` with `kind: multi-turn`": (MultiTurn,),
    "`workload.prefixes` with `kind: repeat`": (Repeat,),
    "`workload.prefixes.levels[]`": (Level,),
    "`workload.trace`": (Trace,),
    "`oracle`": (Truth,),
    "`variants.*` and `cases.*`": (Override,),
    "`expect`": (VariantExpectation,),
    "`expect.findings[]`": (FindingModel,),
    "`expect.*` bounds and lists": (Bounds, SomeEnds),
}
"""Models of each table, by the heading above it."""
CLOSED: dict[tuple[type[Any], str], Iterable[str]] = {
    (Options, "preset"): PRESETS,
    (Speculative, "method"): METHODS,
    (Truth, "state"): STATES,
}
"""Allowed values of keys that are printed too."""


def printed(page: str) -> str:
    """Return the page with the cells that the models say, in the rows of its key tables.

    Raises KeyError for a row of a key that no model has; keys without a row are found by the tests of the page.
    """
    return "".join(_lines(page))


def _lines(page: str) -> Iterator[str]:
    models: tuple[type[Any], ...] = ()
    fields: dict[str, Any] = {}
    for line in page.splitlines(keepends=True):
        if line.startswith("#"):
            models = TABLES.get(line.lstrip("# ").strip(), ())
            fields = {key: field for model in models for key, field in fields_of(model).items()}
        if fields and (row := re.match(r"\| `(\w+)` \|", line)):
            _, key, kind, default, allowed, example, *_ = line.split("|")
            field = fields[row[1]]
            for model in models:
                if values := CLOSED.get((model, row[1])):
                    allowed = f" {', '.join(f'`{value}`' for value in values)} "
            line = "|".join(["", key, kind, _default(field, default), allowed, example, f" {says(field)} ", "\n"])
        yield line


def _default(field: Any, written: str) -> str:
    if field.is_required():
        return " required "
    if isinstance(field.default, str) and field.default:
        return f" `{field.default}` "
    if isinstance(field.default, bool | int | float | str):
        return f" `{json.dumps(field.default)}` "
    return written


def says(field: Any) -> str:
    """Return a field's description as a cell: on one line, without its full stop, pages of docs/ as links."""
    text = " ".join((field.description or "").split()).rstrip(".")
    text = re.sub(r"docs/scenario-files\.md#([\w-]+)", r"[\1](#\1)", text)
    return re.sub(r"docs/([\w-]+\.md)(#[\w-]+)?", r"[\1](\1\2)", text)


if __name__ == "__main__":
    PAGE.write_text(printed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
