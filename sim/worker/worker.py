"""The physical model: from block tables and chunks to copies, reads and writes (docs/events.md).

Written once: every engine, embedded or real, hands its decisions to it. This is the worker of vLLM's runner v2;
:mod:`stateat.sim.worker.faults` has others, each of which overrides one thing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic

from stateat.sim.cache.groups import CopyOnWrite
from stateat.sim.events import Group, Observer
from stateat.sim.rules.restore_column import RestoreColumn
from stateat.sim.rules.state_writes import EVERY_BOUNDARY, Left, Span, StateWrites
from stateat.sim.worker.block_tables import BlockTables
from stateat.sim.worker.state import Asked, R, WorkerState


@dataclass(slots=True)
class Row(Generic[R]):
    """One request in one step: tokens [start, end), of which the last ``len(drafts)`` are drafts."""

    request: R
    start: int
    end: int
    drafts: list[int]
    drafted: int
    """Drafts that verification will judge: more than ``drafts`` where the split clipped placeholders."""
    emitted: int = 0
    """Tokens that it sampled, accepted drafts included; 0 until that is known."""
    void: bool = False
    """True once its request is gone, so that nobody hears of what it samples."""
    owner: R | None = None
    """The scheduler's request, where ``request`` is a copy of it that steps in flight run on with."""
    stale: bool = False
    """True once its request was preempted behind it: what the row samples comes late, and corrects no count."""

    @property
    def rejected(self) -> int:
        """Drafts that verification did not accept."""
        return self.drafted + 1 - self.emitted if self.emitted else 0


Write = tuple[int, int]
"""Offset (tokens) of a state, and the slot that it is written to."""
Export = Callable[[Asked, int, int, int], tuple[int, int]]
"""(request, start, end, block) of a chunk -> the offset of the state that it leaves on its way (0: none), and the
column."""


