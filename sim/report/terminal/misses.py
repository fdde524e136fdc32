"""Requests that hit nothing, in words: what they share, and what each group had of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from stateat.sim.explain.misses import GroupCoverage, Miss
from stateat.sim.printable import one_line, plural
from stateat.sim.report.terminal.lines import say


def print_heading(name: str, found: Sequence[Miss], console: Console) -> None:
    """Print how many requests of a run hit nothing."""
    console.print()
    text = f"{name}: {plural(len(found), 'request')} hit nothing although an earlier request begins alike"
    say(console, Text(one_line(text), style="bold"))


def print_miss(miss: Miss, console: Console) -> None:
    """Print one of them, in a sentence."""
    say(console, Text(f"  {one_line(sentence(miss))}"))


def print_more(count: int, console: Console) -> None:
    """Print how many are not told."""
    if count > 0:
        say(console, Text(f"  … and {count:,} more"))


def sentence(miss: Miss) -> str:
    """Return who it is, what is shared, and why nothing of it was there."""
    head = f"{miss.request} (step {miss.step}) shares {plural(miss.shared, 'token')} with {miss.earlier}"
    return f"{head}: {'; '.join(reasons(miss))}"


def reasons(miss: Miss) -> Iterator[str]:
    """Return why, by group: those that had nothing, those of which a drafter left nothing, or that they disagree."""
    bare = [had for had in miss.groups if not had.longest]
    for had in bare:
        yield _bare(had, miss)
    for had in miss.groups:
        if had.longest and not had.left:
            yield f"{had.group} has {had.longest:,}, of which a look-ahead drafter's drop leaves nothing"
    if all(had.left for had in miss.groups):
        yield f"no length is there in all groups (the longest of each: {', '.join(map(_length, miss.groups))})"
    elif others := [had for had in miss.groups if had.left]:
        yield "there is " + ", ".join(f"{had.left:,} of {had.group}" for had in others)


def _bare(had: GroupCoverage, miss: Miss) -> str:
    """Return why a group had nothing at all."""
    if not had.boundaries:
        return f"no boundary of {had.group} ({had.block:,}) lies within the {miss.reach:,} that a hit may have"
    if not had.recurrent:
        return f"{had.group} has nothing of it any more"
    null = f"{had.null:,} of {had.boundaries:,} null"
    if had.null == had.boundaries:
        return f"no boundary of {had.group} in it was ever published ({null})"
    return f"no state of {had.group} in it can be hit any more, or yet ({null}, the rest was published)"


def _length(had: GroupCoverage) -> str:
    return f"{had.group} {had.left:,}" + (f" of {had.longest:,}, after the drop" if had.left < had.longest else "")


def to_json(variant: str, case: str, miss: Miss) -> dict[str, Any]:
    """A miss as plain data."""
    names = ("group", "recurrent", "block", "boundaries", "null", "longest", "left")
    return {
        "variant": variant,
        "case": case,
        "request": miss.request,
        "step": miss.step,
        "earlier": miss.earlier,
        "shared": miss.shared,
        "reach": miss.reach,
        "groups": [{name: getattr(had, name) for name in names} for had in miss.groups],
        "why": list(reasons(miss)),
    }
