"""A request that a worker is asked about, without an engine behind it."""

from __future__ import annotations

from collections.abc import Sequence

from stateat.sim.events import Group, Observer
from stateat.sim.rules.restore_column import state_block_column
from stateat.sim.worker.block_tables import BlockTables, widths
from stateat.sim.worker.state import WorkerState
from stateat.sim.worker.worker import Row, Worker


class Asker:
    """All that a worker reads of a request: of attention no pages, of the recurrent group slots 100 to 119."""

    def __init__(
        self,
        id: str = "a",
        num_prompt: int = 40,
        pages: Sequence[Sequence[int]] = ((), range(100, 120)),
        running: Sequence[int] = (-1, -1),
        accepted: Sequence[int] = (1, 1),
        last_step: int = -1,
    ) -> None:
        self.id = id
        self.num_prompt = num_prompt
        self.worker = WorkerState(len(pages))
        self.worker.pages = [list(part) for part in pages]
        self.worker.running = list(running)
        self.worker.accepted = list(accepted)
        self.worker.last_step = last_step

    @property
    def prefill_end(self) -> int:
        return self.num_prompt

    @property
    def pages(self) -> list[list[int]]:
        return self.worker.pages

    @property
    def running(self) -> list[int]:
        return self.worker.running

    @property
    def accepted(self) -> list[int]:
        return self.worker.accepted

    @property
    def last_step(self) -> int:
        return self.worker.last_step


def row(request: Asker, start: int, end: int, drafts: Sequence[int] = (), emitted: int = 0) -> Row[Asker]:
    return Row(request, start, end, list(drafts), len(drafts), emitted)


def made(kind: type[Worker], groups: tuple[Group, ...], drafts: int, observer: Observer, **more: object) -> Worker:
    """A worker of a kind, whose state blocks are counted in themselves and whose tables have room for all."""
    tables = BlockTables(widths(groups, 1 << 20, drafts), 1 << 20)
    given = {"seed": state_block_column, "config_block": 64, "block_tables": tables, **more}
    return kind(groups, drafts, observer=observer, **given)  # type: ignore[arg-type]
