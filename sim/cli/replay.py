"""``stateat replay``: runs scenarios, and shows what was found and how their variants compare."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from stateat.sim.cli.options import (
    OUTPUT,
    SCENARIO,
    check_outputs,
    code_option,
    console_on,
    engine_options,
    exit_code,
    fleet_of,
    not_compared,
    rules_table,
    terminal_width,
    timings,
    truth_options,
    write_json,
)
from stateat.sim.errors import InputError, StateatError
from stateat.sim.files import atomic

if TYPE_CHECKING:
    from stateat.sim.adapters.vllm.fleet import Fleet
    from stateat.sim.events import Observer
    from stateat.sim.report.pictures.timeline import Timeline
    from stateat.sim.run.result import Outcome, Result
    from stateat.sim.scenario.load import Run, Scenario


@dataclass(slots=True)
class _Outputs:
    """Outputs of a replay besides its table."""

    log: Path | None
    plot: Path | None
    perfetto: Path | None
    json: Path | None

    def check(self, inputs: Sequence[Path]) -> None:
        """Refuse what cannot be written before anything runs."""
        paths = {f"--{name}": getattr(self, name) for name in ("log", "plot", "perfetto", "json")}
        check_outputs(paths, inputs)
        if self.plot is not None:
            from stateat.sim.report.pictures.style import check_suffix

            check_suffix(self.plot, "--plot")


@click.command()
@click.argument("files", nargs=-1, required=True, type=SCENARIO)
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only this variant (repeatable).")
@click.option("--rule", "rules", multiple=True, callback=rules_table, metavar="NAME=VALUE", help="A rule (repeatable).")
@click.option("--json", "json_path", type=OUTPUT, metavar="FILE", help="The result as JSON; - for stdout.")
@click.option("--log", type=OUTPUT, metavar="FILE", help="Every event as JSON Lines, for stateat audit.")
@click.option("--plot", type=OUTPUT, metavar="FILE", help="A picture of the run (.png, .svg, .pdf).")
@click.option("--perfetto", type=OUTPUT, metavar="FILE", help="Chrome trace events, for ui.perfetto.dev.")
@click.option("--check-determinism", is_flag=True, help="Run twice, the second time step by step, and compare.")
@click.option("--no-fast-forward", is_flag=True, help="Simulate every decode step by itself.")
@code_option
@truth_options
@engine_options
@click.option("-v", "--verbose", is_flag=True, help="All findings, chunk ends and hits.")
def replay(
    files: Sequence[Path],
    variants: Sequence[str],
    rules: Mapping[str, str],
    allow_code: bool,
    truth: Mapping[str, str],
    json_path: Path | None,
    log: Path | None,
    plot: Path | None,
    perfetto: Path | None,
    check_determinism: bool,
    no_fast_forward: bool,
    engines: Sequence[str],
    vllm_python: str | None,
    verbose: bool,
) -> None:
    """Run scenarios, print what was found and how their variants compare.

    FILES are scenario files, or names of those that come with stateat (stateat list).

    Exits with 1 if an expectation of the file fails, or if something is poisoned or never ends and none says so; with 2
    if a variant or an engine could not be run, which is told beside what the others came to.

    \b
    Examples:
      stateat replay s02-anatomy --plot anatomy.png
      stateat replay s02-anatomy --rule split=every-boundary --json -
      stateat replay s02-anatomy --variant "old gate" --engine vllm:0.26.0
    """
    from stateat.sim.scenario.load import load

    outputs = _Outputs(log, plot, perfetto, json_path)
    outputs.check(files)
    if len(files) > 1 and (log or plot or perfetto):
        raise InputError("--log, --plot and --perfetto take one scenario file")
    scenarios = [load(file, allow_code) for file in files]
    outputs.check([file for scenario in scenarios for file in scenario.inputs])
    results: list[Result] = []
    console = console_on(stderr=str(json_path) == "-")
    for scenario in scenarios:
        not_compared(scenario, truth)
        with ExitStack() as stack:
            fleet = stack.enter_context(fleet_of(engines, vllm_python))
            if rules and not fleet.has_reference:
                raise InputError(
                    f"--rule: found --engine {fleet.specs[0]}, which runs its own rules, allowed with the reference "
                    "engine (without --engine, or with --engine reference beside it)"
                )
            studio = _Studio(outputs, stack, not no_fast_forward, fleet)
            result = studio.replay(scenario, variants, rules, truth, check_determinism)
            if len(files) == 1:
                result.raise_if_nothing_ran()
            results.append(result)
            studio.finish(result)
        from stateat.sim.report.terminal.table import print_result

        print_result(result, console, verbose)
        timings(result)
    write_json(json_path, results)
    sys.exit(max(exit_code(result) for result in results))


@dataclass(slots=True)
class _Studio:
    """Replays one scenario, with whoever listens beside the oracle."""

    outputs: _Outputs
    stack: ExitStack
    fast_forward: bool
    fleet: Fleet
    recorder: Observer | None = None
    stream: TextIO | None = None
    """File that the recorder writes."""
    timelines: dict[tuple[str, str], Timeline] = field(default_factory=dict)
    traces: dict[tuple[str, str], Any] = field(default_factory=dict)

    def replay(
        self,
        scenario: Scenario,
        variants: Sequence[str],
        rules: Mapping[str, str],
        truth: Mapping[str, str],
        twice: bool,
    ) -> Result:
        from stateat.sim.run.simulate import replay as run_all

        if self.outputs.log is not None:
            from stateat.sim.adapters.log import Recorder

            partial = self.stack.enter_context(atomic(self.outputs.log, "--log"))
            self.stream = self.stack.enter_context(partial.open("w", encoding="utf-8", newline="\n"))
            self.recorder = Recorder(self.stream)
        check = self._same_again if twice else None
        return run_all(
            scenario,
            only=variants,
            overrides=rules,
            truth=truth,
            run_one=lambda run: self._one(run, check),
            spread=self.fleet.spread,
        )

    def _same_again(self, run: Run, outcome: Outcome) -> None:
        _same_again(run, outcome, self.fleet)

    def _one(self, run: Run, check: Callable[[Run, Outcome], None] | None) -> Outcome:
        from stateat.sim.report.terminal.banner import banner
        from stateat.sim.report.terminal.progress import Progress
        from stateat.sim.run.simulate import simulate
        from stateat.sim.scenario.load import warned

        name = run.variant + (f" / {run.case}" if run.case else "")
        make = self.fleet.maker(run)
        click.echo(banner(name, run.options, make is not None, terminal_width()), err=True)
        for text in warned([run]) if make is None else ():
            click.echo(f"warning: {text}", err=True)
        observers = list(self._observers(run))
        logged = self.stream.tell() if self.stream is not None else 0
        try:
            with Progress(name, run.options.clock) as progress:
                outcome = simulate(run, observers, progress.update, self.fast_forward, make, progress.measure)
        except StateatError:
            self._forget(run, logged)
            raise
        if make is None and (text := _hopeless(run, outcome)):
            click.echo(f"{name}: {text}", err=True)
        if check is not None:
            check(run, outcome)
        return outcome

    def _forget(self, run: Run, logged: int) -> None:
        """Drop what was drawn and logged of a run that could not be run to its end."""
        self.timelines.pop((run.variant, run.case), None)
        self.traces.pop((run.variant, run.case), None)
        if self.stream is not None:
            self.stream.seek(logged)
            self.stream.truncate()

    def _observers(self, run: Run) -> Iterator[Observer]:
        if self.recorder is not None:
            yield self.recorder
        key = run.variant, run.case
        if self.outputs.plot is not None:
            from stateat.sim.report.pictures.timeline import Timeline

            self.timelines[key] = Timeline()
            yield self.timelines[key]
        if self.outputs.perfetto is not None:
            from stateat.sim.report.machine.perfetto import Perfetto

            self.traces[key] = Perfetto()
            yield self.traces[key]

    def finish(self, result: Result) -> None:
        """Draw the pictures."""
        if self.outputs.plot is not None:
            from stateat.sim.report.pictures.picture import draw

            panels = [(_name(key), timeline, _outcome(result, key)) for key, timeline in self.timelines.items()]
            with atomic(self.outputs.plot, "--plot") as partial:
                draw(partial, panels, result.title or result.scenario)
        if self.outputs.perfetto is not None:
            from stateat.sim.report.machine.perfetto import write

            with atomic(self.outputs.perfetto, "--perfetto") as partial:
                write(partial, [(_name(k), trace, _outcome(result, k)) for k, trace in self.traces.items()])


def _hopeless(run: Run, outcome: Outcome) -> str:
    """Return why nothing was hit, where prompts are too short for the cache: it is not broken."""
    from stateat.sim.explain.shortest import shortest_repeat

    if not run.options.recurrent or outcome.requests < 2 or outcome.restores:
        return ""
    longest, found = max(a.num_prompt_tokens for a in run.arrivals()), shortest_repeat(run.options)
    if found is None or longest > found.tried or longest == found.tokens:
        return ""
    least = f"none up to {found.tried:,}" if found.tokens is None else f"none below {found.tokens:,}"
    return f"nothing was hit: the longest prompt has {longest:,} tokens, and alone {least} is hit by its first repeat"


def _name(key: tuple[str, str]) -> str:
    return f"{key[0]} / {key[1]}" if key[1] else key[0]


def _outcome(result: Result, key: tuple[str, str]) -> Outcome:
    outcome = result.variants[key[0]]
    return outcome.cases[key[1]] if key[1] else outcome


def _same_again(run: Run, outcome: Outcome, fleet: Fleet) -> None:
    """Run once more, step by step, and compare everything that was decided and found."""
    from dataclasses import replace

    from stateat.sim.report.words.findings import disagreement
    from stateat.sim.run.simulate import simulate

    again = replace(simulate(run, fast_forward=False, make=fleet.maker(run)), wall_s=outcome.wall_s)
    if again != outcome:
        text = f"not deterministic, step by step it differs: {disagreement(outcome, again)}"
        raise StateatError(f"{run.scenario}, variant {run.name}: {text}")
    click.echo(f"{run.variant}: the same again, step by step (digest {outcome.digest[:16]})", err=True)
