"""Retention: which states stay published; all, or those that an interval and whoever comes next need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from stateat.sim.options import Options
from stateat.sim.rules.record import Lack, Rule, Standing, Value

Replays = Callable[[int, int, bool], tuple[int, ...]]
"""(prompt, block, drop) -> where somebody who sends this prompt again, or a longer one, starts."""


def unshifted(prompt: int, block: int, drop: bool) -> tuple[int, ...]:
    """The last boundary that leaves a token to compute, whatever a drafter gives up of it (vLLM 0.29, issue 53504)."""
    return (prompt - 1,)


def longer_only(prompt: int, block: int, drop: bool) -> tuple[int, ...]:
    """The position where a longer prompt starts once a drafter has given its block up (before vLLM PR 54713)."""
    return (max(prompt // block * block - block, 0),) if drop else (prompt - 1,)


def resend_and_longer(prompt: int, block: int, drop: bool) -> tuple[int, ...]:
    """The positions where a longer and the same prompt start: another block where it is a multiple (vLLM PR 54713)."""
    if not drop:
        return (prompt - 1,)
    resend, longer = (prompt - 1) // block * block, prompt // block * block
    return tuple(sorted({max(resend - block, 0), max(longer - block, 0)}))


def with_and_without_drop(prompt: int, block: int, drop: bool) -> tuple[int, ...]:
    """The positions where the same prompt starts with the drafter, and without it (PRs 53479 and 52897)."""
    resend = (prompt - 1) // block * block
    return tuple(sorted({max(resend - block, 0), resend})) if drop else (resend,)


@dataclass(frozen=True, slots=True)
class Retention:
    """Choice of the states that stay published."""

    knows_interval: bool
    """True if ``prefix_cache_retention_interval`` has a meaning."""
    always: bool = False
    """True if only the boundaries that somebody needs are kept, whatever the interval is."""
    replays: Replays | None = None
    """Boundaries that somebody needs; None: as the rule ``boundaries`` says."""
    whole_blocks: bool = False
    """True if those are rounded down to scheduler blocks, though hits may be finer (to 0.28)."""

    def interval(self, asked: int | None) -> int | None:
        """Return the interval in force (tokens); None: all stay published."""
        return 0 if self.always else asked if self.knows_interval else None


def _knows_no_interval(options: Options) -> Iterator[Lack]:
    if options.prefix_cache_retention_interval is not None:
        yield Lack(("prefix_cache_retention_interval",), options.prefix_cache_retention_interval, "none")
    for name, interval in options.group_retention_intervals.items():
        yield Lack(("group_retention_intervals", name), interval, "none")


RETENTION: Rule[Retention] = Rule(
    "Which states, and rows of a sliding window, stay published?",
    {
        "dense": Value(
            Retention(knows_interval=False),
            "All of them, and there is no interval.",
            "the control",
            Standing.PROPOSAL,
            lacks=_knows_no_interval,
        ),
        "interval-in-whole-blocks": Value(
            Retention(knows_interval=True, whole_blocks=True),
            "As `interval`, but what a resend or a longer prompt needs is rounded down to scheduler blocks, where hits "
            "may be finer too. A server takes the interval from `VLLM_PREFIX_CACHE_RETENTION_INTERVAL`.",
            "vLLM to 0.28",
        ),
        "interval": Value(
            Retention(knows_interval=True),
            "With `prefix_cache_retention_interval` those at multiples of it, and what a resend of the prompt, a "
            "longer prompt, or whoever shares the prefix would hit, in `align` mode, `all` mode and a sliding window; "
            "full attention keeps all. Without it all of them.",
            "vLLM 0.29",
        ),
        "boundaries-only": Value(
            Retention(knows_interval=True, always=True),
            "As `interval` with an interval of 0, whatever the option says.",
            "vLLM's interval 0",
            Standing.PROPOSAL,
        ),
        "interval-unshifted": Value(
            Retention(knows_interval=True, replays=unshifted),
            "As `interval`; of resends and longer prompts the last boundary that leaves a token, whatever a drafter "
            "gives up (so does `boundaries: floor`).",
            "issue 53504",
            Standing.FAULT,
        ),
        "interval-longer-only": Value(
            Retention(knows_interval=True, replays=longer_only),
            "As `interval`; of resends and longer prompts where a longer prompt starts once a drafter has given its "
            "block up.",
            "before PR 54713",
            Standing.FAULT,
        ),
        "interval-resend-and-longer": Value(
            Retention(knows_interval=True, replays=resend_and_longer),
            "As `interval-longer-only`, and where the same prompt starts too, a block earlier if it is a multiple (so "
            "does `boundaries: leaves-tokens`).",
            "PR 54713",
            Standing.PROPOSAL,
        ),
        "interval-with-and-without-drop": Value(
            Retention(knows_interval=True, replays=with_and_without_drop),
            "As `interval`; of resends where the same prompt starts with the drafter and where without.",
            "PRs 53479 and 52897, drafts",
            Standing.PROPOSAL,
        ),
    },
)


def on_grid(end: int, block: int, interval: int | None) -> bool:
    """Return True if an interval keeps the state at a block's end, whoever may need it."""
    if interval is None:
        return True
    blocks = interval // block
    return interval > 0 and (blocks <= 1 or end // block % blocks == 0)


def floored(ends: Iterable[int], unit: int, block: int) -> frozenset[int]:
    """Return the block ends at or before some positions, in tokens."""
    return frozenset(end // unit * unit // block * block for end in ends)
