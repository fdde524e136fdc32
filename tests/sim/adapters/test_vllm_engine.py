"""The live engine against a stand-in worker: the protocol, crashes, time-outs, and the end of the parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateat.sim.adapters.vllm import process
from stateat.sim.adapters.vllm.answers import HELLO
from stateat.sim.adapters.vllm.engine import LiveScheduler
from stateat.sim.adapters.vllm.prints import SHOWN_CHARACTERS, SHOWN_LINES, Prints
from stateat.sim.adapters.vllm.process import Child
from stateat.sim.errors import EngineError, RefusedError
from stateat.sim.events import Group, Observer
from stateat.sim.options import Offload, Options
from stateat.sim.releases.policy import Policy
from stateat.sim.workload import Arrival

FAKE = Path(__file__).resolve().parents[2] / "support" / "fake_vllm_child.py"
ROOT = Path(__file__).resolve().parents[3]
OPTIONS = Options(
    groups=(Group("attention", "full-attention", 16), Group("gdn", "recurrent", 16)),
    num_blocks=10,
    max_num_batched_tokens=64,
    clock="steps",
)
ARRIVAL = Arrival("a", 0, 0, ((1, 16),), 2)


class Heard(Observer):
    """Writes down some of what an engine says."""

    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        self.lines.append(("admit", request, hit))

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        self.lines.append(("claim", group, slot, request, column, offset, len(hash)))

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        self.lines.append(("unclaim", slot, why))

    def advance(self, request, group, start, end, drafts, read, writes, steps) -> None:  # type: ignore[no-untyped-def]
        self.lines.append(("advance", request, group, start, end, read, tuple(writes)))

    def copy(self, request: str, group: int, kind: str, src: int, dst: int, conv_src: int, shift: int) -> None:
        self.lines.append(("copy", request, group, kind, src, dst))

    def launch(self, index: int) -> None:
        self.lines.append(("launch", index))

    def output(self, request: str, count: int, tokens: tuple[int, ...] | None) -> None:
        self.lines.append(("output", request, count))

    def finish(self, request: str) -> None:
        self.lines.append(("finish", request))

    def abort(self, request: str) -> None:
        self.lines.append(("abort", request))

    def reset(self, done: bool) -> None:
        self.lines.append(("reset", done))


def child(*how: str, answer_s: float = 20, start_s: float = 20) -> Child:
    return Child("vLLM fake", [sys.executable, str(FAKE), *how], answer_s=answer_s, start_s=start_s)


def scheduler(engine: Child, heard: Observer) -> LiveScheduler:
    return LiveScheduler(Policy.of(OPTIONS), heard, 0, engine)


def test_what_the_worker_says_becomes_events_with_the_physical_model() -> None:
    heard = Heard()
    with child() as engine:
        live = scheduler(engine, heard)
        assert (live.warnings, live.free_blocks, live.idle, live.jump(0), live.quiet_tokens) == (
            ["it would refuse this"], 9, True, 0, 0,
        )  # fmt: skip
        live.add(ARRIVAL, 0)
        assert not live.idle
        first, second = live.step(0, 0, 64), live.step(1, 1, 64)
        assert (first.prefill_tokens, first.decode_tokens, first.finished) == (16, 0, [])
        assert (second.prefill_tokens, second.decode_tokens, second.finished) == (0, 1, ["a"])
        assert live.idle and live.free_blocks == 7
    assert heard.lines == [
        ("claim", 1, 2, "a", 0, 16, 16),
        ("admit", "a", 0),
        ("advance", "a", 1, 0, 16, -1, ((16, 2),)),
        ("output", "a", 1),
        ("copy", "a", 1, "pre", 2, 3),
        ("advance", "a", 1, 16, 17, 3, ((17, 3),)),
        ("output", "a", 1),
        ("unclaim", 2, "evict"),
        ("finish", "a"),
    ]


ADVANCES = (
    ("advance", "a", 1, 0, 16, -1, ((16, 2),)),
    ("advance", "a", 1, 16, 17, 3, ((17, 3),)),
    ("advance", "a", 1, 17, 18, 3, ((18, 3),)),
)


def test_asynchronously_a_step_runs_before_the_outcome_of_the_one_before_is_heard_and_no_launch_is_told() -> None:
    heard = Heard()
    with child("ahead") as engine:
        live = scheduler(engine, heard)
        live.add(ARRIVAL, 0)
        first, *others = [live.step(index, index, 64) for index in range(3)]
        assert first.filled and not first.tokens
        assert [step.tokens for step in others] == [16, 1] and others[-1].finished == ["a"]
        assert not live.idle
        # Its last row has run, for nobody.
        assert live.step(3, 3, 64).finished == [] and live.idle
    assert heard.lines == [
        ("claim", 1, 2, "a", 0, 16, 16),
        ("admit", "a", 0),
        ADVANCES[0],
        ("copy", "a", 1, "pre", 2, 3),
        ADVANCES[1],
        ("output", "a", 1),
        ADVANCES[2],
        ("output", "a", 1),
        ("unclaim", 2, "evict"),
        ("finish", "a"),
    ]


def test_a_late_abort_comes_behind_the_decisions_of_a_step_and_before_the_outcome_of_another() -> None:
    heard = Heard()
    with child("ahead") as engine:
        live = scheduler(engine, heard)
        live.add(ARRIVAL, 0)
        live.step(0, 0, 64)
        assert live.abort("a", late=True) and live.aborting
        assert live.step(1, 1, 64).finished == ["a"] and not live.aborting
    assert heard.lines[-3:] == [("copy", "a", 1, "pre", 2, 3), ADVANCES[1], ("abort", "a")]


def test_a_scheduler_that_counts_otherwise_than_its_worker_is_an_error() -> None:
    with child("miscounts") as engine:
        live = scheduler(engine, Observer())
        live.add(ARRIVAL, 0)
        live.step(0, 0, 64)
        message = "vLLM fake answered nonsense: found a chunk of a from 17 on, allowed 16, by the steps under way"
        with pytest.raises(EngineError, match=message):
            live.step(1, 1, 64)


@pytest.mark.parametrize(("blocks", "slot"), [(2, 0), (3, 5)])
def test_a_hit_without_a_column_for_its_end_restores_no_slot(blocks: int, slot: int) -> None:
    """vLLM 0.26 with external tokens: attention's own hit of 44 tokens counts, of which states have two columns."""
    told: list[tuple[int, int]] = []

    class Restores(Observer):
        def restore(self, request: str, group: int, slot: int, column: int, offset: int, hits: Sequence[int]) -> None:
            told.append((slot, offset))

    with child() as engine:
        live = scheduler(engine, Restores())
        live.add(replace(ARRIVAL, segments=((1, 60),)), 0)
        live._on_admit("a", 44, 0, False, [[9, 3], [5, blocks]], 0, [])
    assert told == [(slot, 44)]


