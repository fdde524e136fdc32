"""The physical model of groups in ``all`` mode, and the values of the rule ``worker``, row by row."""

from __future__ import annotations

from typing import Any

import pytest
from asker import Asker, made
from asker import row as row_of

from stateat.sim.events import Group, Observer
from stateat.sim.rules.state_writes import STATE_WRITES
from stateat.sim.worker.rules import WORKER
from stateat.sim.worker.worker import Row, Worker

B = 16
ALL = (Group("attention", "full-attention", 4), Group("ssd", "recurrent", B, mamba_cache_mode="all"))
ALIGN = (Group("attention", "full-attention", 4), Group("gdn", "recurrent", B))


class Heard(Observer):
    def __init__(self) -> None:
        self.rows: list[tuple[str, int, list[tuple[int, int]]]] = []
        self.copies: list[tuple[str, int, int]] = []

    def copy(self, request: str, group: int, kind: str, src: int, dst: int, conv_src: int, shift: int) -> None:
        self.copies.append((kind, src, dst))

    def advance(
        self, request: str, group: int, start: int, end: int, drafts: Any, read: int, writes: Any, steps: int
    ) -> None:
        self.rows.append((request, read, list(writes)))


def worker(
    groups: tuple[Group, ...] = ALL, drafts: int = 3, memory: str = "v2", kernel: str = "align-and-all", chunk: int = 0
) -> tuple[Worker, Heard]:
    heard = Heard()
    told = made(WORKER[memory], groups, drafts, heard, kernel=STATE_WRITES[kernel], mamba_chunk_size=chunk)
    return told, heard


def step(told: Worker, number: int, *rows: Row[Asker]) -> None:
    told.before(number, list(rows), [], [[], []])
    told.after(list(rows))


def row(request: Asker, start: int, end: int, drafts: int = 0, emitted: int = 0, id: int = 7) -> Row[Asker]:
    return row_of(request, start, end, [id] * drafts, emitted)


def test_a_prefill_leaves_a_state_in_every_column() -> None:
    told, heard = worker(drafts=0)
    step(told, 0, row(Asker(), 0, 40))
    assert heard.rows == [("a", -1, [(16, 100), (32, 101), (40, 102)])]


def test_a_decode_row_writes_from_the_column_of_its_last_token_and_the_next_reads_the_last_one_accepted() -> None:
    told, heard = worker()
    request = Asker()
    step(told, 0, row(request, 0, 40, emitted=1))
    # [40, 44) ends in column 2; two drafts are right.
    step(told, 1, row(request, 40, 44, 3, emitted=3))
    # [43, 47) too; then [46, 50) ends in column 3, but what it reads lies where the row before wrote it.
    step(told, 2, row(request, 43, 47, 3, emitted=3))
    step(told, 3, row(request, 46, 50, 3, emitted=1))
    step(told, 4, row(request, 47, 51, 3, emitted=1))
    assert heard.rows[1:] == [
        ("a", 102, [(41, 102), (42, 103), (43, 104), (44, 105)]),
        ("a", 104, [(44, 102), (45, 103), (46, 104), (47, 105)]),
        ("a", 104, [(47, 103), (48, 104), (49, 105), (50, 106)]),
        ("a", 103, [(48, 103), (49, 104), (50, 105), (51, 106)]),
    ]
    assert heard.copies == []


def test_a_clipped_row_is_not_remembered_by_where_it_ended() -> None:
    told, heard = worker()
    request = Asker()
    step(told, 0, row(request, 0, 40, emitted=1))
    step(told, 1, row(request, 40, 41, emitted=1))
    assert request.running[1] == -1
    step(told, 2, row(request, 41, 45, 3, emitted=1))
    assert [read for _, read, _ in heard.rows] == [-1, 102, 102] and request.running[1] == 2


def test_only_the_end_is_left_by_a_kernel_of_chunk_ends() -> None:
    told, heard = worker(drafts=0, kernel="all-chunk-end-only")
    step(told, 0, row(Asker(), 0, 40))
    assert heard.rows == [("a", -1, [(40, 102)])]


def test_a_state_that_goes_into_another_rows_table_is_written_once_that_row_has_read_its_own() -> None:
    """Blocks of 16 and kernel chunks of 12: from 14 on a row counts back into the one before it."""
    told, heard = worker(drafts=0, chunk=12)
    first, second = Asker("a", pages=[[], [1, 2, 3]]), Asker("b", pages=[[], [11, 12, 13]])
    step(told, 0, row(first, 0, 12), row(second, 14, 20))
    assert heard.rows == [("b", 11, [(20, 12)]), ("a", -1, [(12, 11), (12, 1)])]


def test_the_null_block_keeps_nothing() -> None:
    told, heard = worker(ALIGN, drafts=0)
    step(told, 0, row(Asker(pages=[[], [0, 5]]), 0, 16))
    assert heard.rows == [("a", -1, [])]


@pytest.mark.parametrize(
    ("memory", "accepted", "drafts", "read"),
    [
        ("v2", 2, 3, 103),
        ("one-too-many", 2, 3, 104),
        ("one-too-many", 4, 3, 106),
        ("never-rolled-back", 1, 3, 105),
    ],
)
def test_which_state_the_row_after_a_verification_reads(memory: str, accepted: int, drafts: int, read: int) -> None:
    told, heard = worker(ALIGN, memory=memory)
    request = Asker(num_prompt=33, running=[-1, 2])
    step(told, 0, row(request, 33, 37, 3, emitted=accepted))
    step(told, 1, row(request, 33 + accepted, 34 + accepted + drafts, drafts, emitted=1))
    assert heard.rows[-1][1] == read


def test_a_padded_row_that_runs_as_a_prefill_leaves_the_state_behind_its_placeholders() -> None:
    for memory, writes in (("v2", [(40, 102), (41, 103), (42, 104)]), ("padded-as-prefill", [(42, 102)])):
        told, heard = worker(ALIGN, drafts=2, memory=memory)
        step(told, 0, row(Asker(running=[-1, 2]), 39, 42, 2, id=-1))
        assert heard.rows == [("a", 102, writes)]


def test_a_boundary_is_not_saved_backwards_where_that_is_forbidden() -> None:
    for memory, copies in (("v2", [("post", 104, 101)]), ("no-backward-copy", [])):
        told, heard = worker(ALIGN, memory=memory)
        # [30, 34) ends in column 2; one draft is right: 32, whose column is 1.
        step(told, 0, row(Asker(num_prompt=20, running=[-1, 2]), 30, 34, 3, emitted=2))
        assert heard.copies == [(kind, src - 1, dst) for kind, src, dst in copies]
