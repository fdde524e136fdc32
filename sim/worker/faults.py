"""Workers with one fault each, as they were reported: values of the rule ``worker`` beside the healthy one's.

After a verification the state of the accepted tokens lies some columns behind the running one. The count that says how
many is a worker's own memory, and most of what goes wrong goes wrong there.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateat.sim.cache.groups import CopyOnWrite
from stateat.sim.rules.state_writes import Left
from stateat.sim.worker.state import R, WorkerState
from stateat.sim.worker.worker import Row, Worker, Write

TAPS = 4
"""Inputs that a short convolution reads, in the models that are served; a slot keeps the last three."""


class RunnerV1(Worker):
    """vLLM's runner v1: the accepted count of a request that is skipped for a step becomes 1; for it a scheduler lets a
    request decode in each step of an asynchronous pipeline."""

    keeps_accepted = False
    staggers = False


class Unshifted(Worker):
    """A copy of the state after an accepted draft leaves the convolution's inputs as before any draft (a control)."""

    def shift(self, bias: int, in_place: bool) -> int:
        return 0


class ShiftedInPlace(Worker):
    """A shift of the convolution's inputs within one slot goes input by input, the last first, without a buffer: what
    overlaps is read after it was written over (vLLM issues 50729, 50432)."""

    def shift(self, bias: int, in_place: bool) -> int:
        return -bias if in_place else bias


class ContiguousView(Worker):
    """A kernel ignores the stride of the column of slots that a batch of prefills alone gives it (vLLM issue
    55357): in such a step, with drafts, row r takes entry r of all rows' running columns and the K behind each."""

    merges = False  # Who decodes beside prefills matters.

    def views(self, rows: Sequence[Row[R]]) -> dict[int, list[int]]:
        if not self.num_drafts or any(self.speculative(row) for row in rows):
            return {}
        views: dict[int, list[int]] = {}
        for group, _ in self.recurrent:
            columns = [(row.request.worker.pages[group], row.request.worker.running[group]) for row in rows]
            views[group] = [p for pages, at in columns for p in pages[at : at + 1 + self.num_drafts]]
        return views


class StaleOnReset(Worker):
    """A request that a reset put back is taken for one that runs on: its column still counts (before vLLM PR 35157)."""

    forgets_on_reset = False


class RowIndexed(Worker):
    """Accepted counts stay in their batch rows when others end and the rows behind move up (vLLM issues 51571,
    53919)."""

    merges = False
    batch_rows: BatchRows | None = None

    def before(
        self, step: int, rows: Sequence[Row[R]], copies: Sequence[CopyOnWrite], given: Sequence[Sequence[int]]
    ) -> None:
        self.batch_rows = self.batch_rows or BatchRows()
        found = self.batch_rows.update([row.request.id for row in rows])
        for row in rows:
            state = row.request.worker
            state.accepted = list(found.get(row.request.id, state.accepted))
        super().before(step, rows, copies, given)

    def after(self, rows: Sequence[Row[R]]) -> None:
        super().after(rows)
        if self.batch_rows is not None:
            self.batch_rows.keep({row.request.id: row.request.worker.accepted for row in rows})


class OneTooMany(Worker):
    """The count names the state behind that of the last token kept; after a full acceptance none of the row's (vLLM
    issue 50021)."""

    merges = False

    def count(self, kept: int, drafted: int) -> int:
        return kept + 1


class NeverRolledBack(Worker):
    """The count names the row's last state, rejected drafts and all (mlx-lm issue 1109)."""

    merges = False

    def count(self, kept: int, drafted: int) -> int:
        return drafted + 1


class SharedCount(Worker):
    """One count serves all groups: the first group's copy resets it for the others (vLLM issues 50432, 50729)."""

    def moved(self, state: WorkerState, group: int) -> None:
        state.accepted = [1] * len(state.accepted)


class PaddedAsPrefill(Worker):
    """A row that is padded with placeholders runs as a prefill, placeholders and all (before vLLM PR
    55178)."""

    merges = False  # Who reads what a padded row left matters.

    def speculative(self, row: Row[R]) -> bool:
        return not (row.drafts and row.drafts[0] < 0) and super().speculative(row)


class NoBackwardCopy(Worker):
    """A boundary that was passed is not saved into a column before the running one (proposed in vLLM issue 53505)."""

    def saves(self, column: int, target: int) -> bool:
        return target >= column


class CopiesAhead(Worker):
    """Copies of shared pages do not wait for the steps in flight (sglang 24221)."""

    waits = False


class UntrackedInMixed(Worker):
    """In ``all`` mode prefills that run beside decodes leave no boundaries (sglang 39342)."""

    def left(self, rows: Sequence[Row[R]], prefills: Sequence[Row[R]], block: int) -> Sequence[Left]:
        if any(row.start >= row.request.prefill_end for row in rows):
            return []
        return super().left(rows, prefills, block)


class FirstColumn(Worker):
    """A row works in the first column of its table, be that the null block (vLLM issue 33937)."""

    merges = False
    leaves_null_alone = False

    def column(self, end: int, block: int) -> int:
        return 0


class Unzeroed(Worker):
    """A request that starts from nothing reads whatever its slot holds (vLLM issue 56524)."""

    def initial(self, slot: int) -> int:
        return slot


class ShortChunkIntoSource(Worker):
    """A chunk too short to fill the convolution's window leaves its inputs in the slot from which its request was
    started (vLLM issue 56196)."""

    def forward(self, row: Row[R], group: int, block: int, view: int) -> None:
        super().forward(row, group, block, view)
        state = row.request.worker
        slot, source = state.pages[group][state.running[group]], self.started_from.get((row.request.id, group), 0)
        if row.end - row.start >= TAPS - 1 or source in (0, slot):
            return
        for target, inputs in ((source, slot), (slot, -1)):
            self.observer.copy(row.request.id, group, "cow", target, target, inputs, 0)


class StaleLookAhead(Worker):
    """A prefill that ends with a block writes the last of its drafter's states into the first column that it does not
    have, whatever an earlier request left there (vLLM issue 57605)."""

    def on_the_way(self, row: Row[R], group: int, block: int) -> list[Write]:
        writes = super().on_the_way(row, group, block)
        if not self.num_drafts or row.end % block:
            return writes
        slot = self.block_tables.slot(row.request.id, group, row.end // block + self.num_drafts)
        return [(row.end, slot), *writes] if slot > 0 else writes


class BatchRows:
    """The accepted counts of a batch, by row, where those do not move with their requests."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._counts: list[list[int]] = []

    def update(self, present: Sequence[str]) -> dict[str, list[int]]:
        """Members of the batch now: newcomers take the rows of those who left, then the last rows move into the gaps.

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
        """Keep what the step's verification left in each row."""
        self._counts = [list(counts[name]) for name in self._names]
