"""The reference engine, its oracle on, against the scheduler of vLLM 0.32.0 under the same 500 requests.

First both decide the workload once, vLLM live through a pipe, and every chunk, hit, preemption and end is compared.
Then timed runs alternate: vLLM in a process of its own, without pipe and listeners (``vllm_alone.py``), and
``stateat.sim.run.simulate.drive``. Token ids are generated before the clock starts, for both.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import IO, Any
from unittest.mock import patch

from stateat.sim import tokens
from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.answers import Answer
from stateat.sim.adapters.vllm.engine import LiveScheduler
from stateat.sim.adapters.vllm.install import CHILD
from stateat.sim.adapters.vllm.process import Child
from stateat.sim.conformance.compare import Decisions
from stateat.sim.conformance.recording import options_of
from stateat.sim.options import Options
from stateat.sim.run.engine import Make
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

RELEASE = "0.32.0"
REQUESTS = 500
PREFIXES, PREFIX = 8, 3600
ACCEPTED = (2, 0, 1)
HEARD = ("scheduled", "hits", "preempted", "finished")


@dataclass(frozen=True)
class Case:
    """One geometry of the workload."""

    attention: int
    outputs: int
    drafts: int

    def options(self) -> Options:
        config = {
            "attention_block_size": self.attention,
            "num_speculative_tokens": self.drafts,
            "eagle": self.drafts > 0,
            "num_blocks": 100_000,
        }
        return options_of(config, RELEASE)

    def arrivals(self, count: int) -> list[Arrival]:
        """Four a step, about 5,000 prompt tokens each; 70 % begin with one of the prefixes."""
        random, found = Random(0), []
        for i in range(count):
            length = random.randint(PREFIX + 1, 6400)
            own = (1000 + i, length)
            shared = (random.randrange(PREFIXES), PREFIX), (1000 + i, length - PREFIX)
            segments = shared if random.random() < 0.7 else (own,)
            found.append(Arrival(f"r{i}", i, i // 4, segments, self.outputs, ACCEPTED))
        return found


class Tape:
    """A child that remembers what it was asked, and how many tokens it gave to whom."""

    def __init__(self, child: Child, file: IO[str]) -> None:
        self.child, self.file, self.name = child, file, child.name

    def ask(self, request: Mapping[str, Any], shape: Answer[Any], seconds: float | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = self.child.ask(request, shape, seconds)
        given = [(row[0], row[2] - row[1]) for row in answer.get("rows", ())]
        self.file.write(json.dumps([request, given]) + "\n")
        return answer


def live(child: Any) -> Make:
    return lambda policy, observer, seed: LiveScheduler(policy, observer, seed, child)


@contextmanager
def alone(source: install.Source, tape: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that replays the tape whenever it is asked to."""
    path = os.pathsep.join((str(CHILD), str(source.path)))
    env = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
    command = [source.command[0], str(Path(__file__).with_name("vllm_alone.py")), str(tape)]
    process = subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        yield process


def replayed(process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("run\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        sys.exit("the replay of the tape failed; see above")
    return dict(json.loads(line))


@contextmanager
def ready(requests: Sequence[Arrival], drafts: int) -> Iterator[float]:
    """Token ids made beforehand (fingerprints and hashes are not); gives the seconds that it took."""
    made: dict[tokens.Segments, tokens.Ids] = {}
    ids = tokens.segment_ids

    def known(segments: tokens.Segments) -> tokens.Ids:
        if segments not in made:
            made[segments] = ids(segments)
        return made[segments]

    with patch.object(tokens, "segment_ids", known):
        started = perf_counter()
        for arrival in requests:
            # As the engine and the oracle ask for them.
            outputs = arrival.max_tokens + drafts + 1
            known((*arrival.segments, (tokens.output_seed(arrival.index), outputs)))
        yield perf_counter() - started


def timed(options: Options, requests: Sequence[Arrival]) -> float:
    gc.collect()
    started = perf_counter()
    drive(options, requests)
    return perf_counter() - started


def decided(options: Options, requests: Sequence[Arrival], child: Child, tape: Path) -> tuple[Outcome, float]:
    """Both decide once, vLLM onto a tape; exits unless they agree. Gives the live run's seconds, pipe and all."""
    ours, theirs = Decisions(), Decisions()
    with tape.open("w", encoding="utf-8") as file:
        started = perf_counter()
        drive(options, requests, observers=[theirs], make=live(Tape(child, file)))
        piped = perf_counter() - started
    outcome = drive(options, requests, observers=[ours])
    for what in HEARD:
        if getattr(ours, what) != getattr(theirs, what):
            sys.exit(f"{what} differ, so speeds cannot be compared")
    return outcome, piped


def measure(case: Case, count: int, runs: int, child: Child, source: install.Source) -> dict[str, Any]:
    """Compare the decisions of a case, then time it."""
    options, requests = case.options(), case.arrivals(count)
    with tempfile.TemporaryDirectory() as folder:
        tape = Path(folder) / "tape.jsonl"
        outcome, piped = decided(options, requests, child, tape)
        with ready(requests, case.drafts) as generating, alone(source, tape) as process:
            timed(options, requests)
            pairs = [(replayed(process), timed(options, requests)) for _ in range(runs)]
    parts = {part: median(run[part] for run, _ in pairs) for part in pairs[0][0]}
    vllm = median(sum(run.values()) for run, _ in pairs)
    own = median(seconds for _, seconds in pairs)
    ratio = median(sum(run.values()) / seconds for run, seconds in pairs)
    return {
        "outcome": outcome,
        "piped": piped,
        "parts": parts,
        "vllm": vllm,
        "own": own,
        "ratio": ratio,
        "tokens": generating,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each engine, whose median counts")
    parser.add_argument("--quick", action="store_true", help="100 requests and one run")
    args = parser.parse_args()
    count, runs = (100, 1) if args.quick else (REQUESTS, args.runs)
    source = install.of_release(RELEASE)
    tokens = sum(a.num_prompt_tokens for a in Case(16, 1, 0).arrivals(count))
    print(f"{count} requests, {tokens:,} prompt tokens; median of {runs} interleaved; decisions equal in each row")
    print("vLLM: its request creation + schedule + update, in its own process, no pipe; piped: live, all included")
    print("attention outputs K |  steps chunks    hits | create schedule update   vLLM s   ours s |", end="")
    print(" vLLM req/s ours req/s  ratio | tokens s piped s")
    with source.open() as child:
        for case in (Case(*values) for values in product((16, 1600), (1, 64), (0, 3))):
            m = measure(case, count, runs, child, source)
            outcome, parts = m["outcome"], m["parts"]
            print(
                f"{case.attention:9} {case.outputs:7} {case.drafts} | {outcome.steps:6} {outcome.chunks:6} "
                f"{outcome.hit_tokens:7} | {parts['create']:6.3f} {parts['schedule']:8.3f} {parts['update']:6.3f} "
                f"{m['vllm']:8.3f} {m['own']:8.3f} | {count / m['vllm']:10.0f} {count / m['own']:10.0f} "
                f"{m['ratio']:5.2f}x | {m['tokens']:8.3f} {m['piped']:7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
