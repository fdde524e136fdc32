"""The physical model: from block tables and chunks to copies, reads and writes (DESIGN 6).

Written once: every engine, embedded or real, hands its decisions to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.engine.checkpoint import Checkpoint
from sim.engine.rules import Memory, Seed
from sim.events import Group, Observer

if TYPE_CHECKING:
    from sim.cache.groups import CopyOnWrite
    from sim.engine.request import Request


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
    reserved: tuple[tuple[int, int] | None, ...] = ()
    """By group: the checkpoint that it exports, where that was decided before it runs."""
    void: bool = False
    """Whether its request is gone, so that nobody hears of what it samples."""


class Worker:
    """Turns what was scheduled into events on slots."""

    def __init__(
        self,
        groups: Sequence[Group],
        num_speculative_tokens: int,
        seed: Seed,
        scheduler_block: int,
        memory: Memory,
        observer: Observer,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.num_drafts = num_speculative_tokens
        self.attention = [i for i, g in enumerate(groups) if not g.recurrent]
        self.recurrent = [(i, g.block_size) for i, g in enumerate(groups) if g.aligned]
        self.all_mode = [(i, g.block_size) for i, g in enumerate(groups) if g.recurrent and not g.aligned]
        self.seed = seed
        self.scheduler_block = scheduler_block
        self.memory = memory
        self.observer = observer
        self.checkpoint = checkpoint

    def before(self, step: int, rows: list[Row], copies: list[CopyOnWrite], given: list[list[int]]) -> None:
        """Copies, then what attention was given, then the forward pass."""
        observer = self.observer
        self.copy_on_write(copies)
        boundaries = self.memory.tracks_mixed or all(row.start < row.request.prefill_end for row in rows)
        for row in rows:
            self._pre_copy(step, row)
        for group in self.attention:
            if given[group]:
                observer.allocate("", group, -1, given[group])
        for row in rows:
            self._forward(row)
            self._forward_all(row, boundaries)

    def copy_on_write(self, copies: list[CopyOnWrite]) -> None:
        """Whole pages, in the order in which they were queued."""
        for copy in copies:
            self.observer.copy(copy.request, copy.group, "cow", copy.source, copy.target, copy.source, 0)

    def _pre_copy(self, step: int, row: Row) -> None:
        """Carry the state into the column in which this chunk ends."""
        request = row.request
        for group, block in self.recurrent:
            target = -(-row.end // block) - 1 if self.memory.own_column else 0
            source = request.running[group]
            if source == -1:
                source = self.seed(row.start, block, self.scheduler_block)
            elif not self.memory.keeps_accepted and request.last_step != step - 1:
                request.accepted[group] = 1
            if source not in (-1, target):
                pages, bias = request.pages[group], request.accepted[group] - 1
                if pages[source + bias] != pages[target]:
                    self._copy(request.id, group, "pre", pages, source, bias, pages[target])
                request.accepted[group] = 1
            request.running[group] = target
        request.last_step = step

    def _forward(self, row: Row) -> None:
        request, tell = row.request, self.observer.advance
        for group, block in self.recurrent:
            pages, column = request.pages[group], request.running[group]
            if self._speculative(row):
                read = pages[column + request.accepted[group] - 1]
                writes = [(row.start + 1 + j, pages[column + j]) for j in range(len(row.drafts) + 1)]
            else:
                read = pages[column] if row.start or not self.memory.zeroes else -1
                writes = [(row.end, pages[column])]
                exported = self._exported(row, request, group, block)
                if exported is not None:
                    writes.insert(0, exported)
            tell(request.id, group, row.start, row.end, row.drafts, read, writes, 0)

    def _forward_all(self, row: Row, boundaries: bool) -> None:
        """``all`` mode: no copies; the chunk leaves a state in the column of every boundary that it passes, or of its
        end alone (not ``boundaries``)."""
        request = row.request
        for group, block in self.all_mode:
            pages = request.pages[group]
            read = pages[-(-row.start // block) - 1] if row.start else -1
            ends = [*range((row.start // block + 1) * block, row.end if boundaries else 0, block), row.end]
            writes = [(end, pages[-(-end // block) - 1]) for end in ends]
            self.observer.advance(request.id, group, row.start, row.end, row.drafts, read, writes, 0)

    def _exported(self, row: Row, request: Request, group: int, block: int) -> tuple[int, int] | None:
        """The state that a prefill chunk leaves on its way: offset and slot."""
        if self.checkpoint is None or row.start >= request.prefill_end:
            return None
        reserved = row.reserved[group] if row.reserved else request.tables[group].checkpoint
        offset, column = self.checkpoint.exported(row.start, row.end, block, reserved)
        slot = request.pages[group][column] if offset else 0
        return (offset, slot) if slot else None

    def _speculative(self, row: Row) -> bool:
        """Whether the kernel keeps a state after every token of this row."""
        if not self.num_drafts or row.end - row.start != len(row.drafts) + 1:
            return False
        return bool(row.drafts) or row.start >= row.request.num_prompt

    def after(self, rows: list[Row]) -> None:
        """Once it is known how much was accepted: remember where the state is, and save a boundary passed."""
        for row in rows:
            request = row.request
            known = row.end - len(row.drafts)
            kept = max(row.emitted, 1)
            for group, block in self.recurrent:
                request.accepted[group] = kept
                boundary = (known + kept - 1) // block * block
                if not self.num_drafts or boundary < known:
                    continue
                column, target = request.running[group], boundary // block - 1
                if column == target:
                    request.accepted[group] = 1
                    if boundary == known:
                        continue
                pages, bias = request.pages[group], boundary - known
                self._copy(request.id, group, "post", pages, column, bias, pages[target])

    def _copy(self, request: str, group: int, kind: str, pages: list[int], running: int, bias: int, to: int) -> None:
        """Copy the state after ``bias`` drafts; the convolution's inputs are those of the running column, shifted."""
        shift = bias if self.memory.shifts_inputs else 0
        self.observer.copy(request, group, kind, pages[running + bias], to, pages[running], shift)

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
