"""``stateat sweep``: a scenario at many points, under many seeds; a table of runs, and what it allows to say."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from stateat.sim.cli.options import OUTPUT, SCENARIO, check_outputs, code_option, console_on, write_text_or_stdout
from stateat.sim.errors import exit_code


@click.command()
@click.argument("file", type=SCENARIO)
@click.option("--out", type=OUTPUT, metavar="FILE", help="The table (.parquet or .csv), a row for each run.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, metavar="N", help="Processes (default: 1).")
@click.option("--backend", default="loky", metavar="NAME", help="loky (this machine), dask or ray: a cluster.")
@click.option("--address", metavar="URL", help="Of an existing Dask scheduler or Ray cluster.")
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only this variant (repeatable).")
@code_option
@click.option("--yes", is_flag=True, help="Run it, although it is more than 10,000 runs.")
@click.option("--restart", is_flag=True, help="Discard the runs that --out holds, and begin again.")
@click.option("--plot", type=OUTPUT, metavar="FILE", help="A picture of the rates (.png, .svg or .pdf).")
@click.option("--json", "json_path", type=OUTPUT, metavar="FILE", help="Rows and rates as JSON; - for stdout.")
def sweep(
    file: Path,
    out: Path | None,
    jobs: int,
    backend: str,
    address: str | None,
    variants: Sequence[str],
    allow_code: bool,
    yes: bool,
    restart: bool,
    plot: Path | None,
    json_path: Path | None,
) -> None:
    """Run a scenario at all points of a sweep file, and print rates with their intervals.

    With --out a sweep that was interrupted goes on where it stopped: the same command again. The table does not depend
    on --jobs. Exits with 1 if a run failed; its row says why.

    \b
    Example:
      stateat sweep concurrency --jobs 2 --out concurrency.parquet --plot concurrency.png
    """
    from stateat.sim.report.terminal.progress import RunProgress
    from stateat.sim.report.terminal.sweep import print_sweep, to_json
    from stateat.sim.sweeps.execute import LIMIT, execute, kept
    from stateat.sim.sweeps.pool import Pool
    from stateat.sim.sweeps.read import read
    from stateat.sim.sweeps.table import check_out, outputs

    if out is not None:
        check_out(out, [file])
    files = {**(outputs(out) if out is not None else {}), "--plot": plot, "--json": json_path}
    check_outputs(files, [file])
    pool = Pool(jobs, backend, address)
    pool.check()
    plan = read(file, variants, None if yes else LIMIT, allow_code)
    check_outputs(files, plan.inputs)
    if plot is not None:
        from stateat.sim.report.pictures.sweep_plots import check_picture

        check_picture(plan, plot)
    parts = (f"{plan.points:,} points", f"{len(plan.seeds):,} seeds", f"{len(plan.picks):,} variants and cases")
    click.echo(f"{plan.name}: {plan.runs:,} runs ({', '.join(parts)})", err=True)
    if out is None:
        click.echo("nothing is kept without --out", err=True)
    for text in plan.warnings:
        click.echo(f"warning: {text}", err=True)
    with RunProgress(plan.name) as progress:
        try:
            table = execute(plan, pool, out, restart, progress.told)
        except KeyboardInterrupt as interrupt:
            click.echo(f"stateat: interrupted; {kept(progress.done, plan, out)}", err=True)
            sys.exit(exit_code(interrupt))
    print_sweep(plan, table, console_on(stderr=str(json_path) == "-"))
    if json_path is not None:
        text = json.dumps(to_json(plan, table), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_text_or_stdout(json_path, text)
    # Last, so that what goes wrong in it costs nothing else.
    if plot is not None:
        from stateat.sim.files import atomic
        from stateat.sim.report.plots import sweep_picture

        with atomic(plot, "--plot") as partial:
            sweep_picture(table, partial)
    sys.exit(1 if (table["error"] != "").any() else 0)
