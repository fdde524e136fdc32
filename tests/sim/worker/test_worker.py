"""The physical model against the words of the design (section 6), row by row."""

from __future__ import annotations

from typing import Any

import pytest
from asker import Asker, made, row
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.cache.groups import CopyOnWrite
from stateat.sim.events import Group, Observer
from stateat.sim.worker.block_tables import BlockTables
from stateat.sim.worker.faults import ContiguousView, RunnerV1
from stateat.sim.worker.worker import Row, Worker

B = 16
GROUPS = (Group("attention", "full-attention", 4), Group("gdn", "recurrent", B))


class Heard(Observer):
    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def copy(self, *args: Any) -> None:
        self.events.append(("copy", *args))

    def advance(
        self, request: str, group: int, start: int, end: int, drafts: Any, read: int, writes: Any, steps: int
    ) -> None:
        self.events.append(("advance", request, start, end, list(drafts), read, list(writes), steps))

    def allocate(self, request: str, group: int, column: int, slots: Any) -> None:
        self.events.append(("allocate", request, group, column, list(slots)))


def worker(drafts: int = 0, kind: type[Worker] = Worker, **more: Any) -> tuple[Worker, Heard]:
    heard = Heard()
    return made(kind, GROUPS, drafts, heard, **more), heard


# Before the forward pass.


def test_a_prompt_starts_from_a_zero_state_in_its_last_column() -> None:
    told, heard = worker()
    request = Asker()
    told.before(0, [row(request, 0, 40)], [], [[], []])
    assert heard.events == [("advance", "a", 0, 40, [], -1, [(40, 102)], 0)]
    assert (request.running, request.last_step) == ([-1, 2], 0)


def test_within_its_column_it_goes_on_in_place() -> None:
    told, heard = worker()
    request = Asker(running=[-1, 2])
    told.before(1, [row(request, 40, 48)], [], [[], []])
    assert heard.events == [("advance", "a", 40, 48, [], 102, [(48, 102)], 0)]


@pytest.mark.parametrize(
    ("exported", "column", "writes"),
    [((32, 1), 101, [(32, 101), (40, 102)]), ((32, 1), 0, [(40, 102)]), ((0, 1), 101, [(40, 102)])],
    ids=["exported", "no block", "nothing to export"],
)
def test_a_state_on_the_way_goes_into_the_column_that_there_is_for_it(
    exported: tuple[int, int], column: int, writes: list[tuple[int, int]]
) -> None:
    told, heard = worker(export=lambda *chunk: exported)
    told.before(0, [row(Asker(pages=((), (100, column, 102))), 0, 40)], [], [[], []])
    assert heard.events == [("advance", "a", 0, 40, [], -1, writes, 0)]


def test_into_another_column_its_state_is_carried_first() -> None:
    told, heard = worker()
    request = Asker(running=[-1, 2])
    told.before(1, [row(request, 40, 80)], [], [[], []])
    assert heard.events == [
        ("copy", "a", 1, "pre", 102, 104, 102, 0),
        ("advance", "a", 40, 80, [], 104, [(80, 104)], 0),
    ]
    assert request.running[1] == 4


@pytest.mark.parametrize(("start", "column"), [(1, 0), (16, 0), (17, 1), (32, 1), (48, 2)])
def test_a_restored_request_reads_the_column_that_holds_its_state(start: int, column: int) -> None:
    told, heard = worker()
    told.before(0, [row(Asker(), start, 80)], [], [[], []])
    assert heard.events[0] == ("copy", "a", 1, "pre", 100 + column, 104, 100 + column, 0)
    assert heard.events[1][5] == 104


