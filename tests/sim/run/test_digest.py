"""The digest of decisions is what docs/scenario-files.md says, byte by byte, and changes with every decision."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.run.digest import Digest

Act = Callable[[Digest], None]
Rows = list[tuple[int, int, int, int]]


def arrive(name: str, index: int) -> Act:
    return lambda d: d.arrive(name, index, 0, ((1, 10),), None, 1)


def step(index: int) -> Act:
    return lambda d: d.step(index, 10 * index, 100)


def chunk(name: str, start: int, end: int, drafts: int = 0, steps: int = 0, accepted: tuple[int, ...] = ()) -> Act:
    return lambda d: d.chunk(name, start, end, drafts, "any", steps, accepted)


def admit(name: str, hit: int = 0, external: int = 0) -> Act:
    return lambda d: d.admit(name, hit, external, False)


def finish(name: str) -> Act:
    return lambda d: d.finish(name)


def digest(*acts: Act, livelock: bool = False) -> str:
    made = Digest()
    for act in acts:
        act(made)
    made.end(9, 90, livelock)
    return made.hexdigest()


def expected(*requests: Rows, livelock: bool = False) -> str:
    parts = [hashlib.sha256(b"".join(pack("<qqqq", *row) for row in rows)).digest() for rows in requests]
    return hashlib.sha256(b"".join(parts) + bytes([livelock])).hexdigest()


RUN = (
    arrive("a", 0), arrive("b", 1), step(0), admit("a", 16), chunk("a", 16, 30), step(1), chunk("a", 30, 34, 3),
    admit("b"), chunk("b", 0, 5), lambda d: d.preempt("b"), finish("a"), step(2), admit("b", 4), finish("b"),
)  # fmt: skip
ROWS: tuple[Rows, Rows] = (
    [(0, -1, 16, 0), (0, 16, 30, 0), (1, 30, 34, 3), (1, -3, 0, 0)],
    [(1, -1, 0, 0), (1, 0, 5, 0), (1, -2, 0, 0), (2, -1, 4, 0), (2, -3, 0, 0)],
)


def test_is_the_hash_of_the_rows_of_each_request_and_of_those_in_the_order_of_the_workload() -> None:
    assert digest(*RUN) == expected(*ROWS)
    assert digest(*RUN, livelock=True) == expected(*ROWS, livelock=True) != digest(*RUN)


def test_an_empty_run_has_a_digest() -> None:
    assert digest() == hashlib.sha256(b"\0").hexdigest()


def test_the_order_is_the_workloads_and_not_that_of_arrival_or_ending() -> None:
    one = [arrive("a", 0), arrive("b", 1), step(0), admit("a"), admit("b"), finish("a"), finish("b")]
    other = [arrive("b", 1), arrive("a", 0), step(0), admit("b"), admit("a"), finish("b"), finish("a")]
    assert digest(*one) == digest(*other)
    swapped = [arrive("a", 1), arrive("b", 0), *one[2:-2], finish("a")]
    assert digest(*swapped) != digest(*one)


def test_every_decision_counts() -> None:
    base = [arrive("a", 0), step(0), admit("a", 16), chunk("a", 16, 30, 1), finish("a")]
    changed = [
        [*base[:1], step(1), *base[2:]],
        [*base[:2], admit("a", 15), *base[3:]],
        [*base[:3], chunk("a", 17, 30, 1), finish("a")],
        [*base[:3], chunk("a", 16, 31, 1), finish("a")],
        [*base[:3], chunk("a", 16, 30, 2), finish("a")],
        [*base[:3], finish("a")],
        base[:-1],
        [*base[:-1], lambda d: d.preempt("a"), finish("a")],
    ]
    assert len({digest(*run) for run in [base, *changed]}) == len(changed) + 1


def test_names_and_why_do_not_count() -> None:
    renamed = [arrive("z", 0), step(0), admit("z"), lambda d: d.chunk("z", 0, 9, 0, "else", 0, ()), finish("z")]
    assert digest(*renamed) == digest(arrive("a", 0), step(0), admit("a"), chunk("a", 0, 9), finish("a"))


def test_an_abort_is_an_end() -> None:
    base = [arrive("a", 0), step(0), admit("a")]
    assert digest(*base, lambda d: d.abort("a")) == digest(*base, finish("a")) != digest(*base)


@given(
    start=st.integers(0, 100), drafts=st.integers(0, 4), first=st.integers(0, 9),
    accepted=st.lists(st.integers(0, 4), min_size=1, max_size=9),
)  # fmt: skip
def test_a_fast_forwarded_run_is_the_rows_of_its_steps(
    start: int, drafts: int, first: int, accepted: list[int]
) -> None:
    accepted = [min(n, drafts) for n in accepted]
    singly, at = [arrive("a", 0)], start
    for i, right in enumerate(accepted):
        singly += [step(first + i), chunk("a", at, at + 1 + drafts, drafts)]
        last, at = at + 1 + drafts, at + 1 + right
    now = first + len(accepted)
    at_once = [arrive("a", 0), step(now), chunk("a", start, last, drafts, len(accepted), tuple(accepted))]
    assert digest(*at_once, finish("a")) == digest(*singly, step(now), finish("a"))
