"""The table of a run: by release, how often each key was away from its default, what came about, and what differed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from random_worlds.compare import STATUSES, Comparison
from random_worlds.keys import KEYS, REACHED, SHAPES
from random_worlds.world import World


@dataclass
class Column:
    """Counts of one release."""

    release: str
    worlds: int = 0
    seconds: float = 0.0
    """Time of both sides together, in one process."""
    statuses: Counter[str] = field(default_factory=Counter)
    away: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    faults: dict[int, str] = field(default_factory=dict)
    """World numbers that differ, and in what."""
    refusals: Counter[str] = field(default_factory=Counter)

    def add(self, index: int, world: World, found: Comparison) -> None:
        """Count a world."""
        self.worlds += 1
        self.statuses[found.status] += 1
        self.away.update(name for name, key in KEYS.items() if key.away(world))
        self.shapes.update(name for name, holds in SHAPES.items() if holds(world))
        if found.outcome is not None:
            self.reached.update(name for name, holds in REACHED.items() if holds(found.outcome))
        if found.fault:
            self.faults[index] = f"{found.status}: {found.text or found.kind}"
        elif found.status != "equal":
            self.refusals[f"{found.status}: {found.text}"] += 1

    def merge(self, other: Column) -> None:
        """Add another column of the same release."""
        self.worlds += other.worlds
        self.seconds += other.seconds
        for name in ("statuses", "away", "shapes", "reached", "refusals"):
            getattr(self, name).update(getattr(other, name))
        self.faults = dict(sorted({**self.faults, **other.faults}.items()))

    def plain(self) -> dict[str, Any]:
        """As data."""
        return {name: dict(value) if isinstance(value, dict) else value for name, value in vars(self).items()}


def text(columns: Iterable[Column]) -> str:
    """The table as text, a column for each release."""
    shown = list(columns)
    parts: list[tuple[str, list[tuple[str, list[int]]]]] = [
        ("worlds", [("all", [c.worlds for c in shown]), *((s, [c.statuses[s] for c in shown]) for s in STATUSES)]),
        ("worlds with", [(name, [c.reached[name] for c in shown]) for name in REACHED]),
        ("away from its default", [(name, [c.away[name] for c in shown]) for name in KEYS]),
        ("of this shape", [(name, [c.shapes[name] for c in shown]) for name in SHAPES]),
    ]
    wide = max(len(name) for _, rows in parts for name, _ in rows) + 2
    lines = []
    for title, rows in parts:
        lines.append(f"{title:{wide}}" + "".join(f"{c.release:>9}" for c in shown))
        lines += [f"  {name:{wide - 2}}" + "".join(f"{count:>9,}" for count in counts) for name, counts in rows]
        lines.append("")
    return "\n".join(lines)


def scarce(column: Column, shares: Mapping[str, float], share: float) -> list[str]:
    """Keys away from their default, and things that came about, in fewer worlds than these shares ask."""
    few = [name for name in KEYS if column.away[name] < share * column.worlds]
    return few + [name for name, asked in shares.items() if column.reached[name] < asked * column.worlds]
