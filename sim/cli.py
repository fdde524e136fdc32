"""The command line: parse, call, print. Machine output goes to stdout alone, progress and timings to stderr.

Exit codes: 0 as expected, 1 an expectation or an invariant failed, 2 bad usage or input.
"""

from __future__ import annotations

import functools
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sim.errors import InputError, MissingError, StateatError
from sim.explain_cli import explain
from sim.files import atomic, check_apart, check_writable, write_text

if TYPE_CHECKING:
    from rich.console import Console

    from sim.adapters.vllm.fleet import Fleet
    from sim.events import Observer
    from sim.replay import Make
    from sim.report.timeline import Timeline
    from sim.result import Outcome, Result
    from sim.scenario import Run, Scenario

EXISTING = click.Path(path_type=Path)
REFUSED = "# expect:"
"""A scenario file whose first lines say so must be refused, with a message that holds what follows."""


class _Group(click.Group):
    """Prints our errors as one message, without a traceback, and knows near misses."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StateatError as error:
            click.echo(f"stateat: {error}", err=True)
            ctx.exit(error.exit_code)
        except BrokenPipeError:
            # Whoever read our output has seen enough.
            sys.stderr.close()
            ctx.exit(1)
        except OSError as error:
            with suppress(OSError, ValueError):
                click.echo(f"stateat: cannot write: {error.strerror or error}", err=True)
            with suppress(OSError, ValueError):
                sys.stdout.close()
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("stateat: interrupted; nothing was written", err=True)
            ctx.exit(130)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        from difflib import get_close_matches

        if args and args[0] not in self.commands and not args[0].startswith("-"):
            close = get_close_matches(args[0], self.commands, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="stateat", message="%(prog)s %(version)s")
def main() -> None:
    """Does every cached recurrent state sit at the offset that its hash claims?

    Replays scenarios on a deterministic scheduler with a real block-hash prefix cache, and checks each hashed slot
    against the true recurrent state.

    \b
    Example:
      stateat replay scenarios/seeds/s02-anatomy.yaml
    """
    # A user's rule (module:Class) may lie in the current folder; after our own packages, so that it hides none.
    with suppress(OSError):
        sys.path.append(os.getcwd())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that lacks a character shows its code instead.
            stream.reconfigure(errors="backslashreplace")
    for name in ("SIGTERM", "SIGHUP"):
        # Like Ctrl-C: what is half-written is removed.
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _stop)


ENGINES: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--engine",
        "engines",
        multiple=True,
        metavar="ENGINE",
        help="reference, vllm (each variant's release), vllm:RELEASE or vllm:FOLDER (a checkout); repeatable.",
    ),
    click.option("--vllm-python", type=EXISTING, metavar="PATH", help="A Python that has vLLM, as the engine."),
)


TRUTH: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--state",
        metavar="FAMILY",
        help="The oracle's state family, with a model's widths behind a colon: gated-delta:qwen3-next (default: the "
        "file's; digest).",
    ),
    click.option("--state-dtype", metavar="DTYPE", help="float32, bfloat16 or float16: how states are stored."),
    click.option("--backend", metavar="NAME", help="auto, triton, torch or numpy: what computes states."),
    click.option("--device", metavar="NAME", help="auto, cpu or cuda: where."),
)


def _truth(command: Any) -> Any:
    """The options that say what the oracle computes with; the command takes them as one mapping."""

    @functools.wraps(command)
    def run(
        *args: Any, state: str | None, state_dtype: str | None, backend: str | None, device: str | None, **more: Any
    ) -> Any:
        from sim.truth import BACKENDS, DEVICES, DTYPES

        given = {"state": state, "dtype": state_dtype, "backend": backend, "device": device}
        truth = {key: value for key, value in given.items() if value is not None}
        for key, flag, names in (
            ("dtype", "--state-dtype", DTYPES),
            ("backend", "--backend", BACKENDS),
            ("device", "--device", DEVICES),
        ):
            if key in truth and truth[key] not in names:
                from sim.scenario_errors import choice

                raise InputError(f"{flag}: {choice(truth[key], names)}")
        return command(*args, truth=truth, **more)

    for option in reversed(TRUTH):
        run = option(run)
    return run


def _engines(command: Any) -> Any:
    """The options that choose engines."""
    for option in reversed(ENGINES):
        command = option(command)
    return command


def _fleet(engines: Sequence[str], python: Path | None) -> Fleet:
    from sim.adapters.vllm.fleet import Fleet

    return Fleet(engines, python, warn=lambda text: click.echo(f"warning: {text}", err=True))


def _stop(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _rules(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """``--rule name=value`` as a table."""
    table: dict[str, str] = {}
    for text in values:
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise click.BadParameter(f"found {text!r}, allowed is NAME=VALUE (for example split=prefill-end)")
        if name in table:
            raise click.BadParameter(f"found {name} twice, allowed once")
        table[name] = value
    return table


@dataclass(slots=True)
class _Outputs:
    """What a replay writes besides its table."""

    log: Path | None
    plot: Path | None
    perfetto: Path | None
    json: Path | None

    def check(self, inputs: Sequence[Path]) -> None:
        """Refuse what cannot be written before anything runs."""
        paths = {f"--{name}": getattr(self, name) for name in ("log", "plot", "perfetto", "json")}
        _check_outputs(paths, inputs)
        if self.plot is not None:
            from sim.report.plots import SUFFIXES

            if self.plot.suffix.lower() not in SUFFIXES:
                raise InputError(f"--plot {self.plot}: found {self.plot.suffix!r}, allowed: {', '.join(SUFFIXES)}")


def _check_outputs(paths: Mapping[str, Path | None], inputs: Iterable[Path]) -> None:
    """Refuse outputs that cannot be written, that are one file, or that are an input."""
    outputs = {what: path for what, path in paths.items() if path is not None and (what, str(path)) != ("--json", "-")}
    for what, path in outputs.items():
        check_writable(path, what)
    check_apart(outputs, inputs)


@main.command()
@click.argument("files", nargs=-1, required=True, type=EXISTING)
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only this variant (repeatable).")
@click.option("--rule", "rules", multiple=True, callback=_rules, metavar="NAME=VALUE", help="Override a rule.")
@click.option("--json", "json_path", type=EXISTING, metavar="FILE", help="The result as JSON; - for stdout.")
@click.option("--log", type=EXISTING, metavar="FILE", help="Every event as JSON Lines, for stateat audit.")
@click.option("--plot", type=EXISTING, metavar="FILE", help="A picture of the run (.png, .svg, .pdf).")
@click.option("--perfetto", type=EXISTING, metavar="FILE", help="Chrome trace events, for ui.perfetto.dev.")
@click.option("--check-determinism", is_flag=True, help="Run twice, the second time step by step, and compare.")
@click.option("--no-fast-forward", is_flag=True, help="Simulate every decode step by itself.")
@_truth
@_engines
@click.option("-v", "--verbose", is_flag=True, help="All findings, chunk ends and hits.")
def replay(
    files: Sequence[Path],
    variants: Sequence[str],
    rules: Mapping[str, str],
    truth: Mapping[str, str],
    json_path: Path | None,
    log: Path | None,
    plot: Path | None,
    perfetto: Path | None,
    check_determinism: bool,
    no_fast_forward: bool,
    engines: Sequence[str],
    vllm_python: Path | None,
    verbose: bool,
) -> None:
    """Run scenarios, print what was found and how their variants compare.

    Exits with 1 if an expectation of the file fails, or if it has none and a poison finding exists.

    \b
    Examples:
      stateat replay scenarios/seeds/s02-anatomy.yaml --plot anatomy.png
      stateat replay scenario.yaml --rule split=every-boundary --json -
      stateat replay scenario.yaml --engine vllm:0.26.0 --engine vllm:0.27.0
    """
    from sim.scenario import load

    outputs = _Outputs(log, plot, perfetto, json_path)
    outputs.check(files)
    if len(files) > 1 and (log or plot or perfetto):
        raise InputError("--log, --plot and --perfetto take one scenario file")
    scenarios = [load(file) for file in files]
    results: list[Result] = []
    console = _console(stderr=str(json_path) == "-")
    for scenario in scenarios:
        _not_compared(scenario, truth)
        with ExitStack() as stack:
            fleet = stack.enter_context(_fleet(engines, vllm_python))
            studio = _Studio(outputs, stack, not no_fast_forward, fleet)
            result = studio.replay(scenario, variants, rules, truth, check_determinism)
            results.append(result)
            studio.finish(result)
        from sim.report.table import print_result

        print_result(result, console, verbose)
        _timings(result)
    _write_json(json_path, results)
    sys.exit(1 if any(_failed(result) for result in results) else 0)


@dataclass(slots=True)
class _Studio:
    """Replays one scenario, with whoever listens beside the oracle."""

    outputs: _Outputs
    stack: ExitStack
    fast_forward: bool
    fleet: Fleet
    recorder: Observer | None = None
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
        from sim.replay import replay as run_all

        if self.outputs.log is not None:
            from sim.adapters.log import Recorder

            partial = self.stack.enter_context(atomic(self.outputs.log, "--log"))
            self.recorder = Recorder(self.stack.enter_context(partial.open("w", encoding="utf-8", newline="\n")))
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
        from sim.engine.presets import table
        from sim.replay import simulate
        from sim.report.progress import Progress
        from sim.report.table import head
        from sim.scenario import warnings

        name = run.variant + (f" / {run.case}" if run.case else "")
        make = self.fleet.maker(run)
        rule = table(run.options.preset, run.options.rules)["split"] if make is None else "live"
        click.echo(f"{name} ({rule}): {head(run.options)}", err=True)
        for text in warnings(run) if make is None else ():
            click.echo(f"warning: {text}", err=True)
        observers = list(self._observers(run))
        # A user's rule that prints must not spoil what a machine reads.
        with Progress(name, run.options.clock) as progress, redirect_stdout(sys.stderr):
            outcome = simulate(run, observers, progress.update, self.fast_forward, make, progress.measure)
        if check is not None:
            check(run, outcome)
        return outcome

    def _observers(self, run: Run) -> Iterator[Observer]:
        if self.recorder is not None:
            yield self.recorder
        key = run.variant, run.case
        if self.outputs.plot is not None:
            from sim.report.timeline import Timeline

            self.timelines[key] = Timeline()
            yield self.timelines[key]
        if self.outputs.perfetto is not None:
            from sim.report.perfetto import Perfetto

            self.traces[key] = Perfetto()
            yield self.traces[key]

    def finish(self, result: Result) -> None:
        """Draw the pictures."""
        if self.outputs.plot is not None:
            from sim.report.plots import draw

            panels = [(_name(key), timeline, _outcome(result, key)) for key, timeline in self.timelines.items()]
            with atomic(self.outputs.plot, "--plot") as partial:
                draw(partial, panels, result.title or result.scenario)
        if self.outputs.perfetto is not None:
            from sim.report.perfetto import write

            with atomic(self.outputs.perfetto, "--perfetto") as partial:
                write(partial, [(_name(k), trace, _outcome(result, k)) for k, trace in self.traces.items()])


def _name(key: tuple[str, str]) -> str:
    return f"{key[0]} / {key[1]}" if key[1] else key[0]


def _outcome(result: Result, key: tuple[str, str]) -> Outcome:
    outcome = result.variants[key[0]]
    return outcome.cases[key[1]] if key[1] else outcome


def _same_again(run: Run, outcome: Outcome, fleet: Fleet) -> None:
    """Run once more, step by step, and compare everything that was decided and found."""
    from dataclasses import replace

    from sim.replay import simulate

    again = replace(simulate(run, fast_forward=False, make=fleet.maker(run)), wall_s=outcome.wall_s)
    if again != outcome:
        where = run.variant + (f", case {run.case}" if run.case else "")
        raise StateatError(
            f"{run.scenario}, variant {where}: not deterministic: digests {outcome.digest[:16]} and {again.digest[:16]}"
        )
    click.echo(f"{run.variant}: the same again, step by step (digest {outcome.digest[:16]})", err=True)


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def _timings(result: Result) -> None:
    seconds = sum(outcome.wall_s for outcome in result.variants.values())
    click.echo(f"{result.scenario}: {len(result.variants)} variants in {seconds:.1f} s", err=True)


def _write_json(path: Path | None, results: Sequence[Result]) -> None:
    if path is None:
        return
    from sim.report.json import dumps

    _write_text_or_stdout(path, dumps(results[0] if len(results) == 1 else results))


def _write_text_or_stdout(path: Path, text: str) -> None:
    if str(path) != "-":
        write_text(path, text, "--json")
        return
    if sys.stdout is None:
        raise InputError("--json -: standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)
    sys.stdout.flush()


def _failed(result: Result) -> bool:
    """Whether an expectation fails, or nothing was expected and something is poisoned."""
    if result.failures:
        return True
    from sim.events import GRAVE

    grave = any(f.severity in GRAVE for outcome in result.variants.values() for f in outcome.findings)
    return grave and not result.expected


@main.command()
@click.argument("paths", nargs=-1, type=EXISTING)
@click.option("--junit", type=EXISTING, metavar="FILE", help="JUnit XML, a test case for each variant.")
@click.option("--json", "json_path", type=EXISTING, metavar="FILE", help="All results as JSON; - for stdout.")
@_truth
@_engines
def check(
    paths: Sequence[Path],
    junit: Path | None,
    json_path: Path | None,
    truth: Mapping[str, str],
    engines: Sequence[str],
    vllm_python: Path | None,
) -> None:
    """Run every scenario's expectations; exit with 1 when one fails.

    PATHS are files and folders (default: scenarios). A file that starts with a line `# expect: TEXT` must be refused
    with a message that holds TEXT.

    \b
    Example:
      stateat check scenarios/ --junit report.xml
    """
    from sim.report.junit import to_junit
    from sim.report.table import print_expectations
    from sim.workload.files import NotShared

    files = _scenario_files(paths or (Path("scenarios"),))
    _check_outputs({"--junit": junit, "--json": json_path}, files)
    console = _console(stderr=str(json_path) == "-")
    results: list[Result] = []
    heard: list[Result] = []
    seconds: dict[str, float] = {}
    exit_code = 0
    fleet = click.get_current_context().with_resource(_fleet(engines, vllm_python))
    for file in files:
        started = time.perf_counter()
        try:
            wanted = _refusal(file)
            result = _refused(file, wanted) if wanted is not None else _expected(file, truth, fleet)
        except NotShared as error:
            click.echo(f"skip {file}: {error}", err=True)
            continue
        except MissingError as error:
            if not truth:
                # What the file itself asks for, and is not here.
                click.echo(f"skip {file}: {error}", err=True)
                continue
            raise
        except StateatError as error:
            click.echo(f"stateat: {error}", err=True)
            exit_code = error.exit_code
            continue
        seconds[str(file)] = time.perf_counter() - started
        heard.append(result)
        if wanted is None:
            results.append(result)
        if _failed(result):
            exit_code = exit_code or 1
        print_expectations(result, seconds[str(file)], console)
    if junit is not None:
        write_text(junit, to_junit(heard, seconds), "--junit")
    _write_json(json_path, results)
    sys.exit(exit_code)


def _not_compared(scenario: Scenario, truth: Mapping[str, str]) -> None:
    """Say which expectations are about other states than those that the command line asks for."""
    from sim.expect import MEASURED

    expects = [run.expect or {} for run in scenario.expanded]
    parts = [part for expect in expects for part in (expect, *(expect.get("cases") or {}).values())]
    keys = [key for key in MEASURED if any(part.get(key) is not None for part in parts)]
    if truth and keys:
        text = f"{scenario.path}: not compared, since they are expected of the file's own states: {', '.join(keys)}"
        click.echo(f"note: {text}", err=True)


def _expected(file: Path, truth: Mapping[str, str], fleet: Fleet) -> Result:
    """A scenario's outcome, after what its release would say of its configuration."""
    from sim.replay import replay as run_all
    from sim.replay import simulate
    from sim.scenario import load, warnings

    scenario = load(file)
    _not_compared(scenario, truth)
    for text in dict.fromkeys(text for run in scenario.expanded for text in warnings(run)):
        click.echo(f"warning: {text}", err=True)
    return run_all(scenario, truth=truth, run_one=lambda run: simulate(run, make=fleet.maker(run)), spread=fleet.spread)


