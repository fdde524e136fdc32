"""Evidence that every check goes by: geometry, requests, slots; and where it writes down what it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from stateat.oracle.lineage import Draft, Lineage
from stateat.oracle.records import AuditCounts, Now, Seen
from stateat.oracle.slots import Content, Slots
from stateat.oracle.states import StateFamily
from stateat.oracle.verdict import Verdict, judge
from stateat.sim.events import Group, Severity, decided_ahead, tokens_behind
from stateat.sim.tokens import Segments, Spans, Tokens


class Evidence:
    """One run, as far as it has been heard."""

    def __init__(self, family: StateFamily) -> None:
        self.family = family
        self.now = Now()
        self.requests: dict[str, Seen] = {}
        self.slots = Slots()
        self.lineage = Lineage()
        self.counts = AuditCounts()
        self.groups: tuple[Group, ...] = ()
        self.recurrent: list[int] = []
        self.num_drafts = 0
        self.hash_unit = 0
        self.cap = 0
        """Tokens of the longest chunk."""
        self.lookups = True
        """True if prefix caching is on."""
        self.in_order = True
        """True if a step has run before the next one is decided."""
        self._behind = 0
        """Tokens that steps may compute behind a request's last one."""
        self._past: dict[str, Callable[[], Tokens]] = {}
        """The tokens of requests, also of those that ended: generated again if need be."""

    def configure(self, groups: tuple[Group, ...], num_drafts: int, options: Mapping[str, Any]) -> None:
        """The geometry, and the options in force."""
        self.groups, self.num_drafts = groups, num_drafts
        self.recurrent = [i for i, g in enumerate(groups) if g.recurrent]
        self.hash_unit = options["hash_unit"]
        threshold, cap = options["long_prefill_token_threshold"], options["max_num_batched_tokens"]
        # What a drafter takes off the budget is not among the options of a log that somebody else wrote.
        self.cap = options.get("longest_chunk", min(cap, threshold) if threshold > 0 else cap)
        self.lookups = options["enable_prefix_caching"]
        self.in_order = decided_ahead(options) == 0
        self._behind = tokens_behind(options, num_drafts)
        self.now.launched = 0 if self.in_order else -1

    def arrive(
        self,
        request: str,
        index: int,
        segments: Segments,
        tokens: tuple[int, ...] | None,
        max_tokens: int,
        encoder: Spans = (),
    ) -> None:
        """A request, with its tokens or what they follow from."""
        if tokens is not None:
            stream = Tokens.explicit(tokens, encoder)
            self._past[request] = lambda: stream
        else:
            again = partial(Tokens.generate, segments, index, max_tokens + self._behind, encoder)
            stream, self._past[request] = again(), again
        self.requests[request] = Seen(stream, stream.num_prompt)

    def tokens(self, request: str) -> Tokens | None:
        """The tokens of a request, also if it has ended."""
        seen = self.requests.get(request)
        if seen is not None:
            return seen.tokens
        again = self._past.get(request)
        return None if again is None else again()

    def state_at(self, request: str, offset: int) -> Any:
        """The true state behind ``offset`` tokens of a request, which may have ended."""
        tokens = self.tokens(request)
        if tokens is None:
            raise KeyError(request)
        return self.family.state_at(tokens, offset)

    # What slots hold.

    def holds(self, slot: int, truth: Any) -> bool:
        """True if a slot holds this state."""
        content = self.slots.get(slot)
        return content is not None and content.state is not None and self.family.equal(content.state, truth)

    def heard(self, slot: int) -> bool:
        """True if all that was written to a slot has been told."""
        content = self.slots.get(slot)
        return content is None or content.heard

    def verdict(self, content: Content | None, request: str) -> Verdict:
        """Judge what a slot really holds, if not the state of this request that it should."""
        return judge(self.family, content, request, self.tokens)

    def root(self, content: Content) -> int | None:
        """The root of a wrong content: None if the content itself is one."""
        if content.ancestor is not None and content.ancestor >= 0:
            return content.ancestor
        return self.lineage.root_of(content.finding)

    # What is found.

    def poison(
        self,
        invariant: str,
        request: str,
        group: int,
        column: int,
        slot: int,
        claimed: int,
        held: int | None,
        verdict: str,
        message: str,
        content: Content | None,
        root: int | None = None,
        claimed_by: str = "",
    ) -> int:
        """A finding about what a slot holds."""
        write, name, now = None if content is None else content.write, self.groups[group].name, self.now
        return self.lineage.add(
            Draft(
                invariant, Severity.POISON, now.index, now.time_us, request, name, column, slot, claimed, held, verdict,
                message, root, write, claimed_by,
            )
        )  # fmt: skip

    def shape(
        self,
        invariant: str,
        severity: Severity,
        request: str,
        claimed: int | None,
        held: int | None,
        message: str,
        group: str = "",
        column: int = -1,
    ) -> None:
        """A finding about a chunk, not about a slot."""
        now = self.now
        self.lineage.add(
            Draft(invariant, severity, now.index, now.time_us, request, group, column, -1, claimed, held, "", message)
        )
