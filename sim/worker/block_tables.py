"""The worker's block tables: one row for each request that it knows, in a buffer that outlives them.

Who enters a row beyond what its request was given finds what an earlier request left there, or nulls; who enters it
beyond its width finds the rows that follow, and past the last one nothing at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stateat.sim.events import NULL, Group
from stateat.sim.worker.state import WorkerState

OUTSIDE = -1
"""Past the end of the buffer."""


def widths(groups: Sequence[Group], max_model_len: int, num_speculative_tokens: int) -> dict[int, int]:
    """Columns in a row of each recurrent group in align mode."""
    return {
        i: -(-max_model_len // group.block_size) + num_speculative_tokens
        for i, group in enumerate(groups)
        if group.aligned
    }


class BlockTables:
    """Rows of requests, and what is left in rows; the row freed last is taken first (vLLM's runner v2)."""

    def __init__(self, widths: Mapping[int, int], num_rows: int) -> None:
        self.widths = widths
        self.num_rows = num_rows
        self._fresh = num_rows
        """Rows from here on were used."""
        self._free: list[int] = []
        self._row: dict[str, int] = {}
        self._owner: dict[int, WorkerState] = {}
        self._left: dict[tuple[int, int], list[int]] = {}

    def enter(self, name: str, state: WorkerState) -> None:
        """Give a request a row, unless it has one."""
        if name not in self._row:
            if self._free:
                row = self._free.pop()
            else:
                self._fresh -= 1
                row = self._fresh
            self._row[name] = row
        self._owner[self._row[name]] = state

    def leave(self, name: str, state: WorkerState) -> None:
        """Free the row of a request that ended or was preempted; the row keeps what it held."""
        row = self._row.pop(name, None)
        if row is None:
            return
        del self._owner[row]
        self._free.append(row)
        for group in self.widths:
            pages, left = state.pages[group], self._left.get((row, group), [])
            self._left[row, group] = pages + left[len(pages) :]

    def slot(self, name: str, group: int, column: int) -> int:
        """Return what the buffer holds where a request's row would have this column."""
        width = self.widths[group]
        row = self._row[name] + column // width
        if row >= self.num_rows:
            return OUTSIDE
        owner, inside = self._owner.get(row), column % width
        for pages in (owner.pages[group] if owner is not None else [], self._left.get((row, group), [])):
            if inside < len(pages):
                return pages[inside]
        return NULL
