"""The physical model: from block tables and chunks to copies, reads and writes.

Written once: every engine, embedded or real, hands its decisions to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stateat.sim.events import Group, Observer
from stateat.sim.rules.restore_column import RestoreColumn
from stateat.sim.rules.state_writes import EVERY_BOUNDARY, Left, Span, StateWrites
from stateat.sim.worker.block_tables import Rows
from stateat.sim.worker.faults import TAPS, BatchRows, Memory

if TYPE_CHECKING:
    from stateat.sim.cache.groups import CopyOnWrite
    from stateat.sim.engine.request import Request

Export = Callable[[int, int, int], tuple[int, int]]
"""(start, end, block) of a prefill chunk -> the offset of the state that it leaves on its way (0: none) and its
column."""
WIDE = 1 << 30
"""Columns and rows of a table that nobody gave a size."""


@dataclass(slots=True)
class Row:
    """One request in one step: tokens [start, end), of which the last ``len(drafts)`` are drafts.

    ``drafted`` counts the drafts that verification will judge: more than ``drafts`` where the split clipped
    placeholders.
    """

    request: Request
    start: int
    end: int
    drafts: list[int]
    drafted: int
    emitted: int = 0
    void: bool = False
    """Whether its request is gone, so that nobody hears of what it samples."""


class Worker:
    """Turns what was scheduled into events on slots."""

    def __init__(
        self,
        groups: Sequence[Group],
        num_speculative_tokens: int,
        seed: RestoreColumn,
        config_block: int,
        memory: Memory,
        observer: Observer,
        export: Export | None = None,
        kernel: StateWrites = EVERY_BOUNDARY,
        mamba_chunk_size: int = 0,
        rows: Rows | None = None,
    ) -> None:
        self.num_drafts = num_speculative_tokens
        self.attention = [i for i, g in enumerate(groups) if not g.recurrent]
        self.recurrent = [(i, g.block_size) for i, g in enumerate(groups) if g.aligned]
        self.all_mode = [(i, g.block_size) for i, g in enumerate(groups) if g.recurrent and not g.aligned]
        self.seed = seed
        self.config_block = config_block
        self.table = rows or Rows(dict.fromkeys((i for i, _ in self.recurrent), WIDE), WIDE)
        self.memory = memory
        self.observer = observer
        self.export = export
        self.kernel = kernel
        self.mamba_chunk_size = mamba_chunk_size
        self.rows = BatchRows()
        self._source: dict[tuple[str, int], int] = {}
        """The slots from which requests are started in this step."""

    def before(self, step: int, rows: list[Row], copies: list[CopyOnWrite], given: list[list[int]]) -> None:
        """Copies, then what attention was given, then the forward pass."""
        if self.memory.by_row:
            self._look_up_counts(rows)
        self.copy_on_write(copies)
        for row in rows:
            self.table.enter(row.request)
        self._source.clear()
        for row in rows:
            self._pre_copy(step, row)
        for group in self.attention:
            if given[group]:
                self.observer.allocate("", group, -1, given[group])
        views = self._views(rows)
        for index, row in enumerate(rows):
            self._forward(row, index, views)
        for group, block in self.all_mode:
            self._forward_all(rows, group, block)

    def _look_up_counts(self, rows: list[Row]) -> None:
        """Take the accepted counts that lie in this step's batch rows."""
        found = self.rows.update([row.request.id for row in rows])
        for row in rows:
            row.request.accepted = list(found.get(row.request.id, row.request.accepted))

    def copy_on_write(self, copies: list[CopyOnWrite]) -> None:
        """Whole pages, in the order in which they were queued."""
        for copy in copies:
            self.observer.copy(copy.request, copy.group, "cow", copy.source, copy.target, copy.source, 0)

    def _bias(self, row: Row, group: int) -> int:
        """How many columns behind the running one the worker takes the state to be."""
        if self.memory.plain_restarts and not row.drafts:
            return 0
        return row.request.accepted[group] - 1

    def _pre_copy(self, step: int, row: Row) -> None:
        """Carry the state into the column in which this chunk ends."""
        request = row.request
        if not self.memory.keeps_accepted and request.last_step != step - 1:
            request.accepted = [1] * len(request.accepted)
        for group, block in self.recurrent:
            target = -(-row.end // block) - 1 if self.memory.own_column else 0
            source = request.running[group]
            if source == -1:
                self._enter(row, group, block, target)
            if source not in (-1, target):
                # Where both columns are one block its matrix stays, and the convolution's inputs still move up.
                pages, bias = request.pages[group], self._bias(row, group)
                self._copy(request.id, group, "pre", pages, source, bias, pages[target])
                request.accepted[group] = 1
                if self.memory.shared:
                    request.accepted = [1] * len(request.accepted)
            request.running[group] = target
        request.last_step = step

    def _enter(self, row: Row, group: int, block: int, target: int) -> None:
        """Carry the state from which a request starts; the column is counted anew, the table not asked."""
        request = row.request
        source = self.seed(row.start, block, self.config_block)
        if source < 0:
            return
        slot = self.table.slot(request, group, source)
        self.observer.seed(request.id, group, source, self.table.widths[group], slot)
        self._source[request.id, group] = slot
        into = request.pages[group][target]
        if source != target and slot != into:
            self.observer.copy(request.id, group, "pre", slot, into, slot, 0)

    def leave(self, request: Request) -> None:
        """A request ended or was preempted."""
        self.table.leave(request)

    def _views(self, rows: list[Row]) -> dict[int, list[int]]:
        """For each group the slots of the rows' columns from the running one on, row by row, where a kernel takes
        them for the column of the running ones: in a batch of prefills alone. Nothing where it knows better."""
        if self.memory.strides or not self.num_drafts or any(self._speculative(row) for row in rows):
            return {}
        views: dict[int, list[int]] = {}
        for group, _ in self.recurrent:
            columns = [(row.request.pages[group], row.request.running[group]) for row in rows]
            views[group] = [p for pages, at in columns for p in pages[at : at + 1 + self.num_drafts]]
        return views

    def _forward(self, row: Row, index: int, views: dict[int, list[int]]) -> None:
        request, tell = row.request, self.observer.advance
        for group, block in self.recurrent:
            pages, column = request.pages[group], request.running[group]
            if self._speculative(row):
                read = _at(pages, column + self._bias(row, group))
                writes = [(row.start + 1 + j, pages[column + j]) for j in range(len(row.drafts) + 1)]
            else:
                slot = views[group][index] if views else pages[column]
                read = slot if row.start or not self.memory.zeroes else -1
                writes = [(row.end, slot)]
                exported = self._exported(row, request, group, block)
                if exported is not None:
                    writes.insert(0, exported)
                if self.memory.writes_ahead and (ahead := self._ahead(row, group, block)):
                    writes.insert(0, (row.end, ahead))
            if self.memory.own_column:
                # Kernels leave the null block alone.
                writes = [write for write in writes if write[1]]
            tell(request.id, group, row.start, row.end, row.drafts, read, writes, 0)
            if not self.memory.owns_inputs:
                self._misplace_inputs(row, group, pages[column])

    def _ahead(self, row: Row, group: int, block: int) -> int:
        """The slot into which a prefill that ends with a block writes the last of its drafter's states: that of the
        first column behind those that it has."""
        column = row.end // block + self.num_drafts
        if not self.num_drafts or row.end % block:
            return 0
        return max(self.table.slot(row.request, group, column), 0)

    def _misplace_inputs(self, row: Row, group: int, slot: int) -> None:
        """The inputs of a chunk below the convolution's window go into the slot from which its request was started."""
        source = self._source.get((row.request.id, group), 0)
        if row.end - row.start >= TAPS - 1 or source in (0, slot):
            return
        for target, inputs in ((source, slot), (slot, -1)):
            self.observer.copy(row.request.id, group, "cow", target, target, inputs, 0)

    def _forward_all(self, rows: list[Row], group: int, block: int) -> None:
        """``all`` mode: no copies. A prefill row leaves states in the columns of the boundaries that it passes, as the
        kernel's own chunks allow; a decode row the states after each token, from the column of its last one on."""
        prefills = [row for row in rows if not self._updates(row)]
        spans = [Span(row.start, row.end) for row in prefills]
        left = self.kernel.leaves(spans, block, self.mamba_chunk_size or block)
        if not self.memory.tracks_mixed and any(row.start >= row.request.prefill_end for row in rows):
            left = []
        # A row's state that goes into another's table is written once that one has read its own.
        foreign = any(state.source != state.target for state in left)
        for row in reversed(rows) if foreign else rows:
            if self._updates(row):
                self._update_all(row, group, block)
            else:
                self._prefill_all(row, group, block, prefills, left)

    def _updates(self, row: Row) -> bool:
        """Whether the kernel takes this row for a decode: it goes on by single tokens from a state."""
        return self._speculative(row) or (row.end - row.start == 1 and row.start > 0)

    def _update_all(self, row: Row, group: int, block: int) -> None:
        request, pages = row.request, row.request.pages[group]
        column, running = -(-row.end // block) - 1, request.running[group]
        if running == -1:
            running = max((row.start - 1) // block, 0)
        read = _at(pages, running + self._bias(row, group)) if self._speculative(row) else pages[running]
        writes = [(row.start + 1 + j, pages[column + j]) for j in range(row.end - row.start)]
        self.observer.advance(request.id, group, row.start, row.end, row.drafts, read, writes, 0)
        # Only a row of all K drafts is remembered by where it ended; another's place follows from what is computed.
        request.running[group] = column if row.end - row.start == 1 + self.num_drafts else -1

    def _prefill_all(self, row: Row, group: int, block: int, prefills: list[Row], left: list[Left]) -> None:
        request, pages = row.request, row.request.pages[group]
        read = pages[max(-(-row.start // block) - 1, 0)] if row.start or not self.memory.zeroes else -1
        mine = prefills.index(row)
        writes = [
            (state.offset, prefills[state.target].request.pages[group][state.column])
            for state in left
            if state.source == mine
        ]
        writes.append((row.end, pages[-(-row.end // block) - 1]))
        request.running[group] = -1
        self.observer.advance(request.id, group, row.start, row.end, row.drafts, read, writes, 0)

    def _exported(self, row: Row, request: Request, group: int, block: int) -> tuple[int, int] | None:
        """The state that a prefill chunk leaves on its way: offset and slot."""
        if self.export is None or row.start >= request.prefill_end:
            return None
        offset, column = self.export(row.start, row.end, block)
        slot = request.pages[group][column] if offset else 0
        return (offset, slot) if slot else None

    def _speculative(self, row: Row) -> bool:
        """Whether the kernel keeps a state after every token of this row."""
        if not self.num_drafts or row.end - row.start != len(row.drafts) + 1:
            return False
        if self.memory.pads_as_prefill and row.drafts and row.drafts[0] < 0:
            return False
        return bool(row.drafts) or row.start >= row.request.num_prompt

    def after(self, rows: list[Row]) -> None:
        """Once it is known how much was accepted: remember where the state is, and save a boundary passed."""
        for row in rows:
            request = row.request
            known = row.end - len(row.drafts)
            kept = max(row.emitted, 1)
            count = self.memory.count(kept, self.num_drafts) if row.drafted else kept
            for group, _ in self.all_mode:
                request.accepted[group] = count
            for group, block in self.recurrent:
                request.accepted[group] = count
                boundary = (known + kept - 1) // block * block
                if not self.num_drafts or boundary < known:
                    continue
                column, target = request.running[group], boundary // block - 1
                if column == target:
                    request.accepted[group] = 1
                    if boundary == known:
                        continue
                if target < column and not self.memory.saves_backward:
                    continue
                pages, bias = request.pages[group], boundary - known
                self._copy(request.id, group, "post", pages, column, bias, pages[target])
        if self.memory.by_row:
            self.rows.keep({row.request.id: row.request.accepted for row in rows})

    def _copy(self, request: str, group: int, kind: str, pages: list[int], running: int, bias: int, to: int) -> None:
        """Copy the state after ``bias`` drafts; the convolution's inputs are those of the running column, shifted."""
        shift = bias if self.memory.shifts_inputs else 0
        source, inputs = _at(pages, running + bias), _at(pages, running)
        if not self.memory.buffers_shifts and inputs == to:
            shift = -shift
        self.observer.copy(request, group, kind, source, to, inputs, shift)

    def run(self, request: Request, start: int, last: Row, steps: int) -> None:
        """A run of decode steps within one column, told at once: only what the last of them left can be seen."""
        for group, _ in self.recurrent:
            pages, column = request.pages[group], request.running[group]
            if self.num_drafts:
                read = pages[column + request.accepted[group] - 1]
                writes = [(last.start + 1 + j, pages[column + j]) for j in range(self.num_drafts + 1)]
            else:
                read, writes = pages[column], [(last.end, pages[column])]
            self.observer.advance(request.id, group, start, last.end, last.drafts, read, writes, steps)
            request.accepted[group] = last.emitted


def _at(pages: list[int], column: int) -> int:
    """The slot of a column; a column that the row does not have is as good as none (the null block)."""
    return pages[column] if 0 <= column < len(pages) else 0
