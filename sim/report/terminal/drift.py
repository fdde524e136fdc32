"""Drift of an output after a poisoned restore, as a table and as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stateat.sim.explain.explanation import Subject
from stateat.sim.printable import one_line, plural
from stateat.sim.report.terminal.lines import print_trimmed

if TYPE_CHECKING:
    from stateat.sim.explain.drift import Drift, Token

FIRST = 4
"""Tokens that are always shown."""
SHOWN = 12
"""Tokens that differ and are shown, at most."""


def heading(subject: Subject) -> str:
    """Return who is continued, from where."""
    restored = f"restored at {subject.offset:,} of {plural(subject.prompt.size, 'prompt token')}"
    if subject.hypothetical:
        return one_line(f"drift: a request that sends {subject.request}'s prompt again, {restored}")
    return one_line(f"drift: {subject.request}, {restored}")


def too_long(subject: Subject, longest: int) -> str:
    """Return why there is no drift."""
    return one_line(
        f"drift: not computed: {subject.request} has {subject.prompt.size:,} prompt tokens, "
        f"the model here reads at most {longest:,}"
    )


def print_drift(drift: Drift, subject: Subject, console: Console) -> None:
    """The states' distances, the tokens, and what came of them."""
    console.print(Text("  " + heading(subject)), soft_wrap=True)
    print_trimmed(_states(drift), console)
    print_trimmed(_tokens(drift), console)
    for line in summary(drift):
        console.print(Text("  " + line), soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in ("state distance", "") else "right")
    return table


def _states(drift: Drift) -> Table:
    """A row for the restore, the end of the prompt and the last token; a column for each recurrent layer."""
    short = {"gated-delta": "GDN", "ssd": "SSD"}
    table = _table("state distance", *(f"{i} {short[kind]}" for i, kind in enumerate(drift.layers)))
    last = (f"after {len(drift.tokens)} more", drift.tokens[-1].states)
    for label, row in (("at the restore", drift.approach[0][1]), ("prompt's end", drift.approach[-1][1]), last):
        table.add_row(f"  {label}", *map(number, row))
    return table


def _tokens(drift: Drift) -> Table:
    table = _table("  token", "true", "held", "", "logits", "max", "KL (nats)", "state")
    before = -1
    for i in _shown(drift):
        if i > before + 1:
            table.add_row("…")
        table.add_row(f"{i}", *_cells(drift.tokens[i]))
        before = i
    return table


def _cells(token: Token) -> Iterator[str]:
    yield f"{token.true}"
    yield f"{token.held}"
    yield "differs" if token.differs else ""
    yield number(token.logit_distance)
    yield number(token.logit_max)
    yield number(token.divergence)
    yield number(max(token.states))


def _shown(drift: Drift) -> list[int]:
    """The first tokens, those that differ, and the last one."""
    differ = [i for i, token in enumerate(drift.tokens) if token.differs]
    return sorted({*range(min(FIRST, len(drift.tokens))), *differ[:SHOWN], len(drift.tokens) - 1})


def number(value: float) -> str:
    """Two significant digits."""
    if value >= 10:
        return f"{value:,.0f}"
    return "0" if value == 0 else f"{value:.1e}" if value < 0.01 else f"{value:.2g}"


def summary(drift: Drift) -> Iterator[str]:
    """Return what the continuations come to."""
    count = len(drift.tokens)
    swapped = sum(token.differs for token in drift.tokens)
    yield f"on the same text greedy decoding picks another token in {swapped} of {count} places"
    if drift.first is None:
        yield f"left to itself it says the same {plural(count, 'token')}"
    else:
        places = f"{drift.different} of {count} places"
        yield f"left to itself it says something else from token {drift.first} on, in {places}"
    true, held = drift.repetition
    yield f"repeated 4-grams: {true:.0%} from the true state, {held:.0%} from the held one"


def to_json(drift: Drift, subject: Subject) -> dict[str, Any]:
    """A drift as plain data."""
    true, held = drift.repetition
    return {
        "request": subject.request,
        "hypothetical": subject.hypothetical,
        "offset": drift.offset,
        "prompt": drift.prompt,
        "layers": list(drift.layers),
        "approach": [{"position": position, "states": list(states)} for position, states in drift.approach],
        "tokens": [
            {
                "true": token.true,
                "held": token.held,
                "differs": token.differs,
                "logit_distance": token.logit_distance,
                "logit_max": token.logit_max,
                "kl_nats": token.divergence,
                "states": list(token.states),
            }
            for token in drift.tokens
        ],
        "true_text": list(drift.true_text),
        "held_text": list(drift.held_text),
        "first_different": drift.first,
        "different": drift.different,
        "repetition": {"true": true, "held": held},
    }
