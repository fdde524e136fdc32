"""``stateat explain``: why a slot is poisoned, and how wrong an output gets."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sim.errors import InputError
from sim.files import atomic, check_apart, check_writable, write_text

if TYPE_CHECKING:
    from rich.console import Console

    from sim.chronicle import Story
    from sim.events import Finding
    from sim.remedy import Search, Value
    from sim.result import Outcome
    from sim.scenario import Run, Scenario
    from sim.simulate import Drift

EXISTING = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class _Told:
    """A finding of one run, ready to be printed."""

    run: Run
    block: int
    story: Story
    drift: Drift | None
    remedy: Sequence[Value] | None
    """Rule values that avoid it; None: not asked."""

    @property
    def name(self) -> str:
        from sim.report.text import case_name

        return case_name(self.run.variant, self.run.case)


@click.command()
@click.argument("file", type=EXISTING)
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only this variant (repeatable).")
@click.option(
    "--findings", default=3, show_default=True, type=click.IntRange(min=1), metavar="N", help="At most, of a variant."
)
@click.option("--drift", is_flag=True, help="Continue a reader from the true and from the held state.")
@click.option(
    "--tokens",
    default=32,
    show_default=True,
    type=click.IntRange(1, 4096),
    metavar="N",
    help="Tokens to generate (--drift).",
)
@click.option("--no-remedy", is_flag=True, help="Do not try which rule values avoid a finding.")
@click.option("--plot", type=EXISTING, metavar="FILE", help="A picture of the drift (.png, .svg, .pdf).")
@click.option("--json", "json_path", type=EXISTING, metavar="FILE", help="All of it as JSON; - for stdout.")
def explain(
    file: Path,
    variants: Sequence[str],
    findings: int,
    drift: bool,
    tokens: int,
    no_remedy: bool,
    plot: Path | None,
    json_path: Path | None,
) -> None:
    """Tell why a slot is poisoned: the write, the claim, what is really held, and who read it.

    Only root causes are told, those that somebody restored from first. --drift continues a reader (or, where nobody
    read, a request that would have) on a small seeded language model from the true state and from the held one.

    The last line of each names the rule values under which the same run has no such finding: every known value of a
    single rule is tried. Runs that stand still (I14) are told with theirs too.

    \b
    Examples:
      stateat explain scenarios/seeds/s02-anatomy.yaml
      stateat explain scenario.yaml --variant "old gate" --drift --tokens 64 --plot drift.png
    """
    from rich.console import Console

    from sim.scenario import load

    _check(file, drift, plot, json_path)
    scenario = load(file)
    console = Console(stderr=str(json_path) == "-", highlight=False)
    told: list[_Told] = []
    still: list[_Still] = []
    for name, ran in _simulated(scenario, variants).items():
        chosen = _chosen(ran, findings)
        _print_count(name, ran, len(chosen), console)
        searches = _Searches(no_remedy)
        for run, outcome, story in chosen:
            drifted = _drift(story, tokens) if drift else None
            remedy = searches.avoiding(run, outcome, story.finding)
            one = _Told(run, _block(outcome, story), story, drifted, remedy)
            _print(one, drift, console)
            _print_remedy(remedy, searches.complete(run), console)
            told.append(one)
        for run, outcome, finding in _standing_still(ran):
            remedy = searches.avoiding(run, outcome, finding)
            _print_still(run, finding, console)
            _print_remedy(remedy, searches.complete(run), console)
            still.append((run, finding, remedy))
    if plot is not None:
        _plot(plot, told, scenario.title or scenario.name)
    if json_path is not None:
        _write_json(json_path, scenario.name, told, still)


class _Searches:
    """One search for each run, when it is first needed."""

    def __init__(self, off: bool) -> None:
        self._off = off
        self._done: dict[tuple[str, str], Search] = {}

    def avoiding(self, run: Run, outcome: Outcome, finding: Finding) -> Sequence[Value] | None:
        """The rule values that avoid a finding of this run; None where nobody wants to know."""
        if self._off:
            return None
        key = run.variant, run.case
        if key not in self._done:
            from rich.console import Console

            from sim.remedy import search
            from sim.report.progress import counting
            from sim.report.text import case_name

            name = case_name(*key)
            click.echo(f"{name}: trying the other rule values", err=True)
            console = Console(stderr=True)
            with redirect_stdout(sys.stderr):
                self._done[key] = search(run, lambda values: counting(values, console, name))
        return self._done[key].avoiding(finding, outcome)

    def complete(self, run: Run) -> bool:
        """Whether all values were tried on it."""
        return self._off or self._done[run.variant, run.case].complete


_Still = tuple["Run", "Finding", "Sequence[Value] | None"]


def _standing_still(ran: Sequence[tuple[Run, Outcome]]) -> list[tuple[Run, Outcome, Finding]]:
    """The findings of runs that stood still."""
    return [(run, outcome, f) for run, outcome in ran for f in outcome.findings if f.severity == "liveness"]


def _print_still(run: Run, finding: Finding, console: Console) -> None:
    from rich.text import Text

    from sim.report.text import case_name, finding_line, one_line

    console.print()
    name = one_line(case_name(run.variant, run.case))
    console.print(Text(f"{name}: {finding_line(finding)}", style="bold"), soft_wrap=True)


def _print_remedy(remedy: Sequence[Value] | None, complete: bool, console: Console) -> None:
    """Those of releases, or else the others."""
    if remedy is None:
        return
    from rich.text import Text

    released = [value for value in remedy if value.releases != "no release"]
    text = ", ".join(map(str, released or remedy)) or "no value of a single rule that is known"
    if not complete:
        text += "; the search stopped before all were tried: this run is long"
    console.print(Text(f"  avoided by  {text}"), soft_wrap=True)


def _check(file: Path, drift: bool, plot: Path | None, json_path: Path | None) -> None:
    """Refuse what cannot be written before anything runs."""
    outputs = {"--plot": plot, "--json": json_path}
    paths = {what: path for what, path in outputs.items() if path is not None and (what, str(path)) != ("--json", "-")}
    for what, path in paths.items():
        check_writable(path, what)
    check_apart(paths, [file])
    if plot is not None:
        from sim.report.style import check_suffix

        check_suffix(plot, "--plot")
        if not drift:
            raise InputError("--plot draws the drift: found no --drift, allowed: --drift --plot FILE")


def _simulated(scenario: Scenario, variants: Sequence[str]) -> dict[str, list[tuple[Run, Outcome]]]:
    """All runs, by variant."""
    from sim.report.progress import Progress
    from sim.report.text import case_name
    from sim.scenario import runs
    from sim.simulate import simulate

    found: dict[str, list[tuple[Run, Outcome]]] = {}
    for run in runs(scenario, only=variants):
        # A user's rule that prints must not spoil what a machine reads.
        name = case_name(run.variant, run.case)
        with Progress(name, run.options.clock) as progress, redirect_stdout(sys.stderr):
            found.setdefault(run.variant, []).append((run, simulate(run, progress=progress.update)))
    return found


def _chosen(ran: Sequence[tuple[Run, Outcome]], limit: int) -> list[tuple[Run, Outcome, Story]]:
    """The findings of a variant that are told, over all its cases."""
    from sim.chronicle import rank, roots
    from sim.simulate import explain as followed

    found = [(rank(f), i, f) for i, (_, outcome) in enumerate(ran) for f in roots(outcome.findings)]
    stories: dict[tuple[int, int], Story] = {}
    chosen = sorted(found, key=lambda entry: entry[:2])[:limit]
    for i in dict.fromkeys(i for _, i, _ in chosen):
        run, outcome = ran[i]
        click.echo(f"{run.variant}{f' / {run.case}' if run.case else ''}: following its findings", err=True)
        with redirect_stdout(sys.stderr):
            for story in followed(run, outcome, [f for _, j, f in chosen if j == i]):
                stories[i, story.finding.id] = story
    return [(*ran[i], stories[i, finding.id]) for _, i, finding in chosen]


def _block(outcome: Outcome, story: Story) -> int:
    return next((g.block_size for g in outcome.groups if g.name == story.finding.group), 0)


def _drift(story: Story, tokens: int) -> Drift | None:
    from sim.simulate import drift

    if story.subject is None:
        return None
    click.echo(f"drift: {story.subject.request}, {story.subject.prompt.size:,} prompt tokens", err=True)
    return drift(story.subject, tokens)


def _print_count(name: str, ran: Sequence[tuple[Run, Outcome]], told: int, console: Console) -> None:
    from rich.text import Text

    from sim.chronicle import roots
    from sim.report.text import one_line, plural

    count = sum(len(roots(outcome.findings)) for _, outcome in ran)
    cases = f" in {plural(len(ran), 'case')}" if len(ran) > 1 else ""
    if not count and _standing_still(ran):
        text = f"{name}: no poison finding{cases}, but it stands still"
    elif not count:
        text = f"{name}: no poison finding{cases}; nothing to explain"
    elif told < count:
        text = f"{name}: {plural(count, 'root')}{cases}, {told} of them below; more with --findings {count}"
    else:
        text = f"{name}: {plural(count, 'root')}{cases}"
    console.print(Text(one_line(text)), soft_wrap=True)


def _print(told: _Told, wanted: bool, console: Console) -> None:
    from sim.report.explain import print_story

    console.print()
    print_story(told.story, told.name, told.block, console)
    subject = told.story.subject
    if not wanted:
        return
    from rich.text import Text

    from sim.chronicle import TORN
    from sim.report.drift import print_drift, too_long
    from sim.simulate import LONGEST_DRIFT

    console.print()
    if subject is None:
        why = "only the convolution differs" if told.story.finding.verdict == TORN else "there is no state to restore"
        console.print(Text(f"  drift: not computed: {why}"), soft_wrap=True)
    elif told.drift is None:
        console.print(Text("  " + too_long(subject, LONGEST_DRIFT)), soft_wrap=True)
    else:
        print_drift(told.drift, subject, console)


def _plot(path: Path, told: Sequence[_Told], title: str) -> None:
    panels = [
        (f"{one.name}: {one.story.subject.request}", one.drift)
        for one in told
        if one.drift is not None and one.story.subject is not None
    ]
    if not panels:
        click.echo(f"--plot {path}: nothing to draw, no picture was written", err=True)
        return
    from sim.report.drift_plot import draw

    with atomic(path, "--plot") as partial:
        draw(partial, panels, title)


def _write_json(path: Path, scenario: str, told: Sequence[_Told], still: Sequence[_Still]) -> None:
    from sim.report.drift import to_json as drift_tree
    from sim.report.explain import to_json as story_tree
    from sim.report.json import finding_tree

    trees: list[Any] = []
    for one in told:
        subject = one.story.subject
        drifted = None if one.drift is None or subject is None else drift_tree(one.drift, subject)
        tree = story_tree(one.run.variant, one.run.case, one.story, drifted)
        trees.append(tree | {"avoided_by": _values(one.remedy)})
    standing = [
        {"variant": run.variant, "case": run.case, "finding": finding_tree(finding), "avoided_by": _values(remedy)}
        for run, finding, remedy in still
    ]
    whole = {"scenario": scenario, "findings": trees, "liveness": standing}
    text = json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if str(path) != "-":
        write_text(path, text, "--json")
        return
    if sys.stdout is None:
        raise InputError("--json -: standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)
    sys.stdout.flush()


def _values(remedy: Sequence[Value] | None) -> list[dict[str, str]] | None:
    if remedy is None:
        return None
    return [{"rule": value.rule, "value": value.name, "releases": value.releases} for value in remedy]
