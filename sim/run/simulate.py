"""Runs a scenario: the engine decides, the oracle checks, and the outcome says what came of it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import chain
from itertools import count as numbers
from pathlib import Path
from time import perf_counter
from typing import Any

from stateat.oracle.audit import Auditor
from stateat.oracle.numerics import WORST, TooLarge
from stateat.oracle.states import Arithmetic, Numeric, Unavailable
from stateat.oracle.states import family as family_of
from stateat.sim.adapters.coherence import Coherence
from stateat.sim.adapters.heard import Impossible
from stateat.sim.adapters.log import numbered
from stateat.sim.engine.scheduler import Scheduler
from stateat.sim.errors import ChangeError, InputError, MissingError, PolicyError, StateatError
from stateat.sim.events import SCHEMA, Event, Fanout, Finding, Group, Observer
from stateat.sim.options import Options
from stateat.sim.releases import presets
from stateat.sim.releases.policy import Policy
from stateat.sim.releases.rules import plugins
from stateat.sim.run.clock import Progress, Simulation
from stateat.sim.run.digest import Digest
from stateat.sim.run.engine import Engine, Make
from stateat.sim.run.judge import Ran, attempt, check_apart, judged
from stateat.sim.run.result import Outcome, Result, States
from stateat.sim.run.tally import Tally
from stateat.sim.scenario.counts import COUNTS
from stateat.sim.scenario.load import Run, Scenario, check_truth, runs
from stateat.sim.scenario.truth import DIGEST, SEVERAL, Truth, changed, told
from stateat.sim.workload import Arrival
from stateat.sim.workload.named_states import StateChange


def simulate(
    run: Run,
    observers: Sequence[Observer] = (),
    progress: Callable[[int, int, int, int, int], None] | None = None,
    fast_forward: bool = True,
    make: Make | None = None,
    measure: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Simulate one run, checked by the oracle; ``make``: on another engine than the reference one.

    ``progress`` is told requests done and in all, the step, the time and the poisoned slots so far; ``measure``
    tokens absorbed and in all while states are computed. Raises PolicyError
    when a user's rule breaks its contract.
    """
    name = {"variant": run.variant, "case": run.case, "scenario": run.scenario}
    requests = run.arrivals()
    try:
        outcome = drive(
            run.options,
            requests,
            run.budgets,
            seed=run.seed,
            truth=run.truth,
            observers=observers,
            progress=progress,
            fast_forward=fast_forward,
            about=name,
            make=make,
            measure=measure,
            resets=run.workload.resets,
            reset_running=run.workload.reset_running_requests,
            changes=run.changes,
        )
    except ChangeError as error:
        raise ChangeError(f"{error} (variant {run.name})") from error
    except (PolicyError, InputError) as error:
        raise type(error)(f"{run.scenario}, variant {run.name}: {error}") from error
    return replace(outcome, variant=run.variant, engine=run.engine)


def drive(
    options: Options,
    requests: Sequence[Arrival],
    budgets: Sequence[int] = (),
    *,
    seed: int = 0,
    truth: Truth = DIGEST,
    observers: Sequence[Observer] = (),
    progress: Callable[[int, int, int, int, int], None] | None = None,
    fast_forward: bool = True,
    about: Mapping[str, str] | None = None,
    make: Make | None = None,
    measure: Callable[[int, int], None] | None = None,
    resets: Sequence[int] = (),
    reset_running: bool = False,
    changes: Sequence[StateChange] = (),
) -> Outcome:
    """An engine (the reference one) under these requests, with the oracle beside it; ``about`` names it in a log."""
    started = perf_counter()
    table = presets.table(options.preset, options.rules)
    auditor, tally, digest = _auditor(truth, seed), Tally(), Digest()
    family = auditor.family
    if auditor.numerics is not None:
        auditor.numerics.report = measure
    # A narrower state is rounded at every step, so each has to be seen.
    fast_forward = fast_forward and (not isinstance(family, Numeric) or family.merges)
    everyone = Fanout([auditor, tally, digest, *observers])
    tick = None if progress is None else _teller(progress, len(requests), auditor)
    with _blaming(plugins(table)):
        policy = Policy.of(options)
        options = policy.options
        scheduler: Engine = (
            Scheduler(policy, everyone, seed, fast_forward) if make is None else make(policy, everyone, seed)
        )
        drafts = options.speculative.num_speculative_tokens
        said = {**policy.in_force(), **(about or {}), "oracle": told(truth)}
        everyone.run(SCHEMA, options.preset, options.groups, drafts, said)
        with _fitting(truth):
            Simulation(scheduler, options, requests, budgets, everyone, tick, resets, reset_running, changes).run()
    outcome = outcome_of(options.preset, options.preset, options.groups, table, auditor, tally, digest, truth)
    return replace(outcome, free_blocks=scheduler.free_blocks, wall_s=perf_counter() - started)


