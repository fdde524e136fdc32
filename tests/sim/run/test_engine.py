"""The interface of an engine: a second one, as small as can be, runs under the same clock and the same oracle."""

from __future__ import annotations

from fake_engines import SCENARIO

from stateat.sim.engine.scheduler import Step
from stateat.sim.events import Observer
from stateat.sim.options import Options
from stateat.sim.releases.rules import Rules
from stateat.sim.run.simulate import simulate
from stateat.sim.scenario.load import load
from stateat.sim.workload import Arrival


class OneByOne:
    """Serves a request after the other, without a cache: a prompt in one chunk, and then a token a step."""

    quiet_tokens = 0
    free_blocks = -1
    preempted_in_vain = 0
    aborting = False

    def __init__(self, options: Options, rules: Rules, observer: Observer, seed: int) -> None:
        self.observer = observer
        self.waiting: list[Arrival] = []
        self.done = 0

    @property
    def idle(self) -> bool:
        return not self.waiting

    def add(self, arrival: Arrival, time: int) -> None:
        self.waiting.append(arrival)
        self.observer.arrive(arrival.id, arrival.index, time, arrival.segments, None, arrival.max_tokens)

    def abort(self, name: str) -> bool:
        return False

    def reset(self, running: bool = False) -> None:
        self.observer.reset(True)

    def jump(self, step: int) -> int:
        return 0

    def step(self, index: int, time: int, budget: int) -> Step:
        self.observer.step(index, time, budget)
        first = self.waiting[0]
        prompt = first.num_prompt_tokens
        start, end = (0, prompt) if not self.done else (prompt + self.done - 1, prompt + self.done)
        if not self.done:
            self.observer.admit(first.id, 0, 0, False)
        self.observer.chunk(first.id, start, end, 0, "decode" if self.done else "prompt-end", 0, ())
        self.observer.output(first.id, 1, None)
        self.done += 1
        if self.done < first.max_tokens:
            return Step(decode_tokens=end - start)
        self.waiting.pop(0)
        self.done = 0
        self.observer.finish(first.id)
        return Step(prefill_tokens=end - start, finished=[first.id])


def test_a_second_engine_needs_the_members_of_the_interface_and_nothing_else() -> None:
    requests = [{"id": name, "prompt": [[1, 16]], "max_tokens": 3} for name in "abc"]
    (run,) = load({**SCENARIO, "workload": {"requests": requests}}).expanded
    outcome = simulate(run, make=OneByOne)
    assert (outcome.requests, outcome.finished, outcome.steps, outcome.chunks) == (3, 3, 9, 9)
    assert (outcome.output_tokens, outcome.livelock, outcome.findings) == (9, False, ())
