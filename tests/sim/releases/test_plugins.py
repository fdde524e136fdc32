"""A user's code as a rule: whatever it does, one message names it with its own line, or the run is as without it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stateat.sim.cli.main import main
from stateat.sim.releases.plugins import guarded, shown
from stateat.sim.rules.answers import count, counts, number

SCENARIO = """\
schema: stateat/1
name: s
engine:
  groups:
    - {name: attention, kind: full-attention, block_size: 16}
    - {name: gdn, kind: recurrent, block_size: 64}
workload:
  requests:
    - {id: a, prompt: [[1, 200]]}
    - {id: b, prompt: [[1, 200]], after: a}
"""
HEAD = """\
import os, random, signal, sys
import numpy as np
class Odd:
    def __repr__(self): raise ValueError("no words")
    __str__ = __repr__
class Hidden:
    @property
    def __class__(self): raise SystemExit(0)
class BadError(Exception):
    def __str__(self): raise SystemExit(0)
class HiddenError(Exception):
    @property
    def __class__(self): raise SystemExit(0)
class BadInt(int):
    def __eq__(self, other): raise GeneratorExit
    __lt__ = __gt__ = __le__ = __ge__ = __add__ = __radd__ = __eq__
    __hash__ = int.__hash__
"""
LINE = HEAD.count("\n") + 3
"""Of a rule's body."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    sys.modules.pop("their_rule", None)


def replay(here: Path, body: str, *more: str, rule: str = "split") -> Result:
    (here / "their_rule.py").write_text(f"{HEAD}class Rule:\n    def __call__(self, *asked):\n        {body}\n")
    return CliRunner().invoke(main, ["replay", "s.yaml", "--rule", f"{rule}=their_rule:Rule", *more])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise BaseException('no')", "raised BaseException: no"),
        ("raise GeneratorExit", "raised GeneratorExit"),
        ("sys.exit(0)", "raised SystemExit: 0"),
        ("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
        ("from stateat.sim.errors import Stopped; raise Stopped(15)", "raised Stopped: 15"),
        ("raise StopIteration(3)", "raised StopIteration: 3"),
        ("raise BadError", "raised BadError: (a BadError, whose str() raises SystemExit)"),
        ("raise HiddenError('x')", "raised HiddenError: x"),
        ("raise ValueError('x' * 10_000)", "raised ValueError: xxx"),
        ("raise ValueError('\\x1b]0;title\\x07\\nok')", r"raised ValueError: \x1b]0;title\x07 ok"),
        ("return self(*asked)", "raised RecursionError"),
        ("return int('no')", "raised ValueError: invalid literal"),
        ("import json; json.loads('{')", "raised JSONDecodeError"),
        ("return 10**10_000", "gave a number of 33220 bits, allowed is a number of tokens, or a Cut"),
        ("return float('nan')", "gave nan, allowed is a number of tokens"),
        ("return np.int64(3)", "gave np.int64(3), allowed is a number of tokens"),
        ("return Odd()", "gave (a Odd, whose repr() raises ValueError), allowed is"),
        ("return Hidden()", "gave <their_rule.Hidden object"),
        ("from stateat.sim.rules.split import Cut; return Cut(3, Odd())", "gave (a Cut, whose repr()"),
        ("object.__setattr__(asked[0], 'offered', 10**9); return 10**9", "gave 1000000000 tokens to request a"),
    ],
)
def test_one_message_names_the_rule_and_the_request(here: Path, body: str, said: str) -> None:
    result = replay(here, body, "--json", "o.json")
    assert result.exit_code == 2 and not (here / "o.json").exists()
    (told,) = [line for line in result.output.splitlines() if line.startswith("stateat: ")]
    assert f"rule split=their_rule:Rule {said}" in told and "request a" in told and len(told) < 900
    if "raised" in said:
        assert f" at {here / 'their_rule.py'}:{LINE} " in told


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(
    "body",
    [
        "os.kill(os.getpid(), signal.SIGINT)",
        "try: os.kill(os.getpid(), signal.SIGINT)\n        except BaseException: return asked[0].offered",
        "try: os.kill(os.getpid(), signal.SIGINT)\n        finally: raise ValueError",
    ],
)
def test_a_signal_while_it_runs_is_the_users_whatever_it_makes_of_it(here: Path, body: str) -> None:
    result = replay(here, body, "--json", "o.json")
    assert result.exit_code == 130 and not (here / "o.json").exists()
    assert result.output.splitlines()[-1] == "stateat: interrupted; nothing was written"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_that_it_forks_ends_with_the_call() -> None:
    """Also in a program that called us: its code goes on once."""
    there, here = os.pipe()

    def forks() -> int:
        if not os.fork():
            os.write(here, b"in")
        return 7

    assert guarded("rule", forks, number, "a number")() == 7
    os.wait()
    os.close(here)
    assert os.read(there, 10) == b"in" and os.read(there, 10) == b""
    os.close(there)


