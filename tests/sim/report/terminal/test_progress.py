"""Progress on stderr."""

from __future__ import annotations

import io
import re

import pytest

from stateat.sim.report.terminal.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.time_s = 100.0

    def __call__(self) -> float:
        return self.time_s


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")


def run(stream: io.StringIO, seconds: float, updates: int, clock: str = "us") -> None:
    """A run that calls update at even distances."""
    now = Clock()
    with Progress("replay", clock, stream, now) as progress:
        for i in range(1, updates + 1):
            now.time_s = 100.0 + seconds * i / updates
            progress.update(i, updates, 10 * i, 2_000_000, 3)


def test_a_pipe_gets_a_line_at_once_and_then_one_every_ten_seconds() -> None:
    stream = io.StringIO()
    run(stream, 35.5, 7100)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "replay: starting"
    assert len(lines) == 1 + 3
    assert lines[1] == "replay: 2,000/7,100 requests · step 20,000 · 2.0 s simulated · poisoned 3 · 200/s · ETA 0:26"


def test_other_things_are_counted_by_their_name() -> None:
    stream, now = io.StringIO(), Clock()
    with Progress("conform", stream=stream, now=now) as progress:
        for i in range(41):
            now.time_s = 100.0 + i
            progress.count(i, 486, "recording")
    assert stream.getvalue().splitlines() == [
        "conform: starting",
        *(f"conform: {i}/486 recordings" for i in (10, 20, 30, 40)),
    ]


def test_a_short_run_in_a_pipe_says_one_line_without_escape_codes() -> None:
    stream = io.StringIO()
    run(stream, 5, 1000)
    assert stream.getvalue() == "replay: starting\n"


def test_a_terminal_shows_something_before_the_first_update() -> None:
    stream = Terminal()
    with Progress("replay", "us", stream, Clock()):
        assert "replay: starting" in stream.getvalue()


def test_a_terminal_is_updated_at_most_ten_times_a_second() -> None:
    stream = Terminal()
    run(stream, 2, 100_000)
    shown = len(re.findall(r"step [\d,]+", stream.getvalue()))
    assert 15 <= shown <= 22


def test_steps_are_not_shown_as_seconds() -> None:
    stream = io.StringIO()
    run(stream, 20, 100, clock="steps")
    assert "simulated" not in stream.getvalue()
    assert "step " in stream.getvalue()


def test_an_unknown_total_gives_no_estimate() -> None:
    stream, now = io.StringIO(), Clock()
    with Progress("audit", "us", stream, now) as progress:
        now.time_s += 11
        progress.update(1234, None, 5, 6, 0)
    assert stream.getvalue().splitlines()[1] == "audit: 1,234 requests · step 5 · 0.0 s simulated · poisoned 0 · 112/s"


def test_a_terminal_gets_its_cursor_back_even_after_an_error() -> None:
    stream = Terminal()
    with pytest.raises(KeyError), Progress("replay", "us", stream, Clock()):
        raise KeyError
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")
