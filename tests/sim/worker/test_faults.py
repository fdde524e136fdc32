"""What a worker keeps of a request between its steps."""

from __future__ import annotations

import pytest
from asker import made
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.events import Observer
from stateat.sim.worker.faults import BatchRows, NeverRolledBack, OneTooMany
from stateat.sim.worker.rules import WORKER
from stateat.sim.worker.worker import Worker


def test_newcomers_take_free_rows_and_the_last_rows_move_into_the_gaps_without_their_counts() -> None:
    rows = BatchRows()
    assert rows.update(["a", "b", "c"]) == {}
    rows.keep({"a": [1], "b": [2], "c": [3]})
    # a has left: c moves into its row, where a's count lies.
    assert rows.update(["b", "c"]) == {"b": [2], "c": [1]}
    rows.keep({"b": [2], "c": [4]})
    # d takes a row of its own, for nobody has left.
    assert rows.update(["b", "c", "d"]) == {"b": [2], "c": [4]}


@given(steps=st.lists(st.lists(st.sampled_from("abcdef"), unique=True), max_size=8))
def test_a_batch_in_which_nobody_leaves_gives_everybody_his_own_count(steps: list[list[str]]) -> None:
    rows, present, counts = BatchRows(), list[str](), dict[str, list[int]]()
    for number, names in enumerate(steps):
        present += [name for name in names if name not in present]
        found = rows.update(present)
        assert found == counts
        counts = {name: [number, ord(name)] for name in present}
        rows.keep(counts)


@given(kept=st.integers(1, 5), drafted=st.integers(4, 6))
def test_counts(kept: int, drafted: int) -> None:
    workers = [made(kind, (), 8, Observer()) for kind in (Worker, OneTooMany, NeverRolledBack)]
    # A row's own drafts count, not K.
    assert [worker.count(kept, drafted) for worker in workers] == [kept, kept + 1, drafted + 1]


def test_decode_steps_are_told_at_once_only_where_counts_are_the_requests_own() -> None:
    assert [name for name, kind in WORKER.items() if not kind.merges] == [
        "contiguous-view", "row-indexed", "one-too-many", "never-rolled-back", "padded-as-prefill",
            "first-column",
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(WORKER) - {"v2"}))
def test_a_fault_says_what_it_is_and_overrides_something(name: str) -> None:
    kind = WORKER[name]
    assert kind.__bases__ == (Worker,) and kind.__doc__
    assert [key for key in vars(kind) if not key.startswith("__") and hasattr(Worker, key)]
