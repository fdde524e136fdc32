"""A state as a recipe: which tokens were absorbed into what, computed only if somebody asks what it is in numbers.

A serving engine writes thousands of states that nobody ever claims; of those the recipe is enough. A recipe is a chain
of :class:`Recipe`, one for each write, since a state that is stored narrower than float32 is rounded at each of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stateat.kernels.work import State
from stateat.sim.tokens import Fingerprint, Tokens

Ids = NDArray[np.int64]


class Recipe:
    """Recipe of what one write left: ``ids`` absorbed into ``parent`` (None: into a zero state)."""

    __slots__ = ("drafts", "end", "mark", "parent", "start", "tokens", "value")

    def __init__(
        self, parent: Recipe | None, tokens: Tokens, start: int, end: int, drafts: tuple[int, ...], mark: int
    ) -> None:
        self.parent = parent
        self.tokens, self.start, self.end, self.drafts = tokens, start, end, drafts
        self.mark = mark
        """Fingerprint lane of the tokens absorbed, from which a seeded rounding of this write is drawn."""
        self.value: State | None = None

    def ids(self) -> Ids:
        """The token ids that this write absorbed; shape [T]."""
        ids = self.tokens.ids[self.start : self.end]
        return np.concatenate([ids, np.array(self.drafts, np.int64)]) if self.drafts else ids


class LazyState:
    """A state: its fingerprint says which tokens it absorbed, and decides; the recipe how to compute it.

    Two are equal if their fingerprints are, whatever the numbers: the distance between those is evidence.
    """

    __slots__ = ("print", "recipe")

    def __init__(self, print: Fingerprint, recipe: Recipe | None) -> None:
        self.print = print
        self.recipe = recipe

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, LazyState) and self.print == other.print

    def __hash__(self) -> int:
        return self.print[0]
