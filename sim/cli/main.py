"""The command line: parse, call, print. Machine output goes to stdout alone, progress and timings to stderr.

Exit codes: 0 as expected, 1 an expectation or an invariant failed, 2 bad usage or input (128 under ``--bisect``).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from traceback import print_exc
from typing import TYPE_CHECKING, Any, NoReturn

import click

from stateat.sim.cli.check import check
from stateat.sim.cli.explain import explain
from stateat.sim.cli.files import list_scenarios, new
from stateat.sim.cli.geometry import geometry
from stateat.sim.cli.options import (
    EXISTING,
    OUTPUT,
    check_outputs,
    console_on,
    engine_options,
    fleet_of,
    truth_options,
    write_json,
    write_text_or_stdout,
)
from stateat.sim.cli.options import exit_code as exit_code_of
from stateat.sim.cli.replay import replay
from stateat.sim.cli.streams import NOBODY, fill, lost, standard
from stateat.sim.cli.sweep import sweep
from stateat.sim.cli.watch import watched
from stateat.sim.errors import STOP, InputError, StateatError, exit_code
from stateat.sim.printable import printable, readable_stderr
from stateat.sim.signals import INTERRUPTED, last, raising

if TYPE_CHECKING:
    from stateat.sim.run.engine import Make


class _Group(click.Group):
    """Prints our errors as one message, without a traceback, and knows near misses."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        given = sys.argv[1:] if args is None else list(args)
        # To git bisect 1 and 2 would be a bad commit, whose fault it is not.
        bisecting = any(each.partition("=")[0] == "--bisect" for each in given)
        unusable = STOP if bisecting else 2
        fill()
        try:
            with watched(given, unusable), standard(), raising(), readable_stderr():
                try:
                    return super().main(args, *rest, **extra)
                except SystemExit as end:
                    gone = lost(sys.stdout)
                    if gone is not None and gone.errno not in NOBODY and end.code in (0, 1, None):
                        click.echo(f"stateat: standard output: {gone.strerror or gone}", err=True)
                    elif end.code != 2:
                        raise
                sys.exit(unusable)
        except Exception:
            if not bisecting:
                raise
            print_exc()
            sys.exit(unusable)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StateatError as error:
            click.echo(f"stateat: {error}", err=True)
            ctx.exit(error.exit_code)
        except OSError as error:
            where = "cannot write" if error.filename is None else os.fspath(error.filename)
            click.echo(f"stateat: {where}: {error.strerror or error}", err=True)
            ctx.exit(2)
        except MemoryError:
            click.echo("stateat: there is not enough memory for this", err=True)
            ctx.exit(2)
        except KeyboardInterrupt as interrupt:
            _interrupted(ctx, interrupt)
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except Exception:
            # A library may have made something else of a signal.
            if (signal := last()) is None:
                raise
            _interrupted(ctx, signal)

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


def _interrupted(ctx: click.Context, interrupt: KeyboardInterrupt) -> NoReturn:
    click.echo(INTERRUPTED, err=True)
    ctx.exit(exit_code(interrupt))


main.add_command(replay)
main.add_command(check)
main.add_command(explain)
main.add_command(geometry)
main.add_command(sweep)
main.add_command(list_scenarios)
main.add_command(new)


@main.command()
@click.argument("log", type=EXISTING)
@truth_options
@click.option("--json", "json_path", type=OUTPUT, metavar="FILE", help="The findings as JSON; - for stdout.")
@click.option("-v", "--verbose", is_flag=True, help="All findings.")
def audit(log: Path, truth: Mapping[str, str], json_path: Path | None, verbose: bool) -> None:
    """Check the invariants over a recorded event log; exit with 1 if a poison finding exists, or if it never ends, with
    2 when nothing was judged: the log has no claim and no hit whose state can be known.

    The truth is that of the log (digest, if it says none), unless --state and the others say otherwise.

    \b
    Example:
      stateat replay scenario.yaml --log run.jsonl; stateat audit run.jsonl
    """
    from stateat.sim.report.terminal.table import print_result
    from stateat.sim.run.simulate import audit as audit_log
    from stateat.sim.scenario.load import check_truth
    from stateat.sim.scenario.truth import Truth

    if "state" in truth:
        check_truth(Truth(**truth))
    check_outputs({"--json": json_path}, [log])
    result = audit_log(log, truth)
    print_result(result, console_on(stderr=str(json_path) == "-"), verbose)
    write_json(json_path, [result])
    code = exit_code_of(result)
    if not (result.judged or code):
        raise InputError(f"{log}: nothing was judged: no claim and no hit of a state that its log tells of")
    sys.exit(code)


