"""Requests written out in the scenario file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field
from pydantic import Strict as StrictMark

from stateat.sim.schema import MAX_PROMPT_TOKENS, MAX_STEP_TOKENS, Complaint, Drafts, Length, Name, Strict, Time, choice
from stateat.sim.workload import Arrival

SegmentSeed = Annotated[int, Field(ge=-(2**31), lt=2**31)]
SegmentLength = Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)]
# Lax, for the tuple alone: YAML has lists only. Its numbers stay strict.
Segment = Annotated[tuple[SegmentSeed, SegmentLength], StrictMark(False)]

SpanStart = Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)]
Span = Annotated[tuple[SpanStart, Length], StrictMark(False)]


class Request(Strict):
    """One request."""

    id: Name
    """A name, unique in the workload; findings and expectations name the request by it."""
    arrive: Time = 0
    """Arrival: microseconds, or a step under `clock: steps`. With `after`: the delay from then."""
    prompt: Annotated[list[Segment], Field(min_length=1)]
    """Segments [seed, length] of its prompt, tokens. A seed is a text; a negative one, -1 - i, is the output of
    the workload's i-th request (from 0)."""
    max_tokens: Length = 1
    """Output tokens; a request always produces all of them, as far as `max_model_len` allows."""
    accepted_drafts: Annotated[list[Drafts], Field(min_length=1)] | None = None
    """Entry m mod len: drafts that are right in its m-th proposal. Default: the engine's."""
    proposed_drafts: Annotated[list[Drafts], Field(min_length=1)] | None = None
    """Entry m mod len: drafts that its m-th proposal has. Default: the engine's."""
    external: Annotated[int, Field(ge=0, le=MAX_STEP_TOKENS)] = 0
    """Leading prompt tokens, n, that a connector computed; the state lies in column (n - 1) // block."""
    encoder: Annotated[list[Span], Field(max_length=4096)] | None = None
    """Spans [start, length] of the prompt that an encoder computes as a whole (images, audio), in order, an
    embedding a token. The tokens there stand for the item: equal tokens and length are the same item, wherever it
    stands, and never the same as these tokens as text."""
    load_error: bool = False
    """States that a connector or the tier should bring at its first admission do not arrive (rule `load_failure`)."""
    abort: Time | None = None
    """Abort, when the request is taken away again: microseconds, or a step under `clock: steps`."""
    abort_late: bool = False
    """The abort comes while a step runs: once the step of its time is decided, before the outcome of the oldest step
    in flight is heard."""
    after: str | None = None
    """The id of the request whose end it waits for."""
    snapshots: list[Length] = Field(default_factory=list, max_length=1000)
    """Positions of the prompt, tokens, where the client asks for a state: ends of images, of tools, of a system
    prompt; nothing but the rules `split: snapshot-points` and `snapshots: kept` heeds them."""

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return sum(length for _, length in self.prompt)


def arrivals_of(requests: Sequence[Request]) -> list[Arrival]:
    """The requests as the engine takes them, in the order of the file."""
    return [
        Arrival(
            id=r.id,
            index=i,
            time=r.arrive,
            segments=tuple(r.prompt),
            max_tokens=r.max_tokens,
            accepted_drafts=None if r.accepted_drafts is None else tuple(r.accepted_drafts),
            proposed_drafts=None if r.proposed_drafts is None else tuple(r.proposed_drafts),
            external=r.external,
            load_error=r.load_error,
            abort=r.abort,
            abort_late=r.abort_late,
            encoder=tuple(r.encoder or ()),
            after=r.after,
            snapshots=tuple(r.snapshots),
        )
        for i, r in enumerate(requests)
    ]


