"""A sweep's table is the same however it came to be: in one process or several, at once or after an interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import small_sweep
import yaml

import stateat
from stateat.sim.errors import InputError, MissingError
from stateat.sim.run.simulate import simulate
from stateat.sim.scenario.load import load
from stateat.sim.sweeps import execute as executing
from stateat.sim.sweeps.journal import Journal, path_of
from stateat.sim.sweeps.pool import Pool
from stateat.sim.sweeps.read import read
from stateat.sim.sweeps.work import CAME, work

ROOT = Path(__file__).resolve().parents[3]
RULES = '''
import os, signal, time
from contextlib import suppress
from pathlib import Path

FLAG = Path(__file__).with_name("flag")


class Kill:
    """Kills its process once, when there is a flag."""

    def __call__(self, chunk):
        try:
            FLAG.unlink()
        except FileNotFoundError:
            return chunk.offered
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)


class Raise:
    def __call__(self, chunk):
        print("what a rule prints")
        if chunk.num_prompt > 300:
            raise RuntimeError("no such luck")
        return chunk.offered


class Slow:
    def __call__(self, chunk):
        time.sleep(0.01)
        return chunk.offered
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with rules that a scenario can name, for this process and its children."""
    (tmp_path / "sweep_rules.py").write_text(RULES)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("sweep_rules", None)


def with_rule(rule: str, **changes: Any) -> dict[str, Any]:
    variants = {"old": {"preset": "vllm-0.26.0"}, "odd": {"rules": {"split": f"sweep_rules:{rule}"}}}
    return small_sweep.sweep(base=small_sweep.base(variants=variants), **changes)


def command(folder: Path, sweep: dict[str, Any], *more: str) -> list[str]:
    file = folder / "sweep.yaml"
    file.write_text(yaml.safe_dump(sweep, sort_keys=False))
    main = "from stateat.sim.cli.main import main; main(prog_name='stateat')"
    return [sys.executable, "-P", "-c", main, "sweep", str(file), "--allow-code", *more]