@main.command()
@click.argument("files", nargs=-1, required=True, type=EXISTING)
@click.option("--release", "releases", multiple=True, metavar="X.Y.Z", help="Only this release (repeatable).")
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="Show both sides of this step.")
@engine_options
@click.option("--json", "json_path", type=OUTPUT, metavar="FILE", help="All results as JSON; - for stdout.")
def conform(
    files: Sequence[Path],
    releases: Sequence[str],
    step: int | None,
    engines: Sequence[str],
    vllm_python: str | None,
    json_path: Path | None,
) -> None:
    """Compare the reference engine with recorded decisions of real vLLM releases.

    FILES are recordings (engine-golden/1, .json or .json.gz). Each is run under the preset of each recorded release;
    chunks, hits, preemptions, claims, evictions, copies, what is poisoned and free blocks must be equal. Exits with 1
    when something diverges.

    With --engine vllm each is run on its own release instead, live; a live engine that is named meets the recordings
    of its own release, or those of --release. A checkout meets those of the release that it says it comes from, and the
    table says which engine it is; it exits with 2 where an engine fails.

    \b
    Examples:
      stateat conform ../shared/golden/*.json.gz
      stateat conform leftover-da.json.gz --release 0.27.0 --step 5
      stateat conform ../shared/golden/*.json.gz --engine vllm:0.27.0
    """
    from stateat.sim.conformance.compare import compare, run, to_json
    from stateat.sim.conformance.recording import read
    from stateat.sim.report.terminal.conformance import print_conformance, print_step
    from stateat.sim.report.terminal.progress import Progress

    check_outputs({"--json": json_path}, files)
    if step is not None and json_path is not None:
        raise InputError("--step shows one step and --json writes all results: name one of them")
    console = console_on(stderr=str(json_path) == "-")
    with ExitStack() as stack:
        fleet = stack.enter_context(fleet_of(engines, vllm_python))
        if len(fleet.specs) > 1:
            raise InputError("--engine: conform compares one engine with the recordings; name one")
        named = fleet.live and (fleet.specs[0] != "vllm" or vllm_python is not None)
        engine = "vllm" if fleet.live else ""
        if named:
            asked, _ = fleet.of("")
            engine = asked.label
            if not releases:
                releases = [fleet.says(asked)]
                if not releases[0]:
                    raise InputError(f"--engine {asked.spec}: does not say which release it comes from; name --release")
        recordings = [recording for file in files for recording in read(file, releases)]
        there = {recording.release for recording in recordings}
        if missing := [release for release in releases if release not in there]:
            raise InputError(f"{', '.join(map(str, files[:3]))}: no recording of {', '.join(missing)}")

        def make(release: str) -> Make | None:
            return fleet.of(f"vllm-{release}")[1] if fleet.live else None

        if step is not None:
            for recording in recordings:
                if recording.result["status"] != "ok":
                    click.echo(printable(f"{recording.scenario} {recording.release}: {recording.result['status']}"))
                else:
                    ours, _ = run(recording, True, f"vllm-{recording.release}", make(recording.release))
                    print_step(recording, ours, step, console)
            return
        results = []
        with Progress("conform") as progress:
            for i, recording in enumerate(recordings):
                progress.count(i, len(recordings), "recording")
                results.append(compare(recording, make=make(recording.release)))
    print_conformance(results, console, engine)
    if json_path is not None:
        write_text_or_stdout(json_path, json.dumps(to_json(results, engine), indent=2) + "\n")
    statuses = {result.status for result in results}
    sys.exit(2 if "error" in statuses else 1 if "divergent" in statuses else 0)


@main.command()
def schema() -> None:
    """Print the JSON Schema of scenario files (for editors).

    \b
    Example:
      stateat schema > stateat.schema.json
    """
    from stateat.sim.scenario.load import json_schema

    write_text_or_stdout(Path("-"), json.dumps(json_schema(), indent=2) + "\n")


@main.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def doctor(as_json: bool) -> None:
    """Say what is installed, and what is missing and would add.

    \b
    Example:
      stateat doctor
    """
    from stateat.sim.cli.doctor import print_report, report

    found = report()
    if as_json:
        write_text_or_stdout(Path("-"), json.dumps(found, indent=2) + "\n")
    else:
        print_report(console_on())
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
@click.option("--unpinned", is_flag=True, help="Also what no hash is known of, on the registry's word.")
def vllm_install(releases: Sequence[str], unpinned: bool) -> None:
    """Fetch the schedulers of releases from the package registry: 106 to 336 MB each, of which 28 to 50 MB are kept.

    0.26.0 to 0.33.0 are held against hashes that stateat knows.

    What is fetched is held against the hashes that this project knows, and what does not fit is refused.

    \b
    Example:
      stateat vllm install 0.26.0 0.27.0
    """
    from stateat.sim.adapters.vllm.install import install

    for release in releases:
        install(release, unpinned=unpinned, progress=lambda text: click.echo(text, err=True))


@vllm.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def vllm_list(as_json: bool) -> None:
    """The installed releases, and what they take on the disk.

    \b
    Example:
      stateat vllm list
    """
    from stateat.sim.adapters.vllm.install import base, installed, megabytes

    found, shared = installed(), base()
    if as_json:
        rows = [
            {
                "release": i.release,
                "package": i.package,
                "bytes": i.size,
                "folder": str(i.folder),
                "pinned": i.pinned,
            }
            for i in found
        ]
        about = {"base_bytes": shared.size if shared else 0, "base_pinned": bool(shared and shared.pinned)}
        write_text_or_stdout(Path("-"), json.dumps(about | {"releases": rows}, indent=2) + "\n")
        return
    if not found:
        click.echo("no release is installed; try: stateat vllm install 0.27.0")
        return
    for name, i in [*((i.release, i) for i in found), *([("shared", shared)] if shared else [])]:
        click.echo(f"{name:10} {megabytes(i.size):>7}  {i.folder}{'' if i.pinned else '  unpinned'}")