def _scenario_files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml") and p.is_file())
            if not found:
                raise InputError(f"{path}: no scenario files (*.yaml) in this folder")
            files += found
        else:
            files.append(path)
    return files


def _refusal(file: Path) -> list[str] | None:
    """What the message must hold with which this file is to be refused; None for one that is to run."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return [line.removeprefix(REFUSED).strip() for line in lines if line.startswith(REFUSED)] or None


def _refused(file: Path, wanted: Sequence[str]) -> Result:
    """The outcome of a file that must be refused."""
    from sim.result import Failure, Outcome, Result
    from sim.scenario import load
    from sim.workload.generate import arrivals

    try:
        for run in load(file).expanded:
            arrivals(run)
        message = "nothing: the file is accepted"
    except InputError as error:
        message = str(error)
    failures = [Failure("refused", "", "message", text, message) for text in wanted if text not in message]
    outcome = Outcome("refused", "", (), {})
    return Result(file.stem, "", "", str(file), "us", {"refused": outcome}, tuple(failures), True)


main.add_command(explain)


@main.command()
@click.argument("log", type=EXISTING)
@_truth
@click.option("--json", "json_path", type=EXISTING, metavar="FILE", help="The findings as JSON; - for stdout.")
@click.option("-v", "--verbose", is_flag=True, help="All findings.")
def audit(log: Path, truth: Mapping[str, str], json_path: Path | None, verbose: bool) -> None:
    """Check the invariants over a recorded event log; exit with 1 if a poison finding exists.

    \b
    Example:
      stateat replay scenario.yaml --log run.jsonl; stateat audit run.jsonl
    """
    from sim.replay import audit as audit_log
    from sim.report.table import print_result
    from sim.scenario import check_truth
    from sim.truth import Truth

    wanted = Truth(**truth)
    check_truth(wanted)
    _check_outputs({"--json": json_path}, [log])
    result = audit_log(log, wanted)
    print_result(result, _console(stderr=str(json_path) == "-"), verbose)
    _write_json(json_path, [result])
    sys.exit(1 if _failed(result) else 0)


@main.command()
@click.argument("files", nargs=-1, required=True, type=EXISTING)
@click.option("--release", "releases", multiple=True, metavar="X.Y.Z", help="Only this release (repeatable).")
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="Show both sides of this step.")
@_engines
@click.option("--json", "json_path", type=EXISTING, metavar="FILE", help="All results as JSON; - for stdout.")
def conform(
    files: Sequence[Path],
    releases: Sequence[str],
    step: int | None,
    engines: Sequence[str],
    vllm_python: Path | None,
    json_path: Path | None,
) -> None:
    """Compare the reference engine with recorded decisions of real vLLM releases.

    FILES are recordings (engine-golden/1, .json or .json.gz). Each is run under the preset of each recorded release;
    chunks, hits, preemptions, claims, evictions, copies, what is poisoned and free blocks must be equal. Exits with 1
    when something diverges.

    With --engine vllm each is run on its own release instead, live; a live engine that is named meets the recordings
    of its own release, or those of --release.

    \b
    Examples:
      stateat conform ../shared/golden/*.json.gz
      stateat conform leftover-da.json.gz --release 0.27.0 --step 5
      stateat conform ../shared/golden/*.json.gz --engine vllm:0.27.0
    """
    from sim.conform import compare, run, to_json
    from sim.recording import read
    from sim.report.conformance import print_conformance, print_step
    from sim.report.progress import Progress

    _check_outputs({"--json": json_path}, files)
    if step is not None and json_path is not None:
        raise InputError("--step shows one step and --json writes all results: name one of them")
    console = _console(stderr=str(json_path) == "-")
    with ExitStack() as stack:
        fleet = stack.enter_context(_fleet(engines, vllm_python))
        if len(fleet.specs) > 1:
            raise InputError("--engine: conform compares one engine with the recordings; name one")
        named = fleet.live and (fleet.specs[0] != "vllm" or vllm_python is not None)
        if named:
            version, _ = fleet.live_release("")
            releases = releases or [version]
        recordings = [recording for file in files for recording in read(file, releases)]
        there = {recording.release for recording in recordings}
        if missing := [release for release in releases if release not in there]:
            raise InputError(f"{', '.join(map(str, files[:3]))}: no recording of {', '.join(missing)}")

        def make(release: str) -> Make | None:
            return fleet.live_release(f"vllm-{release}")[1] if fleet.live else None

        if step is not None:
            for recording in recordings:
                if recording.result["status"] != "ok":
                    click.echo(f"{recording.scenario} {recording.release}: {recording.result['status']}")
                else:
                    ours, _ = run(recording, True, f"vllm-{recording.release}", make(recording.release))
                    print_step(recording, ours, step, console)
            return
        results = []
        with Progress("conform", "steps") as progress:
            for i, recording in enumerate(recordings):
                progress.update(i, len(recordings), 0, 0, 0)
                results.append(compare(recording, make=make(recording.release)))
    print_conformance(results, console)
    if json_path is not None:
        _write_text_or_stdout(json_path, json.dumps(to_json(results), indent=2) + "\n")
    sys.exit(1 if any(result.status == "divergent" for result in results) else 0)


@main.command()
def schema() -> None:
    """Print the JSON Schema of scenario files (for editors).

    \b
    Example:
      stateat schema > stateat.schema.json
    """
    from sim.scenario import json_schema

    click.echo(json.dumps(json_schema(), indent=2))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def doctor(as_json: bool) -> None:
    """Say what is installed, and what is missing and would add.

    \b
    Example:
      stateat doctor
    """
    from sim.doctor import print_report, report

    found = report()
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        print_report(_console())
    sys.exit(0 if found["ok"] else 1)


@main.group()
def vllm() -> None:
    """Releases of vLLM as engines: their real schedulers, without torch.

    \b
    Example:
      stateat vllm install 0.27.0
    """


@vllm.command("install")
@click.argument("releases", nargs=-1, required=True, metavar="RELEASE...")
def vllm_install(releases: Sequence[str]) -> None:
    """Fetch the schedulers of releases from the package registry (without torch; 28 to 50 MB each are kept).

    \b
    Example:
      stateat vllm install 0.26.0 0.27.0
    """
    from sim.adapters.vllm.install import install

    for release in releases:
        install(release, progress=lambda text: click.echo(text, err=True))


@vllm.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def vllm_list(as_json: bool) -> None:
    """The installed releases, and what they take on the disk.

    \b
    Example:
      stateat vllm list
    """
    from sim.adapters.vllm.install import base_size, installed, megabytes

    found = installed()
    if as_json:
        rows = [{"release": i.release, "package": i.package, "bytes": i.size, "folder": str(i.folder)} for i in found]
        click.echo(json.dumps({"base_bytes": base_size(), "releases": rows}, indent=2))
        return
    if not found:
        click.echo("no release is installed; try: stateat vllm install 0.27.0")
        return
    for i in found:
        click.echo(f"{i.release:10} {megabytes(i.size):>7}  {i.folder}")
    click.echo(f"{'shared':10} {megabytes(base_size()):>7}")
