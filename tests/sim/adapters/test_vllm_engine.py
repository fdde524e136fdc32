"""The live engine against a stand-in worker: the protocol, crashes, time-outs, and the end of the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sim.adapters.vllm.config import PLAIN, wire
from sim.adapters.vllm.engine import LiveScheduler
from sim.adapters.vllm.process import Child
from sim.engine import presets, rules
from sim.engine.options import Offload, Options
from sim.errors import EngineError
from sim.events import Group, Observer
from sim.workload import Arrival

FAKE = Path(__file__).resolve().parents[2] / "support" / "fake_vllm_worker.py"
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

    def finish(self, request: str) -> None:
        self.lines.append(("finish", request))

    def abort(self, request: str) -> None:
        self.lines.append(("abort", request))

    def reset(self, done: bool) -> None:
        self.lines.append(("reset", done))


def child(*how: str, answer_s: float = 20, start_s: float = 20) -> Child:
    return Child("vLLM fake", [sys.executable, str(FAKE), *how], answer_s=answer_s, start_s=start_s)


def scheduler(engine: Child, heard: Observer) -> LiveScheduler:
    return LiveScheduler(OPTIONS, rules.resolve(presets.table(OPTIONS.preset, OPTIONS.rules)), heard, 0, engine)


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
        ("copy", "a", 1, "pre", 2, 3),
        ("advance", "a", 1, 16, 17, 3, ((17, 3),)),
        ("unclaim", 2, "evict"),
        ("finish", "a"),
    ]


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
        ("garbage", r"answered 'step' with what is no JSON object: b'this is no JSON'"),
        ("raise", r"failed in 'step': AssertionError: no free block\n  it wrote last:\n  Traceback: deep inside"),
    ],
)
def test_a_worker_that_fails_becomes_one_message(how: str, message: str) -> None:
    engine = child(how, answer_s=0.5 if how == "hang" else 20)
    live = scheduler(engine, Observer())
    live.add(ARRIVAL, 0)
    with pytest.raises(EngineError, match=message):
        live.step(0, 0, 64)
    engine.close()
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
        tiered, table = replace(OPTIONS, offload=Offload(8)), presets.table(OPTIONS.preset, OPTIONS.rules)
        with pytest.raises(EngineError, match=r"vLLM fake cannot run this: engine\.offload"):
            LiveScheduler(tiered, rules.resolve(table), Heard(), 0, engine)
        piped = replace(OPTIONS, max_concurrent_batches=2)
        with pytest.raises(EngineError, match=r"vLLM fake cannot run this: engine\.max_concurrent_batches"):
            LiveScheduler(piped, rules.resolve(table), Heard(), 0, engine)


def test_a_load_that_fails_is_refused_by_name() -> None:
    with child() as engine, pytest.raises(EngineError, match="vLLM fake cannot run this: load_error"):
        scheduler(engine, Heard()).add(Arrival("a", 0, 0, ((1, 20),), load_error=True), 0)


def test_a_feature_that_the_release_lacks_is_named() -> None:
    with child("unsupported") as engine, pytest.raises(EngineError, match="vLLM fake cannot run this: it has no ret"):
        scheduler(engine, Observer())


def test_a_closed_engine_says_so() -> None:
    engine = child()
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="has been closed"):
        engine.ask({"do": "hello"})


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")
def test_the_worker_dies_with_a_killed_parent(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = (
        "import sys, time\n"
        "from sim.adapters.vllm.process import Child\n"
        "c = Child('x', [sys.executable, *sys.argv[1:]])\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(FAKE), "orphan", str(note)], cwd=ROOT)
    try:
        wait_for(note.exists)
        wait_for(lambda: note.read_text(encoding="utf-8") != "")
        pid = int(note.read_text(encoding="utf-8"))
        assert alive(pid)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_for(lambda: not alive(pid))


def test_options_are_told_under_the_workers_names() -> None:
    said = wire(OPTIONS, {"retention_interval": 0})
    assert said["groups"][1] == {
        "name": "gdn", "recurrent": True, "block_size": 16, "eagle": False, "sliding_window": 0, "mode": "align",
    }  # fmt: skip
    assert (said["hash_unit"], said["cache_config_block_size"], said["retention_interval"]) == (16, 16, 0)
    assert set(PLAIN) <= set(said)


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
