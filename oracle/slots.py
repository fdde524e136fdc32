"""Physical slot memory: what each block of the pool really holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from stateat.sim.events import NULL, Write

UNKNOWN = -1
"""Absorbed count of a state that was advanced from a slot without content."""


@dataclass(frozen=True, slots=True)
class Content:
    """A recurrent state in a slot."""

    state: Any
    """The family's state; None when it was made from nothing."""
    absorbed: int
    """Tokens that it has absorbed, right or wrong; UNKNOWN when that cannot be said."""
    write: Write
    origin: str
    """The request whose tokens it absorbed last."""
    finding: int | None = None
    """The finding that this very content is the subject of."""
    ancestor: int | None = None
    """The root finding of the wrong state that it was advanced from; -1 when that has no finding."""
    heard: bool = True
    """True if all that led to it was told; else nothing can be said of it."""


UNHEARD = Content(None, UNKNOWN, Write(-1, "", 0, 0, "unheard"), "", heard=False)
"""Content of a slot of which nothing was told: whoever tells the events came when it was in use already."""


class Slots:
    """Contents by slot. A slot that was told of and is not in here was never written, or overwritten by attention."""

    __slots__ = ("_before", "_contents", "_told")

    def __init__(self) -> None:
        self._contents: dict[int, Content] = {}
        self._told: set[int] = set()
        self._before: set[int] = set()
        """Slots that were in use before anybody told of them."""

    def get(self, slot: int) -> Content | None:
        """Return what the slot holds."""
        content = self._contents.get(slot)
        return UNHEARD if content is None and slot > NULL and slot not in self._told else content

    def hand(self, slots: Iterable[int]) -> None:
        """Mark slots as handed out: from now on all that is written there is told."""
        self._told.update(slots)

    def meet(self, slot: int) -> None:
        """Mark a slot as in use: if nothing was told of it, it was so before anybody told."""
        if slot > NULL and slot not in self._told:
            self._before.add(slot)

    def expect(self, slot: int) -> None:
        """Mark a slot as to be filled, which hands it out unless it was in use before."""
        if slot not in self._before:
            self._told.add(slot)

    def put(self, slot: int, content: Content) -> None:
        """Write a slot."""
        self._told.add(slot)
        self._contents[slot] = content

    def copy(self, source: int, target: int, write: Write) -> None:
        """Copy a whole slot; copying one without content leaves none."""
        content = self.get(source)
        self._told.add(target)
        if content is None:
            self._contents.pop(target, None)
        else:
            self._contents[target] = replace(content, write=write)

    def blame(self, slot: int, finding: int) -> None:
        """Mark what the slot holds as the subject of a finding."""
        content = self._contents.get(slot)
        if content is not None and content.finding is None:
            self._contents[slot] = replace(content, finding=finding)

    def erase(self, slots: Iterable[int]) -> None:
        """Erase slots over which attention wrote."""
        for slot in slots:
            self._told.add(slot)
            self._contents.pop(slot, None)
