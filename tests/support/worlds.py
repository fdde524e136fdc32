"""Random small worlds: any geometry, drafter, budgets, pool and arrivals that a scenario may say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from hypothesis import strategies as st

from stateat.sim.events import Group, Observer
from stateat.sim.options import Options, Speculative
from stateat.sim.workload import Arrival

SOUND = {"restore_column": "state-block", "undrafted_rows": "accepted-state", "worker": "v2"}
"""The worker that loses nothing. Laws of what a scheduler decides are asked with it, whichever the release's own is."""


@dataclass(frozen=True)
class World:
    """A configuration, its requests and step budgets."""

    options: Options
    arrivals: tuple[Arrival, ...]
    budgets: tuple[int, ...]

    def under(self, preset: str, **rules: str) -> World:
        """The same world under another preset or rules, with the sound worker unless they name one."""
        return replace(self, options=replace(self.options, preset=preset, rules={**SOUND, **rules}))


@st.composite
def worlds(
    draw: st.DrawFn,
    preset: str = "vllm-0.27.0",
    look_ahead: bool | None = None,
    tight: bool = True,
    drafts_fit: bool = False,
    widest: int = 64,
    varying: bool = False,
) -> World:
    """Recurrent blocks of 1 to ``widest`` tokens, 0 to 4 drafts, up to eight requests with shared prefixes.

    ``look_ahead``: only look-ahead drafters (True) or none (False); ``tight``: pools in which requests are preempted;
    ``drafts_fit``: fewer drafts than a block has tokens; ``varying``: proposals of fewer than K drafts, or none.
    """
    block = draw(st.integers(2 if (look_ahead or varying) and drafts_fit else 1, widest))
    attention = draw(st.sampled_from([d for d in range(1, block + 1) if block % d == 0] + [2 * block, 3]))
    unit = draw(st.sampled_from([None, 1, gcd(block, attention)]))
    drafts = draw(st.integers(1 if look_ahead or varying else 0, min(4, block - 1) if drafts_fit else 4))
    method = "mtp" if look_ahead or (look_ahead is None and draw(st.booleans())) else "ngram"
    cap = draw(st.integers(8, 6 * block + 16))
    num_seqs = draw(st.integers(1, 6))
    cycle = tuple(draw(st.lists(st.integers(0, drafts), min_size=1, max_size=4)))
    arrivals = tuple(draw(_arrivals(block, drafts)))
    longest = max(a.num_prompt_tokens + a.max_tokens for a in arrivals)
    groups = [Group("attention", "full-attention", attention, draw(st.booleans())), Group("gdn", "recurrent", block)]
    if draw(st.integers(0, 4)) == 0:
        groups.append(Group("gdn2", "recurrent", block))
    # What one request can need at most: all its tokens, 2 + K states of each recurrent group, a copy, and the null
    # block.
    least = (longest + drafts) // attention + (len(groups) - 1) * (longest // block + drafts + 4) + 4
    num_blocks = draw(st.integers(least, 3 * least)) if tight else 4 * least * len(arrivals)
    options = Options(
        groups=tuple(groups),
        preset=preset,
        rules=SOUND,
        num_blocks=num_blocks,
        max_num_batched_tokens=cap,
        max_num_seqs=num_seqs,
        max_model_len=draw(st.sampled_from([longest, longest + 7, 4096])) + drafts + 1,
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 0, cap // 2])),
        partial_hits=draw(st.booleans()),
        prefix_match_unit=unit,
        watermark=draw(st.sampled_from([0.0, 0.0, 0.05])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        speculative=Speculative(
            method,
            drafts,
            cycle,
            num_speculative_tokens_per_batch_size=draw(ranges(drafts)) if varying else None,
            proposed_drafts=draw(sizes(drafts)) if varying else None,
        ),
        clock=draw(st.sampled_from(["steps", "us"])),
    )
    budgets = tuple(draw(st.lists(st.integers(0, cap), max_size=8)))
    return World(options, arrivals, budgets)


def sizes(drafts: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Drafts of proposals: a cycle in which some have K, and some none."""
    return st.lists(st.sampled_from([0, drafts, *range(drafts)]), min_size=1, max_size=4).map(tuple)


@st.composite
def ranges(draw: st.DrawFn, drafts: int) -> tuple[tuple[int, int, int], ...] | None:
    """Drafts by the requests of a step, with gaps; always K mostly."""
    if draw(st.integers(0, 3)):
        return None
    found, first = [], 1
    for size, gap in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=4)):
        found.append((first, first + size, draw(st.integers(0, drafts))))
        first += size + 1 + gap
    return tuple(found)


@st.composite
def _arrivals(draw: st.DrawFn, block: int, drafts: int) -> list[Arrival]:
    length = st.one_of(st.integers(1, 5 * block + 3), st.integers(1, 5).map(lambda n: n * block))
    arrivals = []
    for i in range(draw(st.integers(1, 8))):
        # Few seeds: prompts begin alike, and may go on differently.
        segments = [(draw(st.integers(1, 2)), draw(length))]
        if draw(st.booleans()):
            segments.append((draw(st.integers(3, 5)), draw(st.integers(1, 2 * block))))
        arrivals.append(
            Arrival(
                f"r{i}",
                i,
                draw(st.integers(0, 12)),
                tuple(segments),
                max_tokens=draw(st.sampled_from([1, 2, 7, 3 * block])),
                after=f"r{draw(st.integers(0, i - 1))}" if i and draw(st.integers(0, 4)) == 0 else None,
            )
        )
    return arrivals


class Padded(Observer):
    """Whether placeholder drafts did what the releases let them do (``scenarios/field/``): were clipped by a boundary
    (the recordings' ``row_mismatch``), or made a decode row of a request that has no state to read yet."""

    def __init__(self) -> None:
        self.clipped = False
        self.stateless = False

    @property
    def found(self) -> bool:
        return self.clipped or self.stateless

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        if drafts and not steps:
            self.clipped = self.clipped or drafts > end - start - 1
            self.stateless = self.stateless or start == 0