@contextmanager
def _blaming(theirs: Sequence[str]) -> Iterator[None]:
    """Blame a user's rules, where some are in force, for what goes wrong in the engine."""
    try:
        yield
    except (StateatError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if not theirs:
            raise
        raise PolicyError(
            f"rule {', '.join(theirs)}: an answer that the engine cannot use: {type(error).__name__}: {error}"
        ) from error


@contextmanager
def _fitting(truth: Truth) -> Iterator[None]:
    """States that do not fit in memory are bad input."""
    try:
        yield
    except TooLarge as error:
        raise InputError(f"oracle.state: {truth.state}: {error}") from error


def _auditor(truth: Truth, seed: int = 0) -> Auditor:
    """An auditor that computes the truth so; InputError if it cannot, here."""
    how = Arithmetic(
        dtype=truth.dtype,
        form=truth.form,
        rounding=truth.rounding,
        backend=truth.backend,
        device=truth.device,
        seed=seed,
    )
    try:
        with _fitting(truth):
            return Auditor(family_of(truth.state, how))
    except Unavailable as error:
        raise MissingError(f"oracle: {error}") from error
    except ValueError as error:
        raise InputError(f"oracle: {error}") from error


def _states(auditor: Auditor, truth: Truth) -> States | None:
    """Return what the numbers said, once all findings are there."""
    numerics, family = auditor.numerics, auditor.family
    if numerics is None or not isinstance(family, Numeric):
        return None
    done = numerics.measured
    worst = tuple(
        {
            "request": noise.request,
            "group": noise.group,
            "slot": noise.slot,
            "claimed": noise.claimed,
            "step": noise.step,
            "rel_error": noise.error,
        }
        for noise in done.worst
    )
    verdicts = {"exact": done.exact, "noise": done.noise, "not finite": done.not_finite} | auditor.counts.verdicts
    taken = replace(truth, backend=family.backend, device=family.device)
    return States(taken, family.state_bytes, verdicts, worst, done.nearest_wrong)


def _teller(report: Callable[[int, int, int, int, int], None], total: int, auditor: Auditor) -> Progress:
    report(0, total, 0, 0, 0)
    return lambda done, step, time_us: report(done, total, step, time_us, auditor.counts.poisoned)


def outcome_of(
    variant: str,
    preset: str,
    groups: tuple[Group, ...],
    table: Mapping[str, str],
    auditor: Auditor,
    tally: Tally,
    digest: Digest,
    truth: Truth = DIGEST,
) -> Outcome:
    """Return what the oracle, the tally and the digest heard, as one outcome."""
    with _fitting(truth):
        auditor.close()
        counts, findings = auditor.counts, auditor.findings()
    told = {
        **vars(tally),
        **{each.name: getattr(counts, each.name) for each in fields(counts)},
        "tainted_requests": len(counts.tainted),
        "not_judged": len(counts.not_judged),
        "violated": int(bool(counts.poisoned or counts.mid_block)),
    }
    return Outcome(
        variant=variant,
        preset=preset,
        groups=groups,
        rules=dict(table),
        **{name: told[name] for name in COUNTS},
        findings=findings,
        ttft_us=tally.ttft_us(),
        digest=digest.hexdigest(),
        ends={name: tuple(ends) for name, ends in tally.ends.items()},
        hits=dict(tally.hits),
        loads=dict(tally.loads),
        tainted=dict(counts.tainted),
        wrong_claims=dict(counts.wrong),
        states=_states(auditor, truth),
    )


def sum_of(cases: Mapping[str, Outcome]) -> Outcome:
    """A variant's outcome from those of its cases: counts add up, findings follow each other."""
    first = next(iter(cases.values()))
    digest = hashlib.sha256("".join(outcome.digest for outcome in cases.values()).encode()).hexdigest()
    return replace(
        first,
        **{name: count.total(getattr(outcome, name) for outcome in cases.values()) for name, count in COUNTS.items()},
        findings=tuple(_renumbered(cases.values())),
        ttft_us={},
        digest=digest,
        ends={},
        hits={},
        loads={},
        tainted={},
        wrong_claims={},
        not_asked=tuple(dict.fromkeys(chain.from_iterable(outcome.not_asked for outcome in cases.values()))),
        cases=dict(cases),
        states=_sum_of_states([outcome.states for outcome in cases.values()]),
        wall_s=sum(outcome.wall_s for outcome in cases.values()),
    )


def _sum_of_states(parts: Sequence[States | None]) -> States | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    verdicts: dict[str, int] = {}
    for part in known:
        for name, count in part.verdicts.items():
            verdicts[name] = verdicts.get(name, 0) + count
    worst = sorted((noise for part in known for noise in part.worst), key=lambda noise: -noise["rel_error"])
    wrong = [part.nearest_wrong for part in known if part.nearest_wrong is not None]
    truth = known[0].truth
    if any(part.truth != truth for part in known):
        truth = replace(truth, state=SEVERAL)
    return replace(
        known[0], truth=truth, verdicts=verdicts, worst=tuple(worst[:WORST]), nearest_wrong=min(wrong, default=None)
    )


def _renumbered(outcomes: Iterable[Outcome]) -> Iterator[Finding]:
    offset = 0
    for outcome in outcomes:
        for finding in outcome.findings:
            root = finding.root if finding.root is None or finding.root < 0 else finding.root + offset
            yield replace(finding, id=finding.id + offset, root=root)
        offset += len(outcome.findings)


def replay(
    scenario: Scenario,
    *,
    only: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
    truth: Mapping[str, str] | None = None,
    fast_forward: bool = True,
    run_one: Callable[[Run], Outcome] | None = None,
    spread: Callable[[Run], list[Run]] = lambda run: [run],
    below: Callable[[Run], Run] | None = None,
    baseline: str = "",
) -> Result:
    """All variants of a scenario, or those named, compared with what the file expects of them.

    ``overrides`` are rule values, and ``truth`` oracle options, that take precedence over the file's; ``run_one``
    replaces :func:`simulate`; ``spread`` puts a run on several engines. ``below`` puts it on the engine called
    ``baseline``, against which only what is new fails. A run that cannot be run (bad input, a user's rule, an engine)
    is in the result as itself. Raises InputError for bad usage.
    """
    asked = runs(scenario, only=only, rules=overrides or {}, truth=truth or {})
    wanted = [(run, on) for run in asked for on in spread(run)]
    check_apart(scenario.path, [on for _, on in wanted])
    simulate_one = run_one or (lambda run: simulate(run, fast_forward=fast_forward))
    bases = [] if below is None else [Ran(run, on, attempt(simulate_one, on)) for run in asked for on in [below(run)]]
    ran = [Ran(run, on, attempt(simulate_one, on)) for run, on in wanted]
    return judged(scenario, ran, bases, baseline, sum_of, measured=not truth)


def audit(path: Path, truth: Mapping[str, str] | None = None) -> Result:
    """The invariants over a recorded event log; one variant for each run in it.

    ``truth``: oracle options that take precedence over what a run says of its own. Raises InputError with file and line
    at an event that cannot follow from those before it.
    """
    variants: dict[str, dict[str, Outcome]] = {}
    name, clock = path.stem, "us"
    hearing: _Hearing | None = None
    for line, event in numbered(path):
        if event.name == "run":
            if hearing is not None:
                _enter(variants, hearing)
            hearing = _Hearing(event, truth or {})
            name, clock = hearing.option("scenario", name), hearing.option("clock", clock)
        assert hearing is not None
        try:
            hearing.hear(line, event)
        except Impossible as error:
            raise InputError(f"{path}:{error.line}: {error}") from error
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            MemoryError,
            TypeError,
            ValueError,
            struct.error,
        ) as error:
            kind = type(error).__name__
            raise InputError(
                f"{path}:{line}: {event.name}: does not follow from those before it: {kind} {error}"
            ) from error
    assert hearing is not None
    _enter(variants, hearing)
    outcomes = {v: cases[""] if "" in cases else sum_of(cases) for v, cases in variants.items()}
    return Result(name, "", "", str(path), clock, outcomes, is_scenario=False)


