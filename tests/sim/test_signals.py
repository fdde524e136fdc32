"""Signals: one line and an exit code, from the first import on, wherever one comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stateat.sim.errors import Stopped
from stateat.sim.signals import is_signal, last, raising

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
COMES = """\
import os, signal, sys


class Comes:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})


sys.meta_path.insert(0, Comes())
sys.argv = ["stateat", *sys.argv[1:]]
from stateat.sim.cli.entry import main

main()
"""
"""The command line, in which a signal comes when a module is first imported."""


def stopped(module: str, number: int) -> subprocess.CompletedProcess[str]:
    code = COMES.format(module=module, number=int(number))
    return subprocess.run(
        [sys.executable, "-c", code, "schema"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_while_the_program_is_loaded_it_is_one_line(number: int, code: int) -> None:
    done = stopped("click", number)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == "stateat: interrupted; nothing was written\n"


def test_while_a_command_is_loaded_too() -> None:
    done = stopped("stateat.sim.scenario.models", signal.SIGINT)
    assert (done.returncode, done.stderr) == (130, "stateat: interrupted; nothing was written\n")


def test_where_nothing_can_be_raised_it_comes_again(capfd: pytest.CaptureFixture[str]) -> None:
    """A finalizer swallows what is raised in it."""

    class Swallows:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(1000):
                pass

    with pytest.raises(Stopped) as caught, raising():
        thing = Swallows()
        del thing
        time.sleep(5)
    assert caught.value.number == signal.SIGTERM and last() is not None
    assert "ignored" not in capfd.readouterr().err


def test_an_exception_that_code_made_is_no_signal() -> None:
    with raising():
        assert not is_signal(KeyboardInterrupt()) and not is_signal(Stopped(2))
        with pytest.raises(Stopped) as caught:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        assert is_signal(caught.value) and not is_signal(ValueError()) and not is_signal(None)
    # A program that hears for itself raises KeyboardInterrupt, and never ours.
    assert is_signal(KeyboardInterrupt()) and not is_signal(Stopped(2))


def test_one_that_is_ignored_stays_so() -> None:
    """As nohup and a background job have it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raising():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with raising():
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_the_entry_loads_nothing_heavy_before_it_hears() -> None:
    code = "import sys; import stateat.sim.cli.entry\n"
    code += "print([m for m in ('click', 'numpy', 'pydantic', 'rich') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