def run(folder: Path, line: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
    given = os.environ | {"PYTHONPATH": f"{ROOT}:{folder}"}
    return subprocess.run(line, cwd=folder, env=given, capture_output=True, text=True, timeout=120, check=False, **how)


def journal_runs(out: Path) -> list[int]:
    return [json.loads(line)["run"] for line in path_of(out).read_text().splitlines()[1:]]


@dataclass(frozen=True)
class Swept:
    """The small sweep, done: its journal and its table as written, and as a frame."""

    journal: str
    csv: bytes
    table: pd.DataFrame

    def put(self, folder: Path) -> Path:
        """The same in another folder, as if it were done there; gives the table's path."""
        out = folder / "t.csv"
        path_of(out).write_text(self.journal)
        out.write_bytes(self.csv)
        return out


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    out = tmp_path_factory.mktemp("swept") / "t.csv"
    table = stateat.sweep(small_sweep.sweep(), out=out)
    return Swept(path_of(out).read_text(), out.read_bytes(), table)


# One table.


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_the_table_is_the_same_bytes_for_any_number_of_jobs(tmp_path: Path, suffix: str, swept: Swept) -> None:
    one, two = tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"
    first = stateat.sweep(small_sweep.sweep(), out=one)
    second = stateat.sweep(small_sweep.sweep(), out=two, jobs=2)
    assert one.read_bytes() == two.read_bytes()
    pd.testing.assert_frame_equal(first, second)
    pd.testing.assert_frame_equal(first, swept.table)
    if suffix == ".parquet":
        pd.testing.assert_frame_equal(pd.read_parquet(one), first)


def test_a_row_is_what_the_run_comes_to(swept: Swept) -> None:
    table = swept.table
    assert list(table.columns) == [
        "run", "point", "seed", "variant", "case", "engine.max_num_batched_tokens", *CAME, "error",
    ]  # fmt: skip
    assert table["run"].tolist() == list(range(8))
    assert table["poisoned"].sum() > 0
    for row in table.to_dict("records"):
        scenario = small_sweep.base(seed=row["seed"])
        scenario["engine"]["max_num_batched_tokens"] = row["engine.max_num_batched_tokens"]
        outcome = simulate(next(r for r in load(scenario).expanded if r.variant == row["variant"]))
        for name in CAME:
            if name == "clock" or name.startswith("ttft_"):
                continue
            assert row[name] == getattr(outcome, name), name
        assert (row["starts"], row["clock"]) == (outcome.restores, "us")
        assert row["ttft_p95_us"] == outcome.ttft_us["p95"]
        assert row["error"] == ""


def test_what_is_swept_keeps_its_type() -> None:
    prefixes = [{"kind": "none"}, {"kind": "repeat", "distinct": 2}]
    grid = {
        "engine.watermark": [0, 0.5],
        "engine.partial_hits": [True],
        "engine.prefix_match_unit": [None, 16],
        "oracle.state": ["digest"],
        "workload.prefixes": prefixes,
    }
    table = stateat.sweep(small_sweep.sweep(grid=grid, seeds=[1], variants=["new"]))
    types = {key: str(table[key].dtype) for key in grid}
    assert list(types.values()) == ["Float64", "boolean", "Int64", "str", "str"]
    assert [json.loads(text) for text in table["workload.prefixes"].unique()] == prefixes


# Runs that fail.


def test_a_run_that_fails_is_a_row_with_its_error(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = stateat.sweep(with_rule("Raise"), allow_code=True)
    odd = table[table["variant"] == "odd"]
    assert odd["error"].str.contains("no such luck").all() and odd["poisoned"].isna().all()
    well = table[table["variant"] == "old"]
    assert (well["error"] == "").all() and well["poisoned"].notna().all()
    # What a rule prints never reaches standard output.
    assert capfd.readouterr().out == ""


def test_a_point_that_cannot_be_is_a_row_with_its_error() -> None:
    grid = {
        "engine.speculative.num_speculative_tokens": [1, 3],
        "engine.speculative.accepted_drafts": [[1], [3]],
    }
    table = stateat.sweep(small_sweep.sweep(grid=grid, seeds=[1], variants=["new"]))
    assert (table["error"] != "").tolist() == [False, True, False, False]
    assert "accepted_drafts[1][0]: found 3, allowed 0 to 1" in table["error"][1]


def test_a_bug_is_a_row_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("stateat.sim.run.simulate.simulate", broken)
    row = work(read(small_sweep.sweep()).task(0))
    assert row["error"] == "MemoryError: " and row["poisoned"] is None


# Interrupted.


def test_a_killed_worker_is_one_message_and_the_same_command_goes_on(folder: Path) -> None:
    out = folder / "t.csv"
    line = command(folder, with_rule("Kill", seeds="0:2"), "--jobs", "2", "--out", str(out))
    (folder / "flag").touch()
    first = run(folder, line)
    assert first.returncode == 2, first.stderr
    last = first.stderr.splitlines()[-1]
    kept = journal_runs(out)
    assert last.startswith("stateat: a worker was killed")
    assert f"{len(kept)} of 8 runs are kept in {path_of(out).name}; the same command goes on from there" in last
    assert "Traceback" not in first.stderr and not out.exists()
    second = run(folder, line)
    assert second.returncode == 0, second.stderr
    assert (f"{len(kept)} of 8 runs are there" in second.stderr) == bool(kept)
    assert journal_runs(out)[: len(kept)] == kept
    assert sorted(journal_runs(out)) == list(range(8))
    again = folder / "again.csv"
    stateat.sweep(folder / "sweep.yaml", out=again, allow_code=True)
    assert again.read_bytes() == out.read_bytes()


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_sweep_keeps_its_runs_and_goes_on(folder: Path, number: int, status: int, jobs: str) -> None:
    out = folder / "t.csv"
    line = command(folder, with_rule("Slow", seeds="0:2"), "--jobs", jobs, "--out", str(out))
    given = os.environ | {"PYTHONPATH": f"{ROOT}:{folder}"}
    child = subprocess.Popen(
        line, cwd=folder, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_for(lambda: path_of(out).exists() and len(path_of(out).read_text().splitlines()) > 2)
        # As a terminal does: to all of its processes.
        os.killpg(child.pid, number) if number == signal.SIGINT else child.send_signal(number)
        said = child.communicate(timeout=30)[1]
    finally:
        child.kill()
    assert child.returncode == status, said
    kept = journal_runs(out)
    assert 2 <= len(kept) < 8
    assert f"stateat: interrupted; {len(kept)} of 8 runs are kept in {path_of(out).name}; the same command" in said
    assert "Traceback" not in said and not out.exists()
    stateat.sweep(folder / "sweep.yaml", out=out, allow_code=True)
    assert journal_runs(out)[: len(kept)] == kept
    assert sorted(journal_runs(out)) == list(range(8))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are listed by /proc")
def test_the_processes_of_a_killed_sweep_end_within_a_second(folder: Path) -> None:
    out = folder / "t.csv"
    line = command(folder, with_rule("Slow", seeds="0:2"), "--jobs", "2", "--out", str(out))
    given = os.environ | {"PYTHONPATH": f"{ROOT}:{folder}"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(line, cwd=folder, env=given, start_new_session=True, **quiet)
    try:
        wait_for(lambda: path_of(out).exists() and len(path_of(out).read_text().splitlines()) > 1)
        assert len(of_session(child.pid)) > 2
    finally:
        child.kill()
        child.wait()
    # Twice that on a busy machine.
    deadline = time.monotonic() + 2
    while of_session(child.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert of_session(child.pid) == []


def of_session(session: int) -> list[int]:
    """The processes of a session that are not about to be buried."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            state, _, _, theirs = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(theirs) == session and state != "Z":
                found.append(int(entry.name))
    return found


def wait_for(there: Any) -> None:

    for _ in range(600):
        if there():
            return
        time.sleep(0.05)
    raise AssertionError("nothing came in 30 s")


@pytest.mark.skipif(os.name == "nt", reason="a limit of the size of files stands for a full disk")
def test_a_full_disk_is_one_message_and_what_was_written_stays_whole(folder: Path) -> None:
    out = folder / "t.csv"
    line = command(folder, small_sweep.sweep(), "--out", str(out))
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); {line[3]}"
    full = run(folder, [*line[:3], limit, *line[4:]])
    assert full.returncode == 2
    kept = journal_runs(out)
    assert 0 < len(kept) < 8
    said = (
        f"stateat: {path_of(out)}: File too large: {len(kept)} of 8 runs are kept; the same command goes on from there"
    )
    assert full.stderr.splitlines()[-1] == said
    assert "Warning" not in full.stderr
    stateat.sweep(folder / "sweep.yaml", out=out)
    assert journal_runs(out) == list(range(8))


def test_each_row_is_told_with_how_many_are_done() -> None:
    heard: list[tuple[int, int, int | None]] = []
    plan = read(small_sweep.sweep(seeds=[3]))
    executing.execute(
        plan, Pool(), told=lambda done, whole, row: heard.append((done, whole, None if row is None else row["run"]))
    )
    assert heard == [(0, 4, None), (1, 4, 0), (2, 4, 1), (3, 4, 2), (4, 4, 3)]


def test_no_run_is_repeated_or_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    def counted(self: Pool, tasks: Any, count: int) -> Iterator[dict[str, Any]]:
        for task in tasks:
            if len(done) in (3, 6):
                done.append(-1)
                raise KeyboardInterrupt
            done.append(task.index)
            yield work(task)

    monkeypatch.setattr(Pool, "rows", counted)
    out = tmp_path / "t.csv"
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            stateat.sweep(small_sweep.sweep(), out=out)
    table = stateat.sweep(small_sweep.sweep(), out=out)
    assert [index for index in done if index >= 0] == list(range(8))
    pd.testing.assert_frame_equal(table, stateat.sweep(small_sweep.sweep(), out=out))
    assert len(done) == 10


# The journal.


def test_another_plans_runs_are_refused_and_restart_discards_them(tmp_path: Path, swept: Swept) -> None:
    out = swept.put(tmp_path)
    with pytest.raises(InputError, match=r"t.csv.runs.jsonl: these are 'small' runs of another plan .*--restart"):
        stateat.sweep(small_sweep.sweep(seeds=[5]), out=out)
    assert len(journal_runs(out)) == 8
    table = stateat.sweep(small_sweep.sweep(seeds=[5]), out=out, restart=True)
    assert set(table["seed"]) == {5} and len(journal_runs(out)) == 4


def test_a_line_that_was_cut_off_is_run_again(tmp_path: Path, swept: Swept) -> None:
    out = swept.put(tmp_path)
    whole, table = path_of(out).read_bytes(), out.read_bytes()
    for cut in (1, 40, len(whole) // 2):
        path_of(out).write_bytes(whole[:-cut])
        out.unlink()
        stateat.sweep(small_sweep.sweep(), out=out)
        assert path_of(out).read_bytes() == whole
        assert out.read_bytes() == table


@pytest.mark.parametrize("text", ["{}\n", "no JSON\n", '{"schema": "other", "plan": ""}\n', "[]\n"])
def test_what_is_no_journal_is_refused(tmp_path: Path, text: str) -> None:
    out = tmp_path / "t.csv"
    path_of(out).write_text(text)
    with pytest.raises(InputError, match=r"t.csv.runs.jsonl:1: found no run of a sweep; .*--restart"):
        stateat.sweep(small_sweep.sweep(), out=out)
    assert path_of(out).read_text() == text


@pytest.mark.parametrize(
    "changes",
    [
        {"run": 8}, {"run": -1}, {"run": True}, {"run": 1.0}, {"run": None}, {"seed": 4}, {"variant": "new"},
        {"case": "x"}, {"engine.max_num_batched_tokens": 800}, {"steps": "1"}, {"digest": 1}, {"error": None},
        {"more": 1}, None,
    ],
)  # fmt: skip
def test_a_row_that_is_not_that_of_its_run_is_refused_and_the_journal_left_alone(
    tmp_path: Path, changes: dict[str, Any] | None, swept: Swept
) -> None:
    out = swept.put(tmp_path)
    head, row, *_ = path_of(out).read_text().splitlines()
    said = {"run": 0} if changes is None else json.loads(row) | changes
    text = f"{head}\n{row}\n{json.dumps(said)}\n"
    path_of(out).write_text(text)
    with pytest.raises(InputError, match=r"t.csv.runs.jsonl:3: found no run of a sweep; .*--restart"):
        stateat.sweep(small_sweep.sweep(), out=out)
    assert path_of(out).read_text() == text


def test_a_line_without_end_to_its_nesting_is_refused(tmp_path: Path) -> None:
    path_of(tmp_path / "t.csv").write_text("[" * 100_000 + "\n")
    with pytest.raises(InputError, match=r"t.csv.runs.jsonl:1: found no run of a sweep"):
        stateat.sweep(small_sweep.sweep(), out=tmp_path / "t.csv")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_journal_that_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(path_of(tmp_path / "t.csv"))
    with pytest.raises(InputError, match="the journal, allowed is a regular file"):
        stateat.sweep(small_sweep.sweep(), out=tmp_path / "t.csv")


def test_an_error_that_is_no_utf_8_is_written_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise ValueError("x\ud800")

    monkeypatch.setattr("stateat.sim.run.simulate.simulate", breaks)
    table = stateat.sweep(small_sweep.sweep(), out=tmp_path / "t.csv")
    assert set(table["error"]) == {"ValueError: x\\ud800"}
    pd.testing.assert_frame_equal(table, stateat.sweep(small_sweep.sweep(), out=tmp_path / "t.csv"))


def test_nothing_that_a_sweep_reads_is_written_over(tmp_path: Path) -> None:
    trace = {"format": "jsonl", "path": "trace.csv"}
    (tmp_path / "base.csv").write_text(yaml.safe_dump(small_sweep.base(workload={"trace": trace}, variants=None)))
    (tmp_path / "trace.csv").write_text('{"id": "a", "arrive": 0, "prompt": [[1, 200]], "max_tokens": 3}\n')
    file = tmp_path / "t.csv.runs.jsonl"
    file.write_text(yaml.safe_dump(small_sweep.sweep(base="base.csv")))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for name, message in (
        ("trace.csv", r"--out .*trace\.csv: that is the input .*trace\.csv too"),
        ("base.csv", r"--out .*base\.csv: that is the input .*base\.csv too"),
        ("t.csv", r"the journal of --out .*: that is the input .*t\.csv\.runs\.jsonl too"),
    ):
        with pytest.raises(InputError, match=message):
            stateat.sweep(file, out=tmp_path / name, restart=True)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_two_sweeps_do_not_write_one_journal(tmp_path: Path) -> None:
    plan = read(small_sweep.sweep())
    path = tmp_path / "j"
    with Journal(path, plan), pytest.raises(InputError, match="another sweep is writing it"), Journal(path, plan):
        pass


def test_a_folder_that_is_not_there_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--out .*/nowhere/t.csv: there is no folder"):
        stateat.sweep(small_sweep.sweep(), out=tmp_path / "nowhere" / "t.csv")
    with pytest.raises(InputError, match=r"found '.xlsx', allowed: .parquet, .csv"):
        stateat.sweep(small_sweep.sweep(), out=tmp_path / "t.xlsx")


# Backends.


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (Pool(backend="spark"), "--backend: found 'spark', allowed loky, dask, ray"),
        (Pool(jobs=0), "--jobs: found 0, allowed 1 to 1024"),
        (Pool(jobs=10**6), "--jobs: found 1000000, allowed 1 to 1024"),
        (Pool(address="tcp://a:1"), "--address: allowed with --backend dask or ray"),
    ],
)
def test_a_backend_that_does_not_exist_is_refused_before_anything_runs(pool: Pool, message: str) -> None:
    with pytest.raises(InputError) as caught:
        executing.execute(read(small_sweep.sweep()), pool)
    assert str(caught.value) == message


@pytest.mark.parametrize(("backend", "package"), [("dask", r"dask\[distributed\]"), ("ray", "ray")])
def test_a_backend_that_is_not_installed_is_one_message(
    backend: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, backend, None)
    with pytest.raises(MissingError, match=rf"--backend {backend}: it is not installed \(pip install '{package}'\)"):
        stateat.sweep(small_sweep.sweep(), backend=backend)


@pytest.mark.parametrize("backend", ["dask", "ray"])
@pytest.mark.filterwarnings("default")
def test_a_cluster_gives_the_same_table(backend: str) -> None:
    pytest.importorskip("distributed" if backend == "dask" else "ray")
    pd.testing.assert_frame_equal(
        stateat.sweep(small_sweep.sweep(), backend=backend, jobs=2), stateat.sweep(small_sweep.sweep())
    )
