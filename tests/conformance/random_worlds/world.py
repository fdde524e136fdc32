"""A world: a configuration, its requests and what is done to them; as a value, and as a scenario file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

import yaml

from stateat.sim.events import Observer
from stateat.sim.options import Options, spread
from stateat.sim.releases.presets import table
from stateat.sim.releases.support import lacks
from stateat.sim.run.engine import Make
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.scenario.checks import engine as complaints
from stateat.sim.scenario.load import load, runs
from stateat.sim.workload import Arrival


@dataclass(frozen=True)
class World:
    """A configuration, and what is done to it."""

    options: Options
    arrivals: tuple[Arrival, ...]
    budgets: tuple[int, ...] = ()
    resets: tuple[int, ...] = ()
    reset_running: bool = False

    def run(self, observer: Observer, make: Make | None = None) -> Outcome:
        """Run it step by step, on the reference engine or on the one that ``make`` makes."""
        return drive(
            self.options,
            self.arrivals,
            self.budgets,
            observers=[observer],
            fast_forward=False,
            make=make,
            resets=self.resets,
            reset_running=self.reset_running,
        )

    def lacking(self) -> list[tuple[str | int, ...]]:
        """Find the options, as places in ``engine``, to which the preset's release gives no meaning."""
        return [key for key, _ in lacks(self.options, table(self.options.preset, self.options.rules))]

    def valid(self) -> bool:
        """True if a scenario file may say it."""
        options = self.options
        drafts = options.speculative.num_speculative_tokens
        outputs = {arrival.id: arrival.max_tokens for arrival in self.arrivals}
        return bool(outputs) and not (
            any(complaints(options))
            or any(each > drafts for each in (*options.speculative.cycle, *(options.speculative.proposed_drafts or ())))
            or any(budget > options.max_num_batched_tokens for budget in self.budgets)
            or any(list(_wrong(arrival, options.max_model_len, drafts, outputs)) for arrival in self.arrivals)
        )

    def plain(self, name: str, title: str = "") -> dict[str, Any]:
        """The world as what is in a scenario file."""
        options = self.options
        engine: dict[str, Any] = {"preset": options.preset, "clock": options.clock}
        engine |= _changed(options, skipped=("preset", "clock", "groups", "speculative", "rules"))
        ranks = options.decode_context_parallel_size
        engine["groups"] = [
            {
                "name": g.name,
                "kind": g.kind,
                "block_size": g.block_size // (ranks if spread(g) else 1),
                **_changed(g),
            }
            for g in options.groups
        ]
        if speculative := _changed(options.speculative):
            engine["speculative"] = speculative
        workload: dict[str, Any] = {}
        if self.budgets:
            workload["budgets"] = list(self.budgets)
        if self.resets:
            workload |= {"resets": list(self.resets), "reset_running_requests": self.reset_running}
        workload["requests"] = [
            {"id": a.id, "arrive": a.time, "prompt": _plain(a.segments), **_changed(a, ("index", "time"))}
            for a in self.arrivals
        ]
        head = {"schema": "stateat/1", "name": name} | ({"title": title} if title else {})
        return head | {"engine": engine, "workload": workload}

    def file(self, name: str) -> str:
        """The world as a scenario file."""
        return yaml.safe_dump(self.plain(name), sort_keys=False, default_flow_style=None, width=110)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> World:
        """The world that is in a scenario file."""
        [run] = runs(load(plain))
        workload = run.workload
        arrivals = tuple(sorted(run.arrivals(), key=lambda arrival: arrival.index))
        return cls(run.options, arrivals, run.budgets, tuple(workload.resets), workload.reset_running_requests)


def _wrong(arrival: Arrival, longest: int, drafts: int, outputs: Mapping[str, int]) -> Iterator[str]:
    prompt, names = arrival.num_prompt_tokens, list(outputs)
    if not 1 <= prompt < longest:
        yield "prompt"
    if arrival.external >= prompt:
        yield "external"
    if any(start + length > prompt for start, length in arrival.encoder):
        yield "encoder"
    if any(each > drafts for each in (*(arrival.accepted_drafts or ()), *(arrival.proposed_drafts or ()))):
        yield "accepted_drafts"
    if arrival.abort_late and arrival.abort is None:
        yield "abort_late"
    if arrival.after is not None and arrival.after not in names[: names.index(arrival.id)]:
        yield "after"
    if arrival.abort is not None and arrival.after is None and arrival.abort < arrival.time:
        yield "abort"
    if any(seed < 0 and length > [*outputs.values(), 0][-1 - seed] for seed, length in arrival.segments):
        yield "segments"


def _changed(record: Any, skipped: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fields of a record that are not at their default, as plain values."""
    said = {f.name: (getattr(record, f.name), f.default) for f in fields(record) if f.name not in skipped}
    return {
        name: _plain(value) for name, (value, default) in said.items() if value != default and default is not MISSING
    }


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
