"""The worker's block tables against a flat buffer, written as a worker writes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.events import Group
from stateat.sim.worker.block_tables import OUTSIDE, Rows, widths

WIDTH, ROWS = 4, 3


@dataclass
class Holder:
    id: str
    pages: list[list[int]] = field(default_factory=lambda: [[]])


def rows() -> Rows:
    return Rows({0: WIDTH}, ROWS)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, WIDTH)), max_size=30), st.integers(0, 3 * WIDTH * ROWS))
def test_a_column_is_what_a_flat_buffer_holds_there(moves: list[tuple[int, int]], column: int) -> None:
    table, buffer = rows(), [0] * (WIDTH * ROWS)
    free, holders, place, block = list(range(ROWS)), dict[int, Holder](), dict[int, int](), 0
    for who, length in moves:
        if who in holders:
            table.leave(holders.pop(who))  # type: ignore[arg-type]
            free.append(place.pop(who))
        elif free:
            pages = list(range(block + 1, block + 1 + length))
            block += length
            holders[who], place[who] = Holder(str(who), [pages]), free.pop()
            table.enter(holders[who])  # type: ignore[arg-type]
            buffer[place[who] * WIDTH : place[who] * WIDTH + length] = pages
    for who, holder in holders.items():
        at = place[who] * WIDTH + column
        assert table.slot(holder, 0, column) == (buffer[at] if at < len(buffer) else OUTSIDE)  # type: ignore[arg-type]


def test_what_a_request_leaves_lies_under_the_next_one() -> None:
    table, first, then = rows(), Holder("a", [[7, 8, 9]]), Holder("b", [[5]])
    table.enter(first)  # type: ignore[arg-type]
    table.leave(first)  # type: ignore[arg-type]
    table.enter(then)  # type: ignore[arg-type]
    assert [table.slot(then, 0, column) for column in range(5)] == [5, 8, 9, 0, OUTSIDE]  # type: ignore[arg-type]


def test_a_request_without_a_row_leaves_nothing() -> None:
    table = rows()
    table.leave(Holder("a", [[7]]))  # type: ignore[arg-type]
    holder = Holder("b")
    table.enter(holder)  # type: ignore[arg-type]
    assert table.slot(holder, 0, 0) == 0  # type: ignore[arg-type]


def test_the_widths_of_the_reports() -> None:
    """Mechanisms 4.5: 228 and 123 columns."""
    attention = Group("attention", "full-attention", 1152)
    assert widths((attention, Group("gdn", "recurrent", 1152)), 262_144, 0) == {1: 228}
    assert widths((attention, Group("gdn", "recurrent", 4480)), 524_288, 5) == {1: 123}
    assert widths((attention, Group("gdn", "recurrent", 64, False, "all")), 1000, 5) == {}
