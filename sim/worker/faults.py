"""What a worker keeps of a request between its steps, and how it copies states by it.

After a verification the state of the accepted tokens lies some columns behind the running one. The count that says how
many is a worker's own memory: kept by request or by batch row, reset or not, one for all groups or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

TAPS = 4
"""Inputs that a short convolution reads, in the models that are served; a slot keeps the last three."""

Count = Callable[[int, int], int]
"""(tokens that a verification kept, K) -> the count that the worker applies."""


def own(kept: int, drafts: int) -> int:
    """As many as were kept: 1 to K + 1."""
    return kept


def one_too_many(kept: int, drafts: int) -> int:
    """The state behind the one of the last token kept; after a full acceptance none of the row's (vLLM issue 50021)."""
    return kept + 1


def all_of_them(kept: int, drafts: int) -> int:
    """The row's last state, rejected drafts and all: a rollback that rolls nothing back (mlx-lm issue 1109)."""
    return drafts + 1


@dataclass(frozen=True, slots=True)
class Memory:
    """A worker's memory."""

    keeps_accepted: bool = True
    """Whether a request that is skipped for a step keeps its accepted count (v2)."""
    shifts_inputs: bool = True
    """Whether a copy of the state after an accepted draft takes the convolution's inputs up to that draft too."""
    strides: bool = True
    """Whether a kernel honours the stride of the column of slots that a batch of prefills alone gives it."""
    forgets_on_reset: bool = True
    """Whether a request that a reset put back is told apart from one that runs on: its column counts no more."""
    count: Count = own
    """The count that is applied after a verification."""
    by_row: bool = False
    """Whether counts stay in their batch rows when others end and the rows behind move up."""
    shared: bool = False
    """Whether one count serves all groups, so that the first group's copy resets it for the others."""
    plain_restarts: bool = False
    """Whether a row without drafts takes the running column's state, whatever was accepted before."""
    pads_as_prefill: bool = False
    """Whether a row padded with placeholders runs as a prefill, placeholders and all."""
    saves_backward: bool = True
    """Whether a passed boundary is saved into a column before the running one."""
    waits: bool = True
    """Whether copies of shared pages wait for the steps in flight."""
    tracks_mixed: bool = True
    """Whether ``all`` mode leaves the boundaries of prefills that run beside decodes."""
    own_column: bool = True
    """Whether a row works in the column where it ends, or in the first one of its table, be that the null block."""
    buffers_shifts: bool = True
    """Whether a shift of the convolution's inputs within one slot goes through a buffer, or input by input, the last
    first, so that what overlaps is read after it was written over."""
    owns_inputs: bool = True
    """Whether a chunk too short to fill the convolution's window leaves its inputs in its own slot, or in the one from
    which its request was started."""
    writes_ahead: bool = False
    """Whether a prefill that ends with a block writes for its drafter into the first column that it does not have,
    whatever an earlier request left there."""
    zeroes: bool = True
    """Whether a request that starts from nothing reads a zero state, or whatever its slot holds."""

    @property
    def merges(self) -> bool:
        """Whether decode steps of which nothing can be seen may be told at once."""
        # Who decodes beside prefills matters where strides are not honoured, and who reads what a padded row left.
        whole = self.count is own and not self.pads_as_prefill
        return whole and not self.by_row and self.strides and self.own_column


MEMORIES: dict[str, Memory] = {
    "v2": Memory(),
    "v1": Memory(keeps_accepted=False),
    "unshifted": Memory(shifts_inputs=False),
    "contiguous-view": Memory(strides=False),
    "stale-on-reset": Memory(forgets_on_reset=False),
    "row-indexed": Memory(by_row=True),
    "one-too-many": Memory(count=one_too_many),
    "never-rolled-back": Memory(count=all_of_them),
    "shared-count": Memory(shared=True),
    "plain-restarts": Memory(plain_restarts=True),
    "padded-as-prefill": Memory(pads_as_prefill=True),
    "no-backward-copy": Memory(saves_backward=False),
    "copies-ahead": Memory(waits=False),
    "untracked-in-mixed": Memory(tracks_mixed=False),
    "first-column": Memory(own_column=False),
    "unzeroed": Memory(zeroes=False),
    "shifted-in-place": Memory(buffers_shifts=False),
    "short-chunk-into-source": Memory(owns_inputs=False),
    "stale-look-ahead": Memory(writes_ahead=True),
}


class BatchRows:
    """The accepted counts of a batch, by row, where those do not move with their requests."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._counts: list[list[int]] = []

    def update(self, present: Sequence[str]) -> dict[str, list[int]]:
        """Who is in the batch now: newcomers take the rows of those who left, then the last rows move into the gaps.

        Returns the counts that lie in the rows of those who were there before.
        """
        known, here = set(self._names), set(present)
        rows: list[str] = [name if name in here else "" for name in self._names]
        for name in [name for name in present if name not in known]:
            if "" in rows:
                rows[rows.index("")] = name
            else:
                rows.append(name)
        while "" in rows:
            last = rows.pop()
            if last:
                rows[rows.index("")] = last
        found = {name: self._counts[i] for i, name in enumerate(rows) if name in known and i < len(self._counts)}
        self._names = rows
        return found

    def keep(self, counts: dict[str, list[int]]) -> None:
        """What the step's verification left in each row."""
        self._counts = [list(counts[name]) for name in self._names]
