"""The shortest prompt that a repeat hits, found by asking the engine itself: it runs twice at each length that matters.

A formula would have to know what every rule does to every other one (drops, tails, retention, checkpoints, hashes that
look ahead). What a repeat hits can change only near sums of few blocks, hash units and longest chunks, so few lengths
are run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stateat.sim.engine.scheduler import Scheduler
from stateat.sim.errors import StateatError
from stateat.sim.events import Observer
from stateat.sim.options import Options
from stateat.sim.releases.policy import Policy
from stateat.sim.releases.presets import table
from stateat.sim.releases.rules import plugins
from stateat.sim.run.clock import Simulation
from stateat.sim.workload import Arrival

MAX_TOKENS = 400_000
"""Prompts of all lengths that are tried together; a search that would take more stops there."""
BLOCKS = 3
"""A first hit takes at most so many blocks: two, where a drafter gives one up, and the one behind them."""


@dataclass(frozen=True, slots=True)
class Shortest:
    """Result of a search."""

    tokens: int | None
    """The shortest prompt; None: none was found."""
    tried: int
    """The longest prompt that was tried, tokens."""
    gaps: bool = False
    """Some longer prompt misses."""


class _Hits(Observer):
    """The last admission's hit."""

    def __init__(self) -> None:
        self.tokens = 0

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        self.tokens = hit


def shortest_repeat(options: Options) -> Shortest | None:
    """The shortest prompt (tokens) of which the first repeat is hit, nothing else being there.

    Under load it may be another one: a budget that others use up ends chunks elsewhere, and a third sender knows a
    junction. None where nobody can say: a user's rule is not run for this, nor is a prompt in many small chunks.
    """
    if not options.enable_prefix_caching or plugins(table(options.preset, options.rules)):
        return None
    if _longest_chunk(options) < options.scheduler_block_size:
        return None
    key = repr(options)
    if key not in _found:
        _found[key] = _search(replace(options, clock="steps"))
    return _found[key]


_found: dict[str, Shortest | None] = {}
"""Results by the text of the options: cases of a scenario mostly share theirs."""


def _search(options: Options) -> Shortest | None:
    spent = tried = 0
    try:
        for tokens in lengths(options):
            spent += tokens
            if spent > MAX_TOKENS:
                break
            if repeat_hits(options, tokens):
                return Shortest(tokens, tokens, _has_gaps(options, tokens))
            tried = tokens
    except StateatError:
        return None
    return Shortest(None, tried) if tried else None


def _has_gaps(options: Options, tokens: int) -> bool:
    block = options.scheduler_block_size
    return not all(repeat_hits(options, n) for n in (tokens + 1, (tokens // block + 1) * block))


def lengths(options: Options) -> list[int]:
    """Prompts (tokens, ascending) near which what a repeat hits can change; shorter ones can hit nothing."""
    groups = [g for g in options.groups if g.prefix_cacheable]
    policy = Policy.of(options)
    sizes = {options.hash_unit, options.scheduler_block_size, *(g.block_size for g in groups)}
    # Prompts are cut where a step's tokens end too, and at the last boundary before.
    budget = options.max_num_batched_tokens
    most = [budget, policy.step_tokens, options.long_prefill_token_threshold]
    cuts = {cut for cut in most if 0 < cut <= BLOCKS * max(sizes)}
    sizes |= cuts | {cut // size * size for cut in cuts for size in sizes if size <= cut}
    least = (options.hash_unit if policy.rules.partial_hits_when.on(options) else options.scheduler_block_size) + 1
    sums = {a * i + b * j for a in sizes for b in sizes for i in range(BLOCKS + 1) for j in range(BLOCKS)}
    beyond = range(options.speculative.prefill_lookahead + 2)
    return sorted({total + more for total in sums for more in beyond if total + more >= least})


def _longest_chunk(options: Options) -> int:
    """Tokens that one request can have of a step."""
    return min(options.max_num_batched_tokens, options.long_prefill_token_threshold or options.max_num_batched_tokens)


def repeat_hits(options: Options, tokens: int) -> bool:
    """True if a prompt of so many tokens, alone and sent again once it has ended, is hit."""
    drafts = options.speculative.num_speculative_tokens
    # More blocks than two such prompts can need change nothing, and take time.
    need = sum(2 * (tokens // g.block_size + drafts + 4) for g in options.groups)
    alone = replace(
        options,
        num_blocks=min(options.num_blocks, need),
        max_model_len=max(options.max_model_len, tokens + drafts + 2),
    )
    hits = _Hits()
    scheduler = Scheduler(Policy.of(alone), hits, 0, True)
    sent = Arrival("first", 0, 0, ((1, tokens),), 1)
    Simulation(scheduler, alone, [sent, replace(sent, id="again", index=1, after="first")], (), hits).run()
    return hits.tokens > 0