@pytest.mark.parametrize(
    "body",
    [
        "return BadInt(asked[0].offered)",
        "random.seed(1); np.random.seed(1); return asked[0].offered",
        "os.makedirs('elsewhere', exist_ok=True); os.chdir('elsewhere'); return asked[0].offered",
        "print('noise'); sys.__stdout__.write('more'); return asked[0].offered",
        "sys.stdout.close(); sys.stderr.close(); sys.__stdout__.close(); return asked[0].offered",
        "sys.stdout = None; sys.stderr = 3; return asked[0].offered",
        "sys.path[:] = []; return asked[0].offered",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); return asked[0].offered",
    ],
)
def test_what_it_moves_of_the_process_is_put_back(here: Path, body: str) -> None:
    plain = replay(here, "return asked[0].offered", "--json", "-")
    sys.modules.pop("their_rule")
    before = os.getcwd(), list(sys.path), signal.getsignal(signal.SIGTERM), sys.stdout, sys.__stdout__
    result = replay(here, body, "--json", "-")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads(plain.stdout)
    # main() itself adds the current folder.
    after = os.getcwd(), sys.path[: len(before[1])], signal.getsignal(signal.SIGTERM), sys.stdout, sys.__stdout__
    assert after == before


def test_what_it_adds_to_the_path_is_searched_last(here: Path) -> None:
    before = list(sys.path)
    assert replay(here, "sys.path.insert(0, 'helpers'); return asked[0].offered").exit_code == 0
    assert "helpers" in sys.path and sys.path.index("helpers") >= len(before)
    sys.path[:] = before


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import sys\nsys.exit(0)\n", "SystemExit: 0 at {file}:2"),
        ("raise BaseException\n", "BaseException at {file}:1"),
        ("class Rule:\n    def __init__(self): raise GeneratorExit\n", "GeneratorExit at {file}:2"),
        ("class Meta(type):\n    def __call__(cls): raise SystemExit\nclass Rule(metaclass=Meta): pass\n", "{file}:2"),
        ("x = 1\ndef Rule(:\n", "SyntaxError: invalid syntax (their_rule.py, line 2) at {file}:2"),
    ],
)
def test_what_fails_when_it_is_loaded_is_told_with_its_line(here: Path, source: str, said: str) -> None:
    (here / "their_rule.py").write_text(source)
    result = CliRunner().invoke(main, ["check", "s.yaml", "--allow-code"])
    assert result.exit_code == 0
    result = CliRunner().invoke(main, ["replay", "s.yaml", "--rule", "split=their_rule:Rule"])
    assert result.exit_code == 2
    told = result.output.splitlines()[-1]
    assert "rule split=their_rule:Rule: cannot load it: " in told
    assert said.format(file=here / "their_rule.py") in told


ANSWERS = ["None", "float('nan')", "'1'", "True", "10**40", "-10**40", "[10**40]", "[None]", "Hidden()", "Odd()", "()"]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("rule", ["grid", "restore_column", "lookup", "skipped_states", "draft_slots"])
def test_no_rule_may_answer_that(here: Path, rule: str, answer: str) -> None:
    result = replay(here, f"return {answer}", rule=rule)
    assert result.exit_code == 2, result.output
    assert f"rule {rule}=their_rule:Rule gave " in result.output and "allowed is" in result.output


@pytest.mark.parametrize(
    "answer", ["0", "-1", "3", "2**62", "-2**62", "[]", "[-1]", "[2**62]", "[0, 0]", "Hit(1, [], 0, [])"]
)
@pytest.mark.parametrize("rule", ["grid", "restore_column", "lookup", "skipped_states", "draft_slots"])
def test_numbers_that_the_engine_cannot_use_are_no_traceback(here: Path, rule: str, answer: str) -> None:
    body = f"from stateat.sim.cache.lookup import Hit; return {answer}"
    result = replay(here, body, rule=rule)
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code in (0, 1) or f"rule {rule}=their_rule:Rule" in result.output


def test_answers_become_plain_values() -> None:
    class Mine(int):
        pass

    assert type(number(Mine(3))) is int and [type(n) for n in counts([Mine(3)])] == [int]
    for wrong in (True, 1.0, "1", None, 2**63, [1]):
        with pytest.raises(ValueError):
            number(wrong)
    for wrong in ((1,), [True], [None], [-1], 1):
        with pytest.raises(ValueError):
            counts(wrong)
    with pytest.raises(ValueError):
        count(-1)
    assert len(shown("x" * 1000)) == 200
