"""How long a prefill chunk gets: the split rule, the encoder's cap and a drafter's look-ahead, in a release's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stateat.sim.cache.manager import KVCache
from stateat.sim.engine.encoder import Encoder
from stateat.sim.errors import PolicyError
from stateat.sim.options import Options
from stateat.sim.releases.presets import table
from stateat.sim.rules.split import AlignedSplit, Chunk, Cut, partial_tail

if TYPE_CHECKING:
    from stateat.sim.engine.request import Request
    from stateat.sim.releases.rules import Rules


def longest_chunk(options: Options, rules: Rules) -> int:
    """The most tokens that a prefill chunk may ever take."""
    cap, threshold = options.max_num_batched_tokens - rules.draft_slots(options), options.long_prefill_token_threshold
    return min(cap, threshold) if threshold > 0 else cap


class Sizing:
    """Cuts what was offered to a chunk."""

    def __init__(self, options: Options, rules: Rules, cache: KVCache, encoder: Encoder) -> None:
        self.options = options
        self.rules = rules
        self.cache = cache
        self.encoder = encoder
        self.longest = longest_chunk(options, rules)
        self.grid = rules.grid(options)
        if self.grid < 1:
            rule = table(options.preset, options.rules)["grid"]
            raise PolicyError(f"rule grid={rule} gave {self.grid}, allowed is a block size of 1 or more")
        self.private = rules.wide_block.private(self.grid, self.longest)
        self.stops_at_retained = isinstance(rules.split, AlignedSplit) and rules.split.at_retained
        self.splits = options.enable_prefix_caching and any(g.aligned for g in options.groups)
        fine = rules.partial_hits_when.on(options) and options.enable_prefix_caching
        self.hash_unit = options.hash_unit if fine else 0
        self.tail_unit = options.hash_unit if rules.partial_hits_when.stops(options) else 0
        self.lookahead = options.speculative.prefill_lookahead

    def cut(self, request: Request, start: int, count: int, stop: str) -> tuple[int, str]:
        """The tokens of a chunk of ``count`` at most, and the stop that ended it; ``stop``: what limited the offer."""
        end = request.prefill_end
        if start >= end:
            return count, "decode"
        capped_first = self.rules.encoder_cap.before_split
        if request.items and capped_first:
            count, stop = self._encodable(request, start, count, stop)
        if self.splits and count > 0:
            cut = self._ask(request, self._chunk(request, start, count, end))
            stop = cut.stop or stop
            count = cut.tokens
        if request.items and count > 0 and not capped_first:
            count, stop = self._encodable(request, start, count, stop)
        remaining = request.num_tokens - start - count
        if 0 < remaining < self.lookahead:
            # Its modules read that far: a chunk ends before, or at the end.
            count, stop = max(count - (self.lookahead - remaining), 0), "look-ahead"
        return count, stop or "prompt-end"

    def name(self, request: Request, start: int, offered: int, end: int) -> str:
        """The stop that ended a chunk which somebody else's split cut to ``end``: this split's, if it ends there too.

        Else a position at which any split may stop, or "split"; "" where it took all that it was offered.
        """
        chunk = self._chunk(request, start, offered, request.prefill_end)
        cut = self._ask(request, chunk)
        if start + cut.tokens == end:
            return cut.stop
        if end == start + offered:
            return ""
        return {partial_tail(chunk): "partial-tail", request.junction: "junction"}.get(end, "split")

    def _encodable(self, request: Request, start: int, count: int, stop: str) -> tuple[int, str]:
        """Stop before an item that cannot be encoded in this step."""
        capped = self.encoder.cap(request, start, count)
        return (capped, "encoder") if capped < count else (count, stop)

    def _chunk(self, request: Request, start: int, count: int, end: int) -> Chunk:
        """What the split is asked."""
        cache, boundaries = self.cache, self.rules.boundaries
        exempt = cache.exempts(start, start + count, end, self.grid)
        last = 0 if exempt else boundaries.reusable(request.num_tokens, self.grid, cache.drop, cache.ahead)
        tail = 0
        if self.tail_unit and not (exempt and not self.rules.checkpoint.keeps_tail):
            tail = boundaries.tail(request.num_prompt, self.tail_unit, cache.drop, cache.ahead)
        return Chunk(
            start,
            count,
            end,
            request.num_prompt,
            request.num_tokens,
            self.grid,
            self.hash_unit,
            self.longest,
            cache.drop,
            cache.ahead,
            request.junction,
            last,
            tail,
            exempt,
            cache.publishing.exact_junctions and request.junction <= request.num_prompt,
            self.private,
            request.snapshots,
            cache.publishing.exact_snapshots,
            cache.publishing.retained(request, start, start + count) if self.stops_at_retained else (),
        )

    def _ask(self, request: Request, chunk: Chunk) -> Cut:
        try:
            answer = self.rules.split(chunk)
        except PolicyError as error:
            raise PolicyError(f"{error} (request {request.id}, {chunk})") from error
        cut = answer if isinstance(answer, Cut) else Cut(answer, "split")
        if not isinstance(cut.tokens, int) or not 0 <= cut.tokens <= chunk.offered:
            rule = table(self.options.preset, self.options.rules)["split"]
            raise PolicyError(
                f"rule split={rule} gave {cut.tokens!r} tokens to request {request.id}, which was offered "
                f"{chunk.offered} at {chunk.start}: allowed are the integers 0 to {chunk.offered}"
            )
        return Cut(cut.tokens, "") if cut == (chunk.offered, "split") else cut