def check(requests: Sequence[Request], max_model_len: int, num_drafts: int) -> Iterator[Complaint]:
    """Problems of the requests, given the engine's longest sequence and its drafts a proposal (K)."""
    if not requests:
        yield (), "found an empty list, allowed at least one request (the workload is empty)"
    yield from _ids(requests)
    yield from _afters(requests)
    for i, request in enumerate(requests):
        for place, text in _one(request, max_model_len, num_drafts):
            yield (i, *place), text
        yield from _outputs(i, request, requests)
    total = sum(r.num_prompt_tokens for r in requests)
    if total > MAX_PROMPT_TOKENS:
        yield (), f"found {total} prompt tokens in all, allowed at most {MAX_PROMPT_TOKENS}"


def _ids(requests: Sequence[Request]) -> Iterator[Complaint]:
    seen: dict[str, int] = {}
    for i, request in enumerate(requests):
        if request.id in seen:
            yield (i, "id"), f"found {request.id!r} again, allowed an id other than that of request {seen[request.id]}"
        seen.setdefault(request.id, i)


def _afters(requests: Sequence[Request]) -> Iterator[Complaint]:
    after = {r.id: r.after for r in requests}
    free: set[str] = set()
    for i, request in enumerate(requests):
        if request.after is not None and request.after not in after:
            yield (i, "after"), choice(request.after, [name for name in after if name != request.id])
        chain: dict[str, None] = {}
        name: str | None = request.id
        while name is not None and name in after and name not in free and name not in chain:
            chain[name] = None
            name = after[name]
        if name == request.id and name in chain:
            yield (i, "after"), f"found {request.after!r}, which waits for {request.id!r} itself, allowed no circle"
        if name not in chain:
            free.update(chain)


def _one(request: Request, max_model_len: int, num_drafts: int) -> Iterator[Complaint]:
    tokens = request.num_prompt_tokens
    if tokens < 1:
        yield ("prompt",), f"found an empty prompt of {request.id!r}, allowed at least one token"
    if tokens > max_model_len - 1:
        yield ("prompt",), too_long(request.id, tokens, max_model_len)
    if request.external >= max(tokens, 1):
        yield ("external",), f"found {request.external}, allowed less than the prompt's {tokens} tokens"
    before = 0
    for place, (start, length) in enumerate(request.encoder or ()):
        if start < before or start + length > tokens:
            yield (
                ("encoder", place),
                f"found [{start}, {length}], allowed a span from {before} on (behind the one before it) to the "
                f"prompt's end, {tokens}",
            )
        before = max(before, start + length)
    if request.abort is not None and request.after is None and request.abort < request.arrive:
        yield ("abort",), f"found {request.abort}, allowed no time before its arrival at {request.arrive}"
    if request.abort_late and request.abort is None:
        yield ("abort_late",), "found true without `abort`, allowed beside it alone"
    for place, point in enumerate(request.snapshots):
        if point > tokens:
            yield ("snapshots", place), f"found {point}, allowed 1 to the prompt's {tokens} tokens"
    for key in ("accepted_drafts", "proposed_drafts"):
        for place, drafts in enumerate(getattr(request, key) or ()):
            if drafts > num_drafts:
                yield (key, place), f"found {drafts}, allowed 0 to {num_drafts} (num_speculative_tokens)"


def _outputs(i: int, request: Request, requests: Sequence[Request]) -> Iterator[Complaint]:
    """Segments that repeat another request's output must find it long enough."""
    for place, (seed, length) in enumerate(request.prompt):
        if seed >= 0:
            continue
        index = -seed - 1
        if index >= len(requests):
            yield (
                (i, "prompt", place),
                f"found seed {seed}, the output of request {index} (from 0), allowed -1 to {-len(requests)}",
            )
        elif length > requests[index].max_tokens:
            available = requests[index].max_tokens
            yield (
                (i, "prompt", place),
                f"found {length} output tokens of {requests[index].id!r}, allowed at most its max_tokens, {available}",
            )


def too_long(request: str, tokens: int, max_model_len: int) -> str:
    """A prompt that leaves no room for an output token."""
    return f"found a prompt of {tokens} tokens in {request!r}, allowed at most {max_model_len - 1} (max_model_len - 1)"