def test_one_worker_serves_one_run_after_another() -> None:
    with child() as engine:
        for _ in range(2):
            live = scheduler(engine, Observer())
            live.add(ARRIVAL, 0)
            live.step(0, 0, 64)
            assert live.step(1, 1, 64).finished == ["a"]


def test_an_abort_is_told_once_and_ends_the_request() -> None:
    heard = Heard()
    with child() as engine:
        live = scheduler(engine, heard)
        live.add(ARRIVAL, 0)
        assert live.abort("a") and live.abort("a") and live.aborting
        assert not live.abort("b")
        assert live.step(0, 0, 64).finished == ["a"]
        assert live.idle and not live.aborting
    assert heard.lines == [("abort", "a")]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("crash", r"vLLM fake ended with exit code 7 during 'step'\n  it wrote last:\n  the sky fell"),
        ("kill", r"vLLM fake was killed by SIGKILL during 'step'"),
        ("hang", r"did not answer 'step' within 0.5 s, so it was ended\n  it wrote last:\n  thinking"),
        ("garbage", r"answered 'step' out of shape \(Invalid JSON: .*\): b'this is no JSON'"),
        ("floods", r"vLLM fake printed more than 0 MB during 'step'"),
        ("endless", r"vLLM fake answered 'step' with more than 0 MB"),
        ("leaves", r"vLLM fake ended with exit code 7 during 'step'"),
        ("raise", r"failed in 'step': AssertionError: no free block\n  it wrote last:\n  Traceback: deep inside"),
    ],
)
def test_a_worker_that_fails_becomes_one_message(how: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MOST_PRINTED", 1 << 19)
    monkeypatch.setattr(process, "LONGEST_ANSWER", 1 << 19)
    engine = child(how, answer_s=0.5 if how == "hang" else 20)
    live = scheduler(engine, Observer())
    live.add(ARRIVAL, 0)
    with pytest.raises(EngineError, match=message):
        live.step(0, 0, 64)
    engine.close()
    assert not alive(engine.pid)


def test_a_worker_that_does_not_read_becomes_one_message() -> None:
    """A request that is longer than a pipe holds."""
    engine = child("deaf", answer_s=0.5)
    with pytest.raises(EngineError, match=r"vLLM fake did not answer 'step' within 0\.5 s, so it was ended"):
        engine.ask({"do": "step", "more": "x" * (1 << 20)}, HELLO)
    assert not alive(engine.pid)


def test_a_worker_that_does_not_start_becomes_one_message() -> None:
    with pytest.raises(EngineError, match=r"did not answer 'hello' within 0\.3 s"):
        child("slow-start", start_s=0.3)
    with pytest.raises(EngineError, match="cannot run /nowhere/python: No such file"):
        Child("vLLM x", ["/nowhere/python"])


@pytest.mark.parametrize("running", [False, True])
def test_a_reset_is_asked_of_the_release_once_with_its_next_step(running: bool) -> None:
    with child() as engine:
        heard = Heard()
        live = scheduler(engine, heard)
        live.add(ARRIVAL, 0)
        live.reset(running)
        for index in range(2):
            live.step(index, index, 64)
        assert [line for line in heard.lines if line[0] == "reset"] == [("reset", running)]


def test_a_tier_is_refused_by_name() -> None:
    with child() as engine:
        tiered = replace(OPTIONS, offload=Offload(8))
        with pytest.raises(
            RefusedError, match=r"vLLM fake cannot run this: engine\.offload\.blocks: found 8, allowed 0"
        ):
            LiveScheduler(Policy.of(tiered), Heard(), 0, engine)


def test_a_load_that_fails_is_refused_by_name() -> None:
    with child() as engine, pytest.raises(RefusedError, match=r"this: request a\.load_error: found true"):
        scheduler(engine, Heard()).add(Arrival("a", 0, 0, ((1, 20),), load_error=True), 0)


def test_a_feature_that_the_release_lacks_is_named() -> None:
    with child("unsupported") as engine, pytest.raises(RefusedError, match="vLLM fake cannot run this: it has no ret"):
        scheduler(engine, Observer())


def test_a_closed_engine_says_so() -> None:
    engine = child()
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="has been closed"):
        engine.ask({"do": "hello"}, HELLO)