def test_the_seed_is_a_rule() -> None:
    told, heard = worker(seed=lambda start, block, scheduler: (start - 1) // scheduler)
    told.before(0, [row(Asker(), 48, 80)], [], [[], []])
    assert heard.events[0][4] == 100


def test_the_accepted_draft_whose_state_it_is_decides_what_is_carried() -> None:
    told, heard = worker(drafts=3)
    request = Asker(running=[-1, 2], accepted=[1, 3])
    told.before(1, [row(request, 47, 51, [1, 2, 3])], [], [[], []])
    # From column 2 + 2 to column 3; the convolution's window stays in column 2, shifted by 2.
    assert heard.events[0] == ("copy", "a", 1, "pre", 104, 103, 102, 2)
    assert heard.events[1][5] == 103 and request.accepted[1] == 1


@pytest.mark.parametrize(("running", "source"), [(3, 103), (4, 0), (9, 0)])
def test_a_column_behind_the_table_is_the_null_block(running: int, source: int) -> None:
    """A request that was put back and keeps its old column: its new table may be shorter."""
    told, heard = worker()
    request = Asker(pages=[[], [100, 101, 102, 103]], running=[-1, running])
    told.before(0, [row(request, 16, 32)], [], [[], []])
    assert heard.events[0] == ("copy", "a", 1, "pre", source, 101, source, 0)


def test_of_a_relocated_block_only_the_inputs_of_the_convolution_move() -> None:
    told, heard = worker(drafts=1)
    request = Asker(running=[-1, 2], accepted=[1, 2])
    request.pages[1][4] = request.pages[1][3]
    told.before(1, [row(request, 47, 80)], [], [[], []])
    # Column 2 + 1 and column 4 are one block: its matrix stays, the window of column 2 comes, shifted by 1.
    assert [e[0] for e in heard.events] == ["copy", "advance"]
    assert heard.events[0] == ("copy", "a", 1, "pre", 103, 103, 102, 1)
    assert request.accepted[1] == 1 and request.running[1] == 4


@pytest.mark.parametrize(("keeps", "since", "read"), [(True, 1, 104), (True, 3, 104), (False, 1, 104), (False, 3, 102)])
def test_v2_remembers_the_accepted_count_of_a_skipped_request_and_v1_does_not(
    keeps: bool, since: int, read: int
) -> None:
    told, heard = worker(drafts=3, kind=Worker if keeps else RunnerV1)
    request = Asker(num_prompt=10, running=[-1, 2], accepted=[1, 3], last_step=0)
    told.before(since, [row(request, 43, 47, [1, 2, 3])], [], [[], []])
    assert heard.events[0][5] == read


def test_all_copies_come_before_what_attention_was_given_and_that_before_any_forward() -> None:
    told, heard = worker()
    one, other = Asker("a", running=[-1, 2]), Asker("b", running=[-1, 2])
    copies = [CopyOnWrite("c", 1, 7, 8), CopyOnWrite("d", 0, 5, 6)]
    told.before(1, [row(one, 40, 80), row(other, 40, 80)], copies, [[30, 31], []])
    assert [(e[0], e[1], e[3]) if e[0] == "copy" else e[:2] for e in heard.events] == [
        ("copy", "c", "cow"),
        ("copy", "d", "cow"),
        ("copy", "a", "pre"),
        ("copy", "b", "pre"),
        ("allocate", ""),
        ("advance", "a"),
        ("advance", "b"),
    ]
    assert heard.events[4] == ("allocate", "", 0, -1, [30, 31])


def test_nothing_given_is_not_told() -> None:
    told, heard = worker()
    told.before(0, [], [], [[], []])
    assert heard.events == []


# The forward pass.


def test_a_row_with_drafts_leaves_a_state_after_each_of_its_tokens() -> None:
    told, heard = worker(drafts=2)
    request = Asker(running=[-1, 2], accepted=[1, 2])
    told.before(1, [row(request, 41, 44, [7, 8])], [], [[], []])
    assert heard.events == [("advance", "a", 41, 44, [7, 8], 103, [(42, 102), (43, 103), (44, 104)], 0)]


@pytest.mark.parametrize(
    ("drafts", "start", "end", "speculative"),
    [
        ([], 40, 41, True),  # a decode row without drafts
        ([], 39, 40, False),  # the prompt's last token
        ([], 40, 42, False),  # two tokens of a replay
        ([1], 39, 41, True),  # placeholders behind the last token of a prompt
        ([1], 39, 42, False),
        ([1, 2], 40, 43, True),
    ],
)
def test_which_rows_are_speculative(drafts: list[int], start: int, end: int, speculative: bool) -> None:
    told, heard = worker(drafts=2)
    request = Asker(running=[-1, 2], accepted=[1, 2])
    told.before(1, [row(request, start, end, drafts)], [], [[], []])
    assert heard.events[0][5] == (103 if speculative else 102)
    assert len(heard.events[0][6]) == (end - start if speculative else 1)


def test_without_a_drafter_no_row_is_speculative() -> None:
    told, heard = worker(drafts=0)
    request = Asker(running=[-1, 2], accepted=[1, 2])
    told.before(1, [row(request, 40, 41)], [], [[], []])
    assert heard.events[0][5:7] == (102, [(41, 102)])


# Verification.


@given(known=st.integers(33, 48), drafts=st.integers(0, 3), data=st.data())
def test_a_boundary_that_was_passed_goes_to_its_own_column(known: int, drafts: int, data: st.DataObject) -> None:
    """DESIGN 6.5, in its own words."""
    emitted = data.draw(st.integers(0, drafts + 1))
    column = -(-(known + drafts) // B) - 1
    request = Asker(running=[-1, column])
    told, heard = worker(drafts=3)
    told.after([row(request, known - 1, known + drafts, [0] * drafts, emitted)])
    m = max(emitted, 1)
    new = known + m - 1
    boundary = new // B * B
    accepted, copies = m, list[tuple[int, int]]()
    if boundary >= known:
        target = boundary // B - 1
        if column == target:
            accepted = 1
        if not (column == target and boundary == known):
            copies.append((100 + column + boundary - known, 100 + target))
    assert request.accepted[1] == accepted
    assert [(e[4], e[5]) for e in heard.events] == copies
    assert all(e[3] == "post" and e[6:] == (100 + column, boundary - known) for e in heard.events)
    # So state@computed lies in column running + accepted - 1: after draft j lies what is in running + j.
    if not copies:
        assert column + request.accepted[1] - 1 == column + m - 1


def test_a_row_that_ends_on_its_boundary_needs_no_copy() -> None:
    told, heard = worker(drafts=3)
    request = Asker(running=[-1, 2], accepted=[1, 2])
    told.after([row(request, 47, 48)])
    assert heard.events == [] and request.accepted[1] == 1


def test_without_a_drafter_nothing_is_copied_back() -> None:
    told, heard = worker(drafts=0)
    told.after([row(Asker(running=[-1, 2]), 47, 48)])
    assert heard.events == []


@given(known=st.integers(17, 70), right=st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_state_at_computed_is_always_where_the_next_row_reads(known: int, right: list[int]) -> None:
    """Slots hold offsets; each row must read its own start, whatever was accepted before."""
    told, heard = worker(drafts=3)
    request = Asker(num_prompt=known - 1)
    held: dict[int, int] = {}
    start = 0
    rows = [(known - 1, None)] + [(1, n) for n in right]
    for step, (tokens, accepted) in enumerate(rows):
        drafts = [] if accepted is None else [0, 0, 0]
        this = row(request, start, start + tokens + len(drafts), drafts)
        heard.events.clear()
        told.before(step, [this], [], [[], []])
        this.emitted = 1 + (accepted or 0)
        told.after([this])
        for event in heard.events:
            if event[0] == "copy":
                assert event[4] in held
                held[event[5]] = held[event[4]]
            else:
                assert event[5] == -1 if start == 0 else held[event[5]] == start
                # What lies over rejected drafts is nobody's state.
                held.update({slot: offset for offset, slot in event[6]})
        start += tokens + (accepted or 0)
        boundary = start // B * B
        if boundary > this.start and this.start:
            assert held[request.pages[1][boundary // B - 1]] == boundary


# Fast-forwarded runs.


def test_a_run_tells_what_its_last_step_left() -> None:
    told, heard = worker(drafts=2)
    request = Asker(running=[-1, 2], accepted=[1, 2])
    last = Row(request, 44, 47, [7, 8], 2, 3)
    told.run(request, 41, last, 2)
    assert heard.events == [("advance", "a", 41, 47, [7, 8], 103, [(45, 102), (46, 103), (47, 104)], 2)]
    assert request.accepted[1] == 3


def test_a_run_without_drafts_stays_in_its_slot() -> None:
    told, heard = worker()
    request = Asker(running=[-1, 2])
    told.run(request, 41, Row(request, 45, 46, [], 0, 1), 5)
    assert heard.events == [("advance", "a", 41, 46, [], 102, [(46, 102)], 5)]


# The seed.


def told_seeds(told: Worker, heard: Heard, rows: list[Row[Asker]]) -> list[tuple[int, ...]]:
    seeds: list[tuple[int, ...]] = []
    heard.seed = lambda request, group, *rest: seeds.append(rest)  # type: ignore[method-assign]
    told.before(0, rows, [], [[], []])
    return seeds


def test_the_seed_is_told_with_what_the_row_holds_there() -> None:
    told, heard = worker()
    told.block_tables = BlockTables({1: 30}, 4)
    assert told_seeds(told, heard, [row(Asker(), 33, 80)]) == [(2, 30, 102)]
    assert told_seeds(told, heard, [row(Asker("b"), 0, 16)]) == []


def test_a_seed_past_the_table_is_told_and_brings_nothing() -> None:
    told, heard = worker(seed=lambda start, block, other: 7)
    told.block_tables = BlockTables({1: 5}, 1)
    assert told_seeds(told, heard, [row(Asker(), 33, 80)]) == [(7, 5, -1)]
    assert heard.events[0] == ("copy", "a", 1, "pre", -1, 104, -1, 0)


def test_a_seed_past_its_row_finds_the_next_one() -> None:
    """The row taken first is the last of the table."""
    told, heard = worker(seed=lambda start, block, other: 7)
    told.block_tables = BlockTables({1: 5}, 2)
    first = Asker("a", pages=[[], [1, 2, 3, 4, 5]], running=[-1, 0])
    assert told_seeds(told, heard, [row(first, 8, 9), row(Asker("b"), 33, 80)]) == [(7, 5, 3)]


# A strided column, read as if it were contiguous.


def views(kind: type[Worker]) -> list[tuple[int, int]]:
    told, heard = worker(drafts=2, kind=kind)
    first, second = Asker("a"), Asker("b", pages=[[], list(range(200, 220))])
    told.before(0, [row(first, 0, 16), row(second, 0, 16)], [], [[], []])
    return [event[6][0] for event in heard.events]


def test_prefills_alone_take_the_first_rows_columns() -> None:
    assert views(Worker) == [(16, 100), (16, 200)]
    assert views(ContiguousView) == [(16, 100), (16, 101)]


def test_beside_a_speculative_row_each_has_its_own() -> None:
    told, heard = worker(drafts=2, kind=ContiguousView)
    decode = Asker("d", num_prompt=10, running=[-1, 0])
    told.before(0, [row(decode, 12, 15, [1, 2]), row(Asker("b", pages=[[], [200, 201, 202]]), 0, 16)], [], [[], []])
    assert heard.events[-1][6] == [(16, 200)]


@pytest.mark.parametrize(("plain", "drafts", "read"), [(False, 0, 104), (True, 0, 102), (True, 3, 104)])
def test_a_row_without_drafts_reads_the_running_column_where_that_is_the_rule(
    plain: bool, drafts: int, read: int
) -> None:
    told, heard = worker(drafts=3, undrafted_are_plain=plain)
    request = Asker(running=[-1, 2], accepted=[1, 3])
    told.before(1, [row(request, 43, 44 + drafts, range(drafts))], [], [[], []])
    assert heard.events[0][5] == read


def test_a_copy_into_another_column_takes_the_state_of_a_row_without_drafts_from_where_it_lies() -> None:
    told, heard = worker(drafts=3, undrafted_are_plain=True)
    request = Asker(running=[-1, 2], accepted=[1, 3])
    told.before(1, [row(request, 48, 49)], [], [[], []])
    assert [event[:2] + event[3:6] for event in heard.events[:1]] == [("copy", "a", "pre", 104, 103)]
    assert heard.events[1][5] == 103
