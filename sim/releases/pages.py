"""Tables of ``docs/rules.md``, printed from the records: ``python -m stateat.sim.releases.pages docs/rules.md``.

A table stands between ``<!-- printed: NAME -->`` and ``<!-- end -->``; the prose around it is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path

from stateat.sim.releases.async_default import ASYNC_DEFAULT, AsyncDefault
from stateat.sim.releases.departures import DEPARTURES
from stateat.sim.releases.presets import CHANGES, PRESETS
from stateat.sim.releases.rules import RULES
from stateat.sim.rules.record import ALWAYS, Standing

PART = re.compile(r"(<!-- printed: ([\w-]+) -->\n).*?(\n<!-- end -->)", re.S)


def page(text: str) -> str:
    """Print the tables of a page anew."""
    return PART.sub(lambda part: f"{part[1]}{PARTS[part[2]]()}{part[3]}", text)


def presets() -> str:
    """A row for each rule, with its value in each preset."""
    rows = ((f"`{name}`", *(f"`{values[name]}`" for values in PRESETS.values())) for name in RULES)
    return _table(("rule", *(f"`{preset}`" for preset in PRESETS)), rows)


def changes() -> str:
    """A row for each preset: how it decides otherwise than the one before it."""
    return _table(("preset", "changes"), ((f"`{preset}`", said) for preset, said in CHANGES.items()))


def asynchronous() -> str:
    """A row for each kind of release: where it does not schedule asynchronously by default, and where it cannot."""
    rows = []
    for record in dict.fromkeys(ASYNC_DEFAULT[preset] for preset in PRESETS):
        used = {preset: ASYNC_DEFAULT[preset] == record for preset in PRESETS}
        rows.append((_spans(used), _conditions(record, record.off, True), _conditions(record, record.forbidden, False)))
    return _table(("presets", "off by default with", "refused with"), rows)


def _conditions(record: AsyncDefault, drafters: Iterable[str], default: bool) -> str:
    said = [f"`{name}`" + " on `worker: v1`" * (name in record.on_v1) for name in drafters]
    if record.pipeline and (default or record.pipeline == "forbidden"):
        said.append("a pipeline on `worker: v1`")
    return ", ".join(said)


def departures() -> str:
    """A row for each departure of a preset from its release."""
    return _table(
        ("option", "presets", "what a release does"),
        ((f"`{d.option}`", _spans({preset: preset in d.presets for preset in PRESETS}), d.text) for d in DEPARTURES),
    )


def rules() -> str:
    """A section for each rule: its question, its values, and which runs ask it."""
    sections = []
    for name, rule in RULES.items():
        asked = "" if rule.asked is ALWAYS else f" Asked only {rule.asked.tells}."
        note = f" {rule.note}" if rule.note else ""
        plugged = " Takes a [plug-in](#how-each-is-called)." if rule.signature else ""
        rows = (
            (f"`{value}`", record.does, record.source, using(name, value)) for value, record in rule.records.items()
        )
        table = _table(("value", "does", "from", "presets"), rows)
        sections.append(f"### `{name}`\n\n{rule.question}{note}{asked}{plugged}\n\n{table}")
    return "\n\n".join(sections)


def signatures() -> str:
    """A row for each argument with which a rule's plug-in is called, and what the plug-in may answer."""
    rows = []
    for name, rule in RULES.items():
        if rule.signature is not None:
            call = f"`({', '.join(argument.name for argument in rule.signature.arguments)})`"
            told = "; ".join(f"`{a.name}` (`{a.type}`): {a.is_}" for a in rule.signature.arguments)
            rows.append((f"`{name}`", call, told, f"{rule.signature.answer}: {rule.signature.means}"))
    return _table(("rule", "is called with", "where", "gives"), rows)


def using(rule: str, value: str) -> str:
    """Return which presets have a value: ``all``, ``0.26 to 0.29``; ``none`` with where the value stands."""
    spans = _spans({preset: values[rule] == value for preset, values in PRESETS.items()})
    standing = RULES[rule].records[value].standing
    return spans or ("none" if standing is Standing.RELEASE else f"none: {standing.value}")


def _spans(used: Mapping[str, bool]) -> str:
    if all(used.values()):
        return "all"
    runs = [[preset for preset, _ in run] for of, run in groupby(used.items(), lambda item: item[1]) if of]
    return ", ".join(_short(run[0]) + (f" to {_short(run[-1])}" if len(run) > 1 else "") for run in runs)


def _short(preset: str) -> str:
    return preset.removeprefix("vllm-").removesuffix(".0")


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(head)
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]])


PARTS: Mapping[str, Callable[[], str]] = {
    "presets": presets,
    "changes": changes,
    "async": asynchronous,
    "departures": departures,
    "rules": rules,
    "signatures": signatures,
}
"""Parts of pages, by the name that a page gives in its comment."""

if __name__ == "__main__":
    for name in sys.argv[1:]:
        file = Path(name)
        file.write_text(page(file.read_text(encoding="utf-8")), encoding="utf-8")
