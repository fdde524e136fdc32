"""The worker's block tables against a flat buffer, written as a worker writes it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.events import Group
from stateat.sim.worker.block_tables import OUTSIDE, BlockTables, widths
from stateat.sim.worker.state import WorkerState

WIDTH, NUM_ROWS = 4, 3


def holding(*pages: int) -> WorkerState:
    state = WorkerState(1)
    state.pages = [list(pages)]
    return state


def rows() -> BlockTables:
    return BlockTables({0: WIDTH}, NUM_ROWS)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, WIDTH)), max_size=30), st.integers(0, 3 * WIDTH * NUM_ROWS))
def test_a_column_is_what_a_flat_buffer_holds_there(moves: list[tuple[int, int]], column: int) -> None:
    table, buffer = rows(), [0] * (WIDTH * NUM_ROWS)
    free, holders, place, block = list(range(NUM_ROWS)), dict[int, WorkerState](), dict[int, int](), 0
    for who, length in moves:
        if who in holders:
            table.leave(str(who), holders.pop(who))
            free.append(place.pop(who))
        elif free:
            pages = list(range(block + 1, block + 1 + length))
            block += length
            holders[who], place[who] = holding(*pages), free.pop()
            table.enter(str(who), holders[who])
            buffer[place[who] * WIDTH : place[who] * WIDTH + length] = pages
    for who in holders:
        at = place[who] * WIDTH + column
        assert table.slot(str(who), 0, column) == (buffer[at] if at < len(buffer) else OUTSIDE)


def test_what_a_request_leaves_lies_under_the_next_one() -> None:
    table, first = rows(), holding(7, 8, 9)
    table.enter("a", first)
    table.leave("a", first)
    table.enter("b", holding(5))
    assert [table.slot("b", 0, column) for column in range(5)] == [5, 8, 9, 0, OUTSIDE]


def test_a_request_without_a_row_leaves_nothing() -> None:
    table = rows()
    table.leave("a", holding(7))
    table.enter("b", holding())
    assert table.slot("b", 0, 0) == 0


def test_the_widths_of_the_reports() -> None:
    """Mechanisms 4.5: 228 and 123 columns."""
    attention = Group("attention", "full-attention", 1152)
    assert widths((attention, Group("gdn", "recurrent", 1152)), 262_144, 0) == {1: 228}
    assert widths((attention, Group("gdn", "recurrent", 4480)), 524_288, 5) == {1: 123}
    assert widths((attention, Group("gdn", "recurrent", 64, False, "all")), 1000, 5) == {}
