"""``stateat explain``: why a slot is poisoned, why a request hits nothing, and how wrong an output gets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stateat.sim.cli.explain_remedy import Searches, hits, print_raised, print_remedy, values
from stateat.sim.cli.options import OUTPUT, SCENARIO, check_outputs, code_option, console_on, write_text_or_stdout
from stateat.sim.errors import InputError
from stateat.sim.files import atomic, nearby

if TYPE_CHECKING:
    from rich.console import Console

    from stateat.sim.events import Finding
    from stateat.sim.explain.drift import Drift
    from stateat.sim.explain.explanation import Story
    from stateat.sim.explain.misses import Miss
    from stateat.sim.explain.remedy import RuleValue
    from stateat.sim.run.result import Outcome
    from stateat.sim.scenario.load import Run, Scenario


@dataclass(frozen=True, slots=True)
class _Told:
    """A finding of one run, ready to be printed."""

    run: Run
    block: int
    story: Story
    drift: Drift | None
    remedy: Sequence[RuleValue] | None
    """Rule values that avoid it; None: not asked."""

    @property
    def name(self) -> str:
        from stateat.sim.report.words.failures import case_name

        return case_name(self.run.variant, self.run.case)


@click.command()
@click.argument("file", type=SCENARIO)
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
@code_option
@click.option("--no-remedy", is_flag=True, help="Do not try which rule values avoid a finding.")
@click.option("--plot", type=OUTPUT, metavar="FILE", help="A picture of the drift (.png, .svg, .pdf).")
@click.option("--json", "json_path", type=OUTPUT, metavar="FILE", help="All of it as JSON; - for stdout.")
def explain(
    file: Path,
    variants: Sequence[str],
    findings: int,
    drift: bool,
    tokens: int,
    allow_code: bool,
    no_remedy: bool,
    plot: Path | None,
    json_path: Path | None,
) -> None:
    """Tell why a slot is poisoned: the write, the claim, what is really held, who read it; and why nothing is hit.

    Only root causes are told, those that somebody restored from first. --drift continues a reader (or, where nobody
    read, a request that would have) on a small seeded language model from the true state and from the held one.

    The last line of each names the rule values under which the same run has no such finding: every known value of a
    single rule is tried. Runs that stand still (I14) are told with theirs too, and so are requests that hit nothing
    although an earlier request begins alike.

    \b
    Examples:
      stateat explain s02-anatomy
      stateat explain s02-anatomy --variant "old gate" --drift --tokens 64 --plot drift.png
    """
    from stateat.sim.report.terminal.misses import print_heading, print_miss, print_more
    from stateat.sim.report.words.failures import case_name
    from stateat.sim.scenario.load import load

    _check(file, drift, plot, json_path)
    scenario = load(file, allow_code)
    check_outputs({"--plot": plot, "--json": json_path}, scenario.inputs)
    console = console_on(stderr=str(json_path) == "-")
    told: list[_Told] = []
    still: list[_Still] = []
    missed: list[_Missed] = []
    for name, ran in _simulated(scenario, variants).items():
        chosen = _chosen(ran, findings)
        without = _without_hits(ran, findings)
        _print_count(name, ran, len(chosen), bool(without), console)
        searches = Searches(no_remedy)
        for run, outcome, story in chosen:
            drifted = _drift(story, tokens) if drift else None
            remedy = searches.avoiding(run, outcome, story.finding)
            one = _Told(run, _block(outcome, story), story, drifted, remedy)
            _print(one, drift, console)
            print_remedy(remedy, searches.note(run, remedy), console)
            told.append(one)
        for run, outcome, finding in _standing_still(ran):
            remedy = searches.avoiding(run, outcome, finding)
            _print_still(run, finding, console)
            print_remedy(remedy, searches.note(run, remedy), console)
            still.append((run, finding, remedy))
        for run, outcome, found in without:
            hit_under = [searches.raising(run, outcome, miss) for miss in found[:findings]]
            print_heading(case_name(run.variant, run.case), found, console)
            for miss, under in zip(found, hit_under, strict=False):
                print_miss(miss, console)
                print_raised(under, searches.note(run, under), console)
                missed.append((run, miss, under))
            print_more(len(found) - findings, console)
    if plot is not None:
        _plot(plot, told, scenario.title or scenario.name)
    if json_path is not None:
        _write_json(json_path, scenario.name, told, still, missed)


_Still = tuple["Run", "Finding", "Sequence[RuleValue] | None"]
_Missed = tuple["Run", "Miss", "Mapping[RuleValue, int] | None"]


def _standing_still(ran: Sequence[tuple[Run, Outcome]]) -> list[tuple[Run, Outcome, Finding]]:
    """The findings of runs that stood still."""
    from stateat.sim.events import Severity

    return [(run, outcome, f) for run, outcome in ran for f in outcome.findings if f.severity == Severity.LIVENESS]


def _print_still(run: Run, finding: Finding, console: Console) -> None:
    from rich.text import Text

    from stateat.sim.printable import one_line
    from stateat.sim.report.words.failures import case_name
    from stateat.sim.report.words.findings import finding_line

    console.print()
    name = one_line(case_name(run.variant, run.case))
    console.print(Text(f"{name}: {finding_line(finding)}", style="bold"), soft_wrap=True)


def _without_hits(ran: Sequence[tuple[Run, Outcome]], limit: int) -> list[tuple[Run, Outcome, Sequence[Miss]]]:
    """The runs of a variant with requests that hit nothing and could have, so many at most."""
    from stateat.sim.explain.misses import misses

    found: list[tuple[Run, Outcome, Sequence[Miss]]] = []
    for run, outcome in ran:
        if len(found) < limit and sum(map(bool, outcome.hits.values())) < outcome.requests:
            missed = misses(run)
            if missed:
                found.append((run, outcome, missed))
    return found


def _check(file: Path, drift: bool, plot: Path | None, json_path: Path | None) -> None:
    """Refuse what cannot be written before anything runs."""
    check_outputs({"--plot": plot, "--json": json_path}, [file])
    if plot is not None:
        from stateat.sim.report.pictures.style import check_suffix

        check_suffix(plot, "--plot")
        if not drift:
            raise InputError("--plot draws the drift: found no --drift, allowed: --drift --plot FILE")


def _simulated(scenario: Scenario, variants: Sequence[str]) -> dict[str, list[tuple[Run, Outcome]]]:
    """All runs, by variant."""
    from stateat.sim.report.terminal.progress import Progress
    from stateat.sim.report.words.failures import case_name
    from stateat.sim.run.simulate import simulate
    from stateat.sim.scenario.load import runs, warned

    found: dict[str, list[tuple[Run, Outcome]]] = {}
    for run in runs(scenario, only=variants):
        name = case_name(run.variant, run.case)
        for text in warned([run]):
            click.echo(f"warning: {text}", err=True)
        with Progress(name, run.options.clock) as progress:
            found.setdefault(run.variant, []).append((run, simulate(run, progress=progress.update)))
    return found


def _chosen(ran: Sequence[tuple[Run, Outcome]], limit: int) -> list[tuple[Run, Outcome, Story]]:
    """The findings of a variant that are told, over all its cases."""
    from stateat.sim.explain.explanation import rank, roots
    from stateat.sim.explain.provenance import explain as followed

    found = [(rank(f), i, f) for i, (_, outcome) in enumerate(ran) for f in roots(outcome.findings)]
    stories: dict[tuple[int, int], Story] = {}
    chosen = sorted(found, key=lambda entry: entry[:2])[:limit]
    for i in dict.fromkeys(i for _, i, _ in chosen):
        run, outcome = ran[i]
        click.echo(f"{run.variant}{f' / {run.case}' if run.case else ''}: following its findings", err=True)
        for story in followed(run, outcome, [f for _, j, f in chosen if j == i]):
            stories[i, story.finding.id] = story
    return [(*ran[i], stories[i, finding.id]) for _, i, finding in chosen]


def _block(outcome: Outcome, story: Story) -> int:
    return next((g.block_size for g in outcome.groups if g.name == story.finding.group), 0)


def _drift(story: Story, tokens: int) -> Drift | None:
    from stateat.sim.explain.drift import drift
    from stateat.sim.printable import plural

    if story.subject is None:
        return None
    click.echo(f"drift: {story.subject.request}, {plural(story.subject.prompt.size, 'prompt token')}", err=True)
    return drift(story.subject, tokens)


def _print_count(name: str, ran: Sequence[tuple[Run, Outcome]], told: int, missed: bool, console: Console) -> None:
    from rich.text import Text

    from stateat.sim.explain.explanation import roots
    from stateat.sim.printable import one_line, plural

    count = sum(len(roots(outcome.findings)) for _, outcome in ran)
    cases = f" in {plural(len(ran), 'case')}" if len(ran) > 1 else ""
    if not count and _standing_still(ran):
        text = f"{name}: no poison finding{cases}, but it stands still"
    elif not count:
        text = f"{name}: no poison finding{cases}" + "; nothing to explain" * (not missed)
    elif told < count:
        text = f"{name}: {plural(count, 'root')}{cases}, {told} of them below; more with --findings {count}"
    else:
        text = f"{name}: {plural(count, 'root')}{cases}"
    console.print(Text(one_line(text)), soft_wrap=True)


def _print(told: _Told, wanted: bool, console: Console) -> None:
    from stateat.sim.report.terminal.explain import print_story

    console.print()
    print_story(told.story, told.name, told.block, console)
    subject = told.story.subject
    if not wanted:
        return
    from rich.text import Text

    from stateat.sim.explain.drift import LONGEST_DRIFT
    from stateat.sim.explain.explanation import TORN
    from stateat.sim.report.terminal.drift import print_drift, too_long

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
        click.echo(f"--plot {nearby(path)}: nothing to draw, no picture was written", err=True)
        return
    from stateat.sim.report.pictures.drift_plot import draw

    with atomic(path, "--plot") as partial:
        draw(partial, panels, title)


def _write_json(
    path: Path, scenario: str, told: Sequence[_Told], still: Sequence[_Still], missed: Sequence[_Missed]
) -> None:
    from stateat.sim.report.machine.json import finding_tree
    from stateat.sim.report.terminal.drift import to_json as drift_tree
    from stateat.sim.report.terminal.explain import to_json as story_tree
    from stateat.sim.report.terminal.misses import to_json as miss_tree

    trees: list[Any] = []
    for one in told:
        subject = one.story.subject
        drifted = None if one.drift is None or subject is None else drift_tree(one.drift, subject)
        tree = story_tree(one.run.variant, one.run.case, one.story, drifted)
        trees.append(tree | {"avoided_by": values(one.remedy)})
    standing = [
        {"variant": run.variant, "case": run.case, "finding": finding_tree(finding), "avoided_by": values(remedy)}
        for run, finding, remedy in still
    ]
    without = [miss_tree(run.variant, run.case, miss) | {"hit_under": hits(raised)} for run, miss, raised in missed]
    whole = {"scenario": scenario, "findings": trees, "liveness": standing, "misses": without}
    text = json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text_or_stdout(path, text)
