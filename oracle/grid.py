"""I3 one grid: whoever computes a boundary or a column of a recurrent group does so in that group's blocks.

Verified:

- I3 one grid: the options in force give every component (the split, the worker's count of columns) the block size of
  the group

Not verified:

- I3: what a component really does, since it is asked of the options alone (I1 and I10 tell whether it does harm);
  groups in `all` mode, which are not split; runs without prefix caching
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stateat.oracle.evidence import Evidence
from stateat.sim.events import Group, Severity

COMPONENTS = {"grid": "the split aligns to", "seed_block": "the worker counts columns in"}
"""Options in force that say in which blocks somebody counts; None or absent: in the group's own, or unknown."""


class Disagreement(NamedTuple):
    """A component that counts a group's tokens in other blocks than the group."""

    group: str
    block: int
    other: int
    message: str


def disagreements(groups: Sequence[Group], options: Mapping[str, Any]) -> Iterator[Disagreement]:
    """Yield the disagreements of the options in force, group by group."""
    for group in groups:
        for key, what in COMPONENTS.items() if group.aligned else ():
            other = options.get(key)
            if other is not None and other != group.block_size:
                message = f"{group.name} has blocks of {group.block_size}, {what} {other}"
                yield Disagreement(group.name, group.block_size, other, message)


def check_grid(evidence: Evidence, options: Mapping[str, Any]) -> None:
    """I3 one grid: asked of the options alone, where there is a cache."""
    for wrong in disagreements(evidence.groups, options) if evidence.lookups else ():
        evidence.shape("I3", Severity.SHAPE, "", wrong.block, wrong.other, wrong.message, wrong.group)