def _enter(variants: dict[str, dict[str, Outcome]], hearing: _Hearing) -> None:
    """Add a run that is over: under its name, or where another has that already (a server that was started again)
    under its name and place, or the first place behind it that no run is named after."""
    variant, place = hearing.variant, 1 + sum(max(len(cases), 1) for cases in variants.values())
    taken = variants.get(variant, {})
    if hearing.case in taken or (taken and "" in (hearing.case, *taken)):
        free = (f"{hearing.variant} (run {number})" for number in numbers(place))
        variant = next(name for name in free if name not in variants)
    variants.setdefault(variant, {})[hearing.case] = replace(hearing.outcome(), variant=variant)


class _Hearing(Observer):
    """Listeners to one run of a log, which begins with ``head``."""

    def __init__(self, head: Event, given: Mapping[str, str]) -> None:
        self.head, self.given = head, given
        head.tell(self)
        self.variant, self.case = self.option("variant", self.engine), self.option("case", "")
        self.coherence = Coherence()

    def run(
        self, schema: str, engine: str, groups: tuple[Group, ...], num_speculative_tokens: int, options: dict[str, Any]
    ) -> None:
        self.engine, self.groups, self.options = engine, groups, options

    def option(self, key: str, default: str) -> str:
        """Option of the run by this name, or the default where it has none."""
        return str(self.options.get(key, default))

    def hear(self, line: int, event: Event) -> None:
        """Pass an event on, the head of the run first. Raises Impossible for one that cannot be."""
        self.coherence.line = line
        event.tell(self.coherence)
        if event is self.head:
            self._begin()
        elif not self.merges:
            event.tell(self)
        with _fitting(self.truth):
            event.tell(self.everyone)

    def advance(
        self,
        request: str,
        group: int,
        start: int,
        end: int,
        drafts: Sequence[int],
        read: int,
        writes: Sequence[tuple[int, int]],
        steps: int,
    ) -> None:
        if steps > 1:
            raise Impossible(
                f"advance: {steps} decode steps in one, and a state in {self.truth.dtype} is rounded at each; "
                "write the log with --no-fast-forward",
                self.coherence.line,
            )

    def _begin(self) -> None:
        """The truth is the run's own, unless another is asked for."""
        self.truth = changed(changed(DIGEST, self.options.get("oracle", {})), self.given)
        check_truth(self.truth)
        self.auditor, self.tally, self.digest = _auditor(self.truth), Tally(), Digest()
        self.everyone = Fanout([self.auditor, self.tally, self.digest])
        family = self.auditor.family
        self.merges = not isinstance(family, Numeric) or family.merges

    def outcome(self) -> Outcome:
        outcome = outcome_of(
            self.variant,
            self.engine,
            self.groups,
            self.options.get("rules", {}),
            self.auditor,
            self.tally,
            self.digest,
            self.truth,
        )
        return replace(outcome, not_asked=(*self.coherence.unasked, *self._without_windows()))

    def _without_windows(self) -> Iterator[str]:
        """Return what is not asked with a state that has one component, unless the run's own has no more."""
        own = self.options.get("oracle", {}).get("state")
        if self.auditor.lockstep is None and self.auditor.recurrent and own != self.truth.state:
            state = self.truth.state
            yield f"the components of a slot, I13 (state {state} has no convolution; --state names one that has)"
