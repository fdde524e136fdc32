"""The length of a prefill chunk: the split rule, the encoder's cap and a drafter's look-ahead, in a release's order."""

from __future__ import annotations

from stateat.sim.cache.interface import Cache
from stateat.sim.engine.encoder import Encoder
from stateat.sim.engine.request import Request
from stateat.sim.errors import PolicyError
from stateat.sim.releases.policy import Policy
from stateat.sim.rules.split import AlignedSplit, Chunk, Cut, partial_tail


class Sizing:
    """Cut what a request is offered to a chunk."""

    def __init__(self, policy: Policy, cache: Cache, encoder: Encoder) -> None:
        options, rules = policy.options, policy.rules
        self.policy = policy
        self.rules = rules
        self.cache = cache
        self.hits = cache.split_facts
        self.encoder = encoder
        self.longest = policy.longest_chunk
        self.grid = policy.grid
        self.private = rules.wide_block.private(self.grid, self.longest)
        self.stops_at_retained = isinstance(rules.split, AlignedSplit) and rules.split.at_retained
        self.splits = options.enable_prefix_caching and any(g.aligned for g in options.groups)
        fine = rules.partial_hits_when.on(options) and options.enable_prefix_caching
        self.hash_unit = options.hash_unit if fine else 0
        self.tail_unit = options.hash_unit if rules.partial_hits_when.stops(options) else 0
        self.lookahead = options.speculative.prefill_lookahead

    def cut(self, request: Request, start: int, count: int, stop: str) -> tuple[int, str]:
        """Return the tokens of a chunk of ``count`` at most, and the stop that ended it.

        ``stop``: what limited the offer; '': nothing did.
        """
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
        """Return the stop of a chunk that somebody else's split cut to ``end``: this split's, if it ends there too.

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
        """Cut a chunk off before an item that cannot be encoded in this step."""
        capped = self.encoder.cap(request, start, count)
        return (capped, "encoder") if capped < count else (count, stop)

    def _chunk(self, request: Request, start: int, count: int, end: int) -> Chunk:
        """Return what the split is asked."""
        cache, hits, boundaries = self.cache, self.hits, self.rules.boundaries
        exempt = cache.exempts(start, start + count, end, self.grid)
        last = 0 if exempt else boundaries.reusable(request.num_tokens, self.grid, hits.drop, hits.ahead_tokens)
        tail = 0
        if self.tail_unit and not (exempt and not self.rules.checkpoint.keeps_tail):
            tail = boundaries.tail(request.num_prompt, self.tail_unit, hits.drop, hits.ahead_tokens)
        return Chunk(
            start=start,
            offered=count,
            prefill_end=end,
            num_prompt=request.num_prompt,
            num_tokens=request.num_tokens,
            block=self.grid,
            hash_unit=self.hash_unit,
            cap=self.longest,
            drop=hits.drop,
            lookahead=hits.ahead_tokens,
            junction=request.junction,
            last=last,
            tail=tail,
            exempt=exempt,
            exact_junction=hits.exact_junctions and request.junction <= request.num_prompt,
            private=self.private,
            snapshots=request.snapshots,
            exact_snapshots=hits.exact_snapshots,
            retained=cache.retained(request, start, start + count) if self.stops_at_retained else (),
        )

    def _ask(self, request: Request, chunk: Chunk) -> Cut:
        try:
            answer = self.rules.split(chunk)
        except PolicyError as error:
            raise PolicyError(f"{error} (request {request.id}, {chunk})") from error
        cut = answer if isinstance(answer, Cut) else Cut(answer, "split")
        if not isinstance(cut.tokens, int) or not 0 <= cut.tokens <= chunk.offered:
            rule = self.policy.values["split"]
            raise PolicyError(
                f"rule split={rule} gave {cut.tokens!r} tokens to request {request.id}, which was offered "
                f"{chunk.offered} at {chunk.start}: allowed are the integers 0 to {chunk.offered}"
            )
        return Cut(cut.tokens, "") if cut == (chunk.offered, "split") else cut
