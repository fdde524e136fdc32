"""Support of a release: options to which its rules give no meaning are refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stateat.sim.options import Options
from stateat.sim.releases import async_default
from stateat.sim.releases.rules import RULES

Refusal = tuple[tuple[str | int, ...], str]
"""The key in ``engine``, and what was found and is allowed."""


def lacks(options: Options, table: Mapping[str, str]) -> Iterator[Refusal]:
    """Find the options to which a table of rule values gives no meaning; a plug-in gives one to all."""
    for lack in async_default.lacks(options, table):
        yield lack.key, f"found {lack.found}, allowed {lack.allowed}{lack.why}"
    for name, rule in RULES.items():
        record = rule.records.get(table[name])
        for lack in record.lacks(options) if record else ():
            why = lack.why or f": {options.preset} has no such thing (rule {name}={table[name]})"
            yield lack.key, f"found {lack.found}, allowed {lack.allowed}{why}"
