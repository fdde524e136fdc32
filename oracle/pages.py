"""Tables of docs/invariants.md and docs/states.md, printed: ``python -m stateat.oracle.pages docs/invariants.md``.

A table stands between ``<!-- printed: NAME -->`` and ``<!-- end -->``; the prose around it is written by hand.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from stateat.kernels.families import FAMILIES, shape
from stateat.oracle.checks import CHECKS, Check
from stateat.sim.events import Severity

PART = re.compile(r"(<!-- printed: (\w+) -->\n).*?(\n<!-- end -->)", re.S)


def page(text: str) -> str:
    """Print the tables of a page anew."""
    return PART.sub(lambda part: f"{part[1]}{PARTS[part[2]]()}{part[3]}", text)


def said(check: Check, heading: str) -> str:
    """Text of an invariant in the head of its module, below ``Verified`` or ``Not verified``; '' if there is none."""
    head = inspect.cleandoc(sys.modules[check.check.__module__].__doc__ or "")
    _, _, section = head.partition(f"\n{heading}:\n")
    items = re.findall(r"^- (I\d+):? ((?:.|\n(?!- |\n))*)", section.partition("\n\nNot ")[0], re.M)
    return next((" ".join(text.split()) for name, text in items if name == check.invariant), "")


def severities() -> str:
    """A row for each severity, the worst first."""
    return _table(("severity", "says"), ((f"`{word}`", word.meaning) for word in Severity))


def checked() -> str:
    """A row for each invariant: what it states, where it is checked, which scenarios break and keep it."""
    rows = ((c.invariant, said(c, "Verified"), c.severity, _where(c), c.trips, c.keeps) for c in CHECKS)
    return _table(("", "statement", "severity", "checked by", "trips it", "does not"), rows)


def unseen() -> str:
    """A row for each invariant: of what it is not asked, and why."""
    return _table(("", "is not asked of"), ((c.invariant, said(c, "Not verified")) for c in CHECKS))


def families() -> str:
    """A row for each state family, with the size of one layer's state at small widths."""
    numeric = (
        (f"`{name}`", family.recurrence, family.models, f"{shape(name).bytes(family.dtype):,} bytes")
        for name, family in FAMILIES.items()
    )
    digest = ("`digest`", "none: 128 bits of the tokens absorbed", "any", "16 bytes")
    return _table(("family", "recurrence", "layers of", "a state, widths `small`"), (digest, *numeric))


def _where(check: Check) -> str:
    found = (each for each in (check.check, check.also) if each is not None)
    return ", ".join(f"`oracle/{each.__module__.rpartition('.')[2]}.py:{each.__qualname__}`" for each in found)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (head, *rows)
    told = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join([told[0].replace("|  |", "| |"), "|" + "---|" * len(head), *told[1:]])


PARTS = {"severities": severities, "checked": checked, "unseen": unseen, "families": families}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
