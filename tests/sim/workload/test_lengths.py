"""Draws of lengths, and broken tables."""

from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from stateat.sim.errors import InputError
from stateat.sim.workload.lengths import Empirical, Fixed, Lognormal, Uniform, draw
from stateat.sim.workload.streams import stream


def drawn(lengths: Any, count: int = 20_000, base: Path = Path(".")) -> list[int]:
    return draw(lengths, count, stream(5, "prompt"), base, "s.yaml:3: workload")


def test_fixed() -> None:
    assert drawn(Fixed(kind="fixed", length=7), 3) == [7, 7, 7]


def test_uniform_reaches_both_ends_equally_often() -> None:
    seen = drawn(Uniform(kind="uniform", low=3, high=6))
    assert set(seen) == {3, 4, 5, 6}
    assert all(seen.count(n) == pytest.approx(5000, rel=0.06) for n in (3, 4, 5, 6))


def test_lognormal_has_its_mean_and_is_cut() -> None:
    free = drawn(Lognormal(kind="lognormal", mean=1000.0, sigma=0.8, high=2**26))
    assert mean(free) == pytest.approx(1000, rel=0.03)
    assert sorted(free)[10_000] == pytest.approx(1000 * 2.718281828 ** (-0.32), rel=0.03)  # the median
    cut = drawn(Lognormal(kind="lognormal", mean=1000.0, sigma=0.8, low=900, high=1100))
    assert (min(cut), max(cut)) == (900, 1100)
    # Cutting moves no other draw.
    assert all(c == min(1100, max(900, f)) for c, f in zip(cut, free, strict=True))


def test_empirical_draws_rows_of_a_column(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("time,tokens\n0,5\n1,5\n\n2,90\n")
    seen = drawn(Empirical(kind="empirical", path="t.csv", column="tokens"), base=tmp_path)
    assert set(seen) == {5, 90}
    assert seen.count(5) == pytest.approx(2 * len(seen) / 3, rel=0.03)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "t.csv:1: found no column 'tokens', allowed none"),
        ("time,token\n0,5\n", "t.csv:1: found no column 'tokens', allowed time, token"),
        ("tokens\n", "t.csv: the column 'tokens' is empty"),
        ("tokens\n5\nx\n", "t.csv:3: found 'x', allowed a length of 1"),
        ("tokens\n0\n", "t.csv:2: found '0'"),
        ("tokens\n-3\n", "t.csv:2: found '-3'"),
        ("tokens\n1.5\n", "t.csv:2: found '1.5'"),
        ("a,tokens\n3\n", "t.csv:2: found ''"),
        ("tokens\n" + "9" * 5000 + "\n", "t.csv:2: found '999"),
        ("tokens\n5\n\x00\n", "t.csv:3: "),
    ],
)
def test_a_broken_table_is_told_with_its_line(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(InputError) as caught:
        drawn(Empirical(kind="empirical", path="t.csv", column="tokens"), 1, tmp_path)
    assert says in str(caught.value)


def test_a_table_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"tokens\n\xff\n")
    with pytest.raises(InputError, match="not UTF-8"):
        drawn(Empirical(kind="empirical", path="t.csv", column="tokens"), 1, tmp_path)