class Worker:
    """Turns what was scheduled into events on slots."""

    keeps_accepted: ClassVar[bool] = True
    """A request that is skipped for a step keeps its accepted counts."""
    forgets_on_reset: ClassVar[bool] = True
    """A request that a reset put back is told apart from one that runs on: its columns and counts are forgotten."""
    waits: ClassVar[bool] = True
    """Copies of shared pages wait for the steps in flight."""
    staggers: ClassVar[bool] = True
    """In an asynchronous pipeline a request decodes once in as many steps as there are stages."""
    merges: ClassVar[bool] = True
    """Decode steps of which nothing can be seen may be told at once."""
    leaves_null_alone: ClassVar[bool] = True
    """Kernels do not write to the null block."""

    def __init__(
        self,
        groups: Sequence[Group],
        num_speculative_tokens: int,
        *,
        seed: RestoreColumn,
        config_block: int,
        observer: Observer,
        block_tables: BlockTables,
        export: Export | None = None,
        kernel: StateWrites = EVERY_BOUNDARY,
        undrafted_are_plain: bool = False,
        mamba_chunk_size: int = 0,
    ) -> None:
        """``seed``: column of a restored request's state, counted in ``config_block`` tokens where it counts in those.
        ``undrafted_are_plain``: a row without drafts reads the running column, whatever was accepted (``align`` mode).
        ``mamba_chunk_size``: tokens of a kernel's chunk in ``all`` mode; 0: as many as a block's."""
        self.num_drafts = num_speculative_tokens
        self.kinds = groups
        self.attention = [i for i, g in enumerate(groups) if not g.recurrent]
        self.recurrent = [(i, g.block_size) for i, g in enumerate(groups) if g.aligned]
        self.all_mode = [(i, g.block_size) for i, g in enumerate(groups) if g.recurrent and not g.aligned]
        self.seed = seed
        self.config_block = config_block
        self.block_tables = block_tables
        self.observer = observer
        self.export = export
        self.kernel = kernel
        self.undrafted_are_plain = undrafted_are_plain
        self.mamba_chunk_size = mamba_chunk_size
        self.started_from: dict[tuple[str, int], int] = {}
        """Slots from which (request, group) are started in this step."""

    # Before and in the forward pass.

    def before(
        self, step: int, rows: Sequence[Row[R]], copies: Sequence[CopyOnWrite], given: Sequence[Sequence[int]]
    ) -> None:
        """Copy, tell what attention was given, then run the forward pass."""
        self.copy_on_write(copies)
        for row in rows:
            self.block_tables.enter(row.request.id, row.request.worker)
        self.started_from.clear()
        for row in rows:
            self._pre_copy(step, row)
        for group in self.attention:
            if given[group]:
                self.observer.allocate("", group, -1, given[group])
        views = self.views(rows)
        for index, row in enumerate(rows):
            for group, block in self.recurrent:
                self.forward(row, group, block, views[group][index] if views else -1)
        for group, block in self.all_mode:
            self._forward_all(rows, group, block)

    def copy_on_write(self, copies: Sequence[CopyOnWrite]) -> None:
        """Copy whole pages, in the order in which they were queued."""
        for copy in copies:
            self.observer.copy(copy.request, copy.group, "cow", copy.source, copy.target, copy.source, 0)

    def bias(self, row: Row[R], group: int) -> int:
        """Return how many columns behind the running one the state is taken to be."""
        return row.request.worker.accepted[group] - 1

    def column(self, end: int, block: int) -> int:
        """Return the column in which a chunk that ends there works."""
        return -(-end // block) - 1

    def _pre_copy(self, step: int, row: Row[R]) -> None:
        """Carry the state into the column in which this chunk ends."""
        state = row.request.worker
        if not self.keeps_accepted and state.last_step != step - 1:
            state.accepted = [1] * len(state.accepted)
        for group, block in self.recurrent:
            target, source = self.column(row.end, block), state.running[group]
            if source == -1:
                self._enter(row, group, block, target)
            if source not in (-1, target):
                # Where both columns are one block its matrix stays, and the convolution's inputs still move up.
                pages = state.pages[group]
                self._copy(row.request.id, group, "pre", pages, source, self.bias(row, group), pages[target])
                self.moved(state, group)
            state.running[group] = target
        state.last_step = step

    def moved(self, state: WorkerState, group: int) -> None:
        """Remember that a group's state lies in its running column now."""
        state.accepted[group] = 1

    def _enter(self, row: Row[R], group: int, block: int, target: int) -> None:
        """Carry the state from which a request starts; the column is counted anew, the table not asked."""
        request = row.request
        source = self.seed(row.start, block, self.config_block)
        if source < 0:
            return
        slot = self.block_tables.slot(request.id, group, source)
        self.observer.seed(request.id, group, source, self.block_tables.widths[group], slot)
        self.started_from[request.id, group] = slot
        into = request.worker.pages[group][target]
        if source != target and slot != into:
            self.observer.copy(request.id, group, "pre", slot, into, slot, 0)

    def leave(self, request: Asked) -> None:
        """Hear that a request ended or was preempted."""
        self.block_tables.leave(request.id, request.worker)

    def views(self, rows: Sequence[Row[R]]) -> dict[int, list[int]]:
        """Return the rows' slots by group, where a kernel takes them from another place than their running columns."""
        return {}

    def forward(self, row: Row[R], group: int, block: int, view: int) -> None:
        """Run a row in one group; ``view``: the slot of its running column as the kernel sees it, -1: as it is."""
        request, state = row.request, row.request.worker
        pages, column = state.pages[group], state.running[group]
        if self.speculative(row):
            plain = self.undrafted_are_plain and not row.drafts
            read = slot_at(pages, column + (0 if plain else self.bias(row, group)))
            # More drafts than the drafter's K have no columns of their own.
            most = min(len(row.drafts) + 1, len(pages) - column)
            writes = [(row.start + 1 + j, pages[column + j]) for j in range(most)]
        else:
            slot = view if view >= 0 else pages[column]
            read = slot if row.start else self.initial(slot)
            writes = [*self.on_the_way(row, group, block), (row.end, slot)]
        if self.leaves_null_alone:
            writes = [write for write in writes if write[1]]
        self.observer.advance(request.id, group, row.start, row.end, row.drafts, read, writes, 0)

    def initial(self, slot: int) -> int:
        """Return the slot that a request reads which starts from nothing; -1: a state of zeroes."""
        return -1

    def on_the_way(self, row: Row[R], group: int, block: int) -> list[Write]:
        """Return what a row writes before its last state: what a prefill chunk exports."""
        if self.export is None:
            return []
        offset, column = self.export(row.request, row.start, row.end, block)
        slot = row.request.worker.pages[group][column] if offset else 0
        return [(offset, slot)] if slot else []

    def speculative(self, row: Row[R]) -> bool:
        """Return True if the kernel keeps a state after every token of this row."""
        if not self.num_drafts or row.end - row.start != len(row.drafts) + 1:
            return False
        return bool(row.drafts) or row.start >= row.request.num_prompt

    # The ``all`` mode: no copies.

    def _forward_all(self, rows: Sequence[Row[R]], group: int, block: int) -> None:
        """Run a batch in a group: a prefill row leaves states in the columns of the boundaries that it passes, as the
        kernel's own chunks allow; a decode row the states after each token, from the column of its last one on."""
        prefills = [row for row in rows if not self._updates(row)]
        left = self.left(rows, prefills, block)
        # A row's state that goes into another's table is written once that one has read its own.
        foreign = any(state.source != state.target for state in left)
        for row in reversed(rows) if foreign else rows:
            if self._updates(row):
                self._update_all(row, group, block)
            else:
                self._prefill_all(row, group, prefills, left, block)

    def left(self, rows: Sequence[Row[R]], prefills: Sequence[Row[R]], block: int) -> Sequence[Left]:
        """Return the states that prefills leave at the boundaries that they pass."""
        spans = [Span(row.start, row.end) for row in prefills]
        return self.kernel.leaves(spans, block, self.mamba_chunk_size or block)

    def _updates(self, row: Row[R]) -> bool:
        """Return True if the kernel takes this row for a decode: it goes on by single tokens from a state."""
        return self.speculative(row) or (row.end - row.start == 1 and row.start > 0)

    def _update_all(self, row: Row[R], group: int, block: int) -> None:
        state = row.request.worker
        pages, column, running = state.pages[group], -(-row.end // block) - 1, state.running[group]
        if running == -1:
            running = max((row.start - 1) // block, 0)
        read = slot_at(pages, running + self.bias(row, group)) if self.speculative(row) else pages[running]
        writes = [(row.start + 1 + j, slot_at(pages, column + j)) for j in range(row.end - row.start)]
        self.observer.advance(row.request.id, group, row.start, row.end, row.drafts, read, writes, 0)
        # Only a row of all K drafts is remembered by where it ended; another's place follows from what is computed.
        state.running[group] = column if row.end - row.start == 1 + self.num_drafts else -1

    def _prefill_all(
        self, row: Row[R], group: int, prefills: Sequence[Row[R]], left: Sequence[Left], block: int
    ) -> None:
        pages, mine = row.request.worker.pages[group], prefills.index(row)
        first = pages[max(-(-row.start // block) - 1, 0)]
        read = first if row.start else self.initial(first)
        writes = [
            (state.offset, prefills[state.target].request.worker.pages[group][state.column])
            for state in left
            if state.source == mine
        ]
        writes.append((row.end, pages[-(-row.end // block) - 1]))
        row.request.worker.running[group] = -1
        self.observer.advance(row.request.id, group, row.start, row.end, row.drafts, read, writes, 0)

    # After the forward pass.

    def after(self, rows: Sequence[Row[R]]) -> None:
        """Remember where the states are, now that it is known how much was accepted, and save boundaries passed."""
        for row in rows:
            state = row.request.worker
            known = row.end - len(row.drafts)
            kept = max(row.emitted, 1)
            count = self.count(kept, row.drafted) if row.drafted else kept
            for group, _ in self.all_mode:
                state.accepted[group] = count
            for group, block in self.recurrent:
                state.accepted[group] = count
                boundary = (known + kept - 1) // block * block
                if not self.num_drafts or boundary < known:
                    continue
                column, target = state.running[group], boundary // block - 1
                if column == target:
                    state.accepted[group] = 1
                    if boundary == known:
                        continue
                if self.saves(column, target):
                    pages = state.pages[group]
                    self._copy(row.request.id, group, "post", pages, column, boundary - known, pages[target])

    def count(self, kept: int, drafted: int) -> int:
        """Return the count that is remembered where a verification of so many drafts kept so many tokens, 1 to one
        more than ``drafted``."""
        return kept

    def saves(self, column: int, target: int) -> bool:
        """Return True if a boundary that was passed is saved from the running column into its own."""
        return True

    def _copy(self, request: str, group: int, kind: str, pages: list[int], running: int, bias: int, to: int) -> None:
        """Copy the state after ``bias`` drafts; the convolution's inputs are those of the running column, shifted."""
        source, inputs = slot_at(pages, running + bias), slot_at(pages, running)
        self.observer.copy(request, group, kind, source, to, inputs, self.shift(bias, inputs == to))

    def shift(self, bias: int, in_place: bool) -> int:
        """Return by how many inputs the convolution's are shifted in a copy of the state after ``bias`` drafts."""
        return bias

    def run(self, request: Asked, start: int, last: Row[R], steps: int) -> None:
        """Tell a run of decode steps within one column at once: only what the last of them left can be seen."""
        state = request.worker
        for group, _ in self.recurrent:
            pages, column = state.pages[group], state.running[group]
            if self.num_drafts:
                read = pages[column + state.accepted[group] - 1]
                writes = [(last.start + 1 + j, pages[column + j]) for j in range(self.num_drafts + 1)]
            else:
                read, writes = pages[column], [(last.end, pages[column])]
            self.observer.advance(request.id, group, start, last.end, last.drafts, read, writes, steps)
            state.accepted[group] = last.emitted


def slot_at(pages: Sequence[int], column: int) -> int:
    """Return the slot of a column; a column that the row does not have is as good as none (the null block)."""
    return pages[column] if 0 <= column < len(pages) else 0