def test_the_worker_and_what_it_started_die_with_a_killed_parent(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = (
        "import sys, time\n"
        "from stateat.sim.adapters.vllm.process import Child\n"
        "c = Child('x', [sys.executable, *sys.argv[1:]])\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(FAKE), "orphan", str(note)], cwd=ROOT)
    try:
        wait_for(note.exists)
        wait_for(lambda: note.read_text(encoding="utf-8").endswith(" "))
        pids = [int(pid) for pid in note.read_text(encoding="utf-8").split()]
        assert all(alive(pid) for pid in pids)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_for(lambda: not any(alive(pid) for pid in pids))


def test_a_closed_worker_leaves_nothing_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    engine = child("orphan", str(note))
    pids = [int(pid) for pid in note.read_text(encoding="utf-8").split()]
    assert all(alive(pid) for pid in pids)
    engine.close()
    wait_for(lambda: not any(alive(pid) for pid in pids))


def test_what_a_release_prints_reaches_standard_error_in_printable_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with child("prints") as engine:
        live = scheduler(engine, Observer())
        live.add(ARRIVAL, 0)
        live.step(0, 0, 64)
        assert capsys.readouterr().err == "vLLM fake: split of \\x1b]0;title\\x07 a\n"
    assert capsys.readouterr().err == "vLLM fake: half a line\n"


def test_prints_are_bounded_and_the_last_ones_are_kept_for_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    prints = Prints("x")
    prints.hear(b"y" * 10**6 + b"\n\n")
    for i in range(SHOWN_LINES + 50):
        prints.hear(b"line %d\n" % i)
    prints.pass_on()
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == SHOWN_LINES + 1 and len(shown[0]) < SHOWN_CHARACTERS + 20
    assert shown[-1] == f"x: printed more than {SHOWN_LINES:,} lines, of which no more are shown"
    assert prints.last_lines().splitlines()[-1] == f"  line {SHOWN_LINES + 49}"
    prints.hear(b"more\n")
    prints.pass_on()
    assert capsys.readouterr().err == ""


def test_lines_of_a_failing_step_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    prints = Prints("x")
    prints.hear("".join(f"{i}\n" for i in range(20)).encode())
    assert prints.last_lines() == "\n  it wrote last:" + "".join(f"\n  {i}" for i in range(8, 20))
    assert capsys.readouterr().err == "".join(f"x: {i}\n" for i in range(8))


def test_nobody_reads_prints_where_standard_error_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    prints = Prints("x")
    prints.hear(b"a\n")
    prints.pass_on()


ROW = ["a", 0, 16, [], [[1], [2, 3]], None, "split", 0, 16]
STEP: dict[str, Any] = {"aborted": [], "log": [], "rows": [ROW], "given": [[1], []], "copies": [], "let_go": []}
ADMIT = ["admit", "a", 0, 0, False, [], 0, []]


def row(**changed: Any) -> dict[str, Any]:
    names = ("id", "start", "end", "drafts", "table", "more", "stop", "export", "offered")
    return {**STEP, "rows": [[changed.get(name, value) for name, value in zip(names, ROW, strict=True)]]}


def log(*event: Any) -> dict[str, Any]:
    return {**STEP, "log": [list(event)]}


def commit(**changed: Any) -> dict[str, Any]:
    return {"log": [], "taken": {"a": 1}, "finished": [], "free": 7} | changed


@pytest.mark.parametrize(
    ("what", "answer", "message"),
    [
        ("hello", {}, r"out of shape \(version: Field required\): b'{}'"),
        ("hello", {"version": "\x1b[31m"}, r"out of shape \(version: String should match"),
        ("hello", [1], "out of shape"),
        ("init", {}, r"out of shape \(free: Field required"),
        ("init", {"free": "9", "warnings": []}, r"out of shape \(free: Input should be a valid integer"),
        ("init", {"free": 9, "warnings": [3]}, r"out of shape \(warnings\.0: Input should be a valid string"),
        ("init", {"error": "\x1b[31mRED" + "x" * 9999}, r"failed in 'init': \\x1b\[31mREDx+…$"),
        ("init", {"error": 3}, r"out of shape \(error\.error: Input should be a valid string"),
        ("add", [], "answered 'add' out of shape"),
        ("step", {**STEP, "rows": None}, r"out of shape \(rows: Input should be a valid array"),
        ("step", {**STEP, "rows": [ROW, ROW]}, "nonsense: found rows of the requests a, a, allowed one row for each"),
        ("step", {**STEP, "rows": [ROW[:-1]]}, r"out of shape \(rows\.0\.8: Field required"),
        ("step", row(id="b"), "nonsense: found request 'b', allowed one that is here"),
        ("step", row(start=-1), r"out of shape \(rows\.0\.1: Input should be greater than or equal to 0"),
        ("step", row(start=16), r"nonsense: found chunk \[16, 16\) of a"),
        ("step", row(end=17), r"nonsense: found chunk \[0, 17\) of a, allowed one in its 16 tokens"),
        ("step", row(end=1e9), "out of shape"),
        ("step", row(table=[[1]]), "nonsense: found the table of a in 1 groups, allowed 2 groups"),
        ("step", row(table=None), r"nonsense: found chunk \[0, 16\) of a, allowed one in the 0 tokens of its blocks"),
        ("step", row(table=[[1], [10]]), "nonsense: found block 10, allowed 0 to 9"),
        ("step", row(export=8), r"nonsense: found chunk \[0, 16\) of a exporting a state@8"),
        ("step", row(drafts=["x"]), r"out of shape \(rows\.0\.3\.0"),
        ("step", {**STEP, "given": [[1]]}, "nonsense: found the blocks given in 1 groups"),
        ("step", {**STEP, "copies": [["a", 2, 1, 2]]}, "nonsense: found group 2, allowed 0 to 1"),
        ("step", log("nonsense"), r"out of shape \(log\.0: Input tag 'nonsense'"),
        ("step", log(), r"out of shape \(log\.0: "),
        ("step", log("preempt", "b"), "nonsense: found request 'b'"),
        ("step", log(*ADMIT[:2], 9, 9, *ADMIT[4:]), r"nonsense: found a hit of 9 \+ 9 tokens of a, allowed at most 16"),
        ("step", log(*ADMIT[:2], 8, *ADMIT[3:]), "nonsense: found the hit blocks of a in 0 groups, allowed 2 groups"),
        ("step", log(*ADMIT[:5], [[1]], *ADMIT[6:]), r"nonsense: found a hit block of a as \[1\]"),
        ("step", log(*ADMIT[:7], [[0, 1]]), "nonsense: found group 0, allowed a recurrent one"),
        ("step", log("allocate", "a", 1, 0, [99]), "nonsense: found block 99"),
        ("step", log("allocate", "a", 1, 1 << 40, [1]), "nonsense: found offset 1099511627776"),
        ("step", log("release", "a", 0, [1]), "nonsense: found group 0, allowed a recurrent one"),
        ("step", log("claim", 1, 2, "a", 0, 1 << 40, "ab" * 16), "nonsense: found offset 1099511627776"),
        ("step", log("claim", 1, 2, "a", 0, 16, "no hash"), r"out of shape \(log\.0\.claim\.6: String should match"),
        ("step", log("unclaim", 1, 10, "ab" * 16, "evict"), "nonsense: found block 10"),
        ("step", row(start=1), "nonsense: found a chunk of a from 1 on, allowed 0, by the steps under way"),
        ("commit", commit(finished=["b"]), "ended requests that it did not run: b"),
        ("commit", commit(taken={"a": 2}), "nonsense: found 2 tokens taken for a, allowed at most the 1 that it"),
        ("commit", commit(free=None), r"out of shape \(free: Input should be a valid integer"),
    ],
)  # fmt: skip
def test_an_answer_that_does_not_fit_becomes_one_message(what: str, answer: Any, message: str) -> None:
    with pytest.raises(EngineError, match=message) as raised, child("say", what, json.dumps(answer)) as engine:
        live = scheduler(engine, Observer())
        live.add(ARRIVAL, 0)
        live.step(0, 0, 64)
    assert not isinstance(raised.value, RefusedError)
    assert raised.value.args[0].startswith("vLLM fake ") and "\x1b" not in raised.value.args[0]


def test_a_second_answer_is_not_taken_for_the_next_one() -> None:
    message = r"vLLM fake answered before it was asked 'step': b'{}"
    with child("say", "add", "{}\n{}") as engine:
        live = scheduler(engine, Observer())
        live.add(ARRIVAL, 0)
        with pytest.raises(EngineError, match=message):
            live.step(0, 0, 64)


def test_an_answer_of_any_depth_becomes_one_message() -> None:
    deep, message = "[" * 10_000 + "]" * 10_000, r"answered 'init' out of shape \(Invalid JSON: recursion limit"
    with child("say", "init", deep) as engine, pytest.raises(EngineError, match=message):
        scheduler(engine, Observer())


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_for(condition) -> None:  # type: ignore[no-untyped-def]
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within 10 s")
