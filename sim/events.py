"""The language in which an engine tells an oracle what it decided, and what an oracle finds.

An engine calls the methods of an :class:`Observer`; nothing is built when nobody listens. What a log holds is an
:class:`Event`, whose fields are the arguments of that method (:data:`EVENTS`); it speaks itself to an observer, so
that a recorded log and a live run look the same to whoever listens. ``docs/events.md`` shows each with an example.

Offsets and positions are counts of tokens, slots are block ids of the pool, columns are indices into a
request's block table of a group, groups are indices into ``run.groups``. Times are integers: microseconds,
or step numbers under ``clock: steps``.

Order within a step: decisions with their claims; copies ``cow``, then ``pre``; what attention was given;
advances; ``accept`` and ``output``; copies ``post``; ``store``; ``finish``; ``commit``. A claim is due at the end of
its step. ``steps`` is 0 for what happens in the current step; ``steps`` = n > 0 tells a run of decode steps that
was fast-forwarded: the n steps before the current one, in which nobody claimed or read what it wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from inspect import Parameter, signature
from typing import Any, Self

from stateat.sim.tokens import Segments, Spans

NULL = 0
"""Slot of the null block, which stands in a column without a slot: handed to nobody, and holds a zero state."""
SCHEMA = "stateat-log/2"
SCHEMAS = ("stateat-log/1", SCHEMA)
"""Versions of the log that are read."""
SINCE = {"store": SCHEMA, "reset": SCHEMA}
"""Events that older logs cannot hold, with the first version that can."""


class _Word(StrEnum):
    """A word of the language: logs and JSON have its value, docs its ``meaning``."""

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        word = str.__new__(cls, value)
        word._value_, word.meaning = value, meaning
        return word


class Severity(_Word):
    """Severity of a finding, the worst first: the order in which findings are shown."""

    POISON = "poison", "a wrong state is cached or used"
    NUMERICS = "numerics", "a state holds what is no number"
    HAZARD = "hazard", "an order that leaves a wrong state unless it is lucky"
    HONESTY = "honesty", "what was reported is not what was done"
    LIVENESS = "liveness", "nothing moves any more"
    SHAPE = "shape", "a chunk, a count or a grid as it should not be; it need not do harm"
    LOSS = "loss", "more is kept, or less is served, than could be"

    @property
    def grave(self) -> bool:
        """True if one such finding fails a run that expects nothing."""
        return self in (Severity.POISON, Severity.NUMERICS)


class Invariant(_Word):
    """Law that an oracle checks (``docs/invariants.md``); a finding names the one that is broken."""

    I1 = "I1", "content"
    I2 = "I2", "chunk shape"
    I3 = "I3", "one grid"
    I4 = "I4", "reachability"
    I5 = "I5", "agreement"
    I6 = "I6", "resume point"
    I7 = "I7", "commit"
    I8 = "I8", "ownership"
    I9 = "I9", "immutability"
    I10 = "I10", "seed"
    I11 = "I11", "acceptance"
    I12 = "I12", "boundary copy"
    I13 = "I13", "lock-step"
    I14 = "I14", "liveness"
    I16 = "I16", "retention"
    I17 = "I17", "honesty"
    I18 = "I18", "numerics"


class Holding(_Word):
    """Content of a slot that does not hold what it should: a finding's verdict."""

    WRONG_OFFSET = "wrong offset", "the state of this prefix at another offset"
    ZERO = "zero", "the state before the first token"
    NEVER_WRITTEN = "never written", "nothing: handed out, and no state was left in it"
    FOREIGN = "foreign", "a state of another request's prefix"
    TAINTED = "tainted", "what was computed from a wrong state"
    UNKNOWN = "unknown", "a state of no known prefix"
    TORN = "torn", "components of different offsets"
    NOT_FINITE = "not finite", "NaN or infinity"
    OUT_OF_RANGE = "out of range", "whatever lies past the columns of its row"


class Refusal(_Word):
    """Reason why a waiting request is not admitted."""

    SAME_STEP = "same_step", "its hit is published in this very step"
    BLOCKS = "blocks", "fewer blocks are free than it takes"
    WATERMARK = "watermark", "those that are free are kept in reserve"
    FULL_SEQUENCE = "full_sequence", "all of it would not fit"
    NEVER_BLOCKS = "never_blocks", "it takes more blocks than the pool has: taken away"
    NEVER_ENCODER = "never_encoder", "an item is more than the encoder can take: taken away"

    @property
    def final(self) -> bool:
        """True if the request is taken away: an ``abort`` follows."""
        return self in (Refusal.NEVER_BLOCKS, Refusal.NEVER_ENCODER)


class Withdrawal(_Word):
    """Reason why a claim ends: a slot is no longer published under a hash."""

    EVICT = "evict", "the slot is handed out again"
    REKEY = "rekey", "it is to hold, or to stand for, another state"
    MOVE = "move", "a copy takes its place"
    TRANSIENT = "transient", "what it holds is kept under no hash"
    EXPIRE = "expire", "nobody used it for as long as it may live"
    RESET = "reset", "the prefix cache is emptied"
    ABORT = "abort", "the step that was to make it true does not run"
    ASKED = "asked", "the scenario evicts it by name"


class CopyKind(_Word):
    """Purpose of a copy of a state between slots."""

    COW = "cow", "a shared page before it is written"
    PRE = "pre", "into the column where the chunk ends"
    POST = "post", "a boundary that verification passed"


class Stop(_Word):
    """Rule that ended a chunk; a split of a user's own may name others."""

    BUDGET = "budget", "what was left of the step's token budget"
    BLOCK_BOUNDARY = "block-boundary", "rounded down to the grid"
    MID_BLOCK = "mid-block", "the end of the block that it started inside"
    EVERY_BOUNDARY = "every-boundary", "the next block boundary"
    RETAINED = "retained", "the next boundary that retention keeps"
    LAST_CACHE_POSITION = "last-cache-position", "the last end that the cache could use again"
    PARTIAL_TAIL = "partial-tail", "the prompt's end in hash units"
    REPLAY_BOUNDARY = "replay-boundary", "where the same prompt, sent again, can start at most"
    SNAPSHOT_POINT = "snapshot-point", "where the client asks for a state"
    JUNCTION = "junction", "where another prompt with this prefix goes on differently"
    CHECKPOINT = "checkpoint", "a chunk that exports a checkpoint on its way"
    LOOK_AHEAD = "look-ahead", "what a look-ahead drafter holds back"
    ENCODER = "encoder", "an image or the like behind it could not be encoded yet"
    THRESHOLD = "threshold", "the long-prefill threshold"
    MAX_MODEL_LEN = "max-model-len", "the model's length"
    PROMPT_END = "prompt-end", "the end of the prompt"
    DECODE = "decode", "a decode step"
    SPLIT = "split", "a rule of yours"


@dataclass(frozen=True, slots=True)
class Group:
    """KV cache group: layers that share block tables."""

    name: str
    kind: str
    """``full-attention`` or ``recurrent``."""
    block_size: int
    """Tokens in a block."""
    eagle: bool = False
    """True if a look-ahead drafter's drop applies to the group (vLLM: an EAGLE group)."""
    mamba_cache_mode: str = "align"
    """``align``: a chunk leaves the state at its end alone; ``all``: those at every boundary on its way too."""
    sliding_window: int = 0
    """Tokens that a layer attends to; 0: all tokens before. Full attention only."""
    prefix_cacheable: bool = True
    """True if the group takes part in prefix caching; otherwise its blocks are a request's own scratch."""

    @property
    def aligned(self) -> bool:
        """True if the group is recurrent and in align mode."""
        return self.recurrent and self.mamba_cache_mode == "align"

    @property
    def recurrent(self) -> bool:
        """True if a block of the group holds a recurrent state, not keys and values."""
        return self.kind == "recurrent"


def decided_ahead(options: Mapping[str, Any]) -> int:
    """Return how many steps are decided before one runs, by the options of the ``run`` event: 0, or those of a
    pipeline less one. An asynchronous step is launched as soon as it is decided."""
    return 0 if options.get("async_scheduling") is True else int(options.get("max_concurrent_batches", 1)) - 1


def in_flight(options: Mapping[str, Any]) -> int:
    """Return how many steps are decided before the outcome of one is known, by the options of the ``run`` event."""
    depth = int(options.get("max_concurrent_batches", 1))
    return (max(depth, 2) if options.get("async_scheduling") is True else depth) - 1


def tokens_behind(options: Mapping[str, Any], num_drafts: int) -> int:
    """Return how many tokens steps may compute behind a request's last one: drafts, and those of steps in flight."""
    return (num_drafts + 1) * (1 + in_flight(options))


class Observer:
    """Listener to an engine: one method an event, each of which does nothing until it is overridden.

    ``request`` is a request's id, ``group`` an index into ``run.groups``, ``slot`` a block id of the pool, ``column``
    an index into the request's block table of the group. ``offset`` counts the tokens that a state has absorbed,
    ``start`` and ``end`` are positions in the request's tokens.
    """

    __slots__ = ()

    def run(
        self, schema: str, engine: str, groups: tuple[Group, ...], num_speculative_tokens: int, options: dict[str, Any]
    ) -> None:
        """First event: a run begins, with its geometry and the options in force.

        ``schema``: the version of the language; ``engine``: who decides; ``num_speculative_tokens``: K drafts a step;
        ``options``: as configured, and resolved.
        """

    def arrive(
        self,
        request: str,
        index: int,
        time_us: int,
        segments: Segments,
        tokens: tuple[int, ...] | None,
        max_tokens: int,
        encoder: Spans = (),
    ) -> None:
        """A request arrives at ``time_us``, the ``index``-th of the workload, and may produce ``max_tokens`` tokens.

        Its prompt is given as ``segments`` (:mod:`stateat.sim.tokens`) or, by a real deployment, as ``tokens``,
        explicit ids. ``encoder``: (start, length) of encoded items (images) in it, which are no text.
        """

    def step(self, index: int, time_us: int, budget: int) -> None:
        """Step ``index`` begins at ``time_us`` and may compute ``budget`` tokens; all up to the next belongs to it."""

    def launch(self, index: int) -> None:
        """Launch of step ``index``, with several steps in flight: what follows up to ``commit`` was decided in it."""

    def defer(self, request: str, offered: int, why: str) -> None:
        """Deferral: the split gave a request none of the ``offered`` tokens; ``why``: the stop that took them."""

    def refuse(self, request: str, reason: str) -> None:
        """Refusal to admit a waiting request, for a :class:`Refusal`. After a final one an ``abort`` follows."""

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        """Admission, from waiting to running: ``hit`` tokens from the cache, ``external`` tokens from a connector.

        ``resumed``: it ran before, and was preempted.
        """

    def allocate(self, request: str, group: int, column: int, slots: Sequence[int]) -> None:
        """Slots handed out to a request, the first for ``column`` and the others for those that follow.

        Attention's are told all of a step at once: request '', column -1.
        """

    def release(self, request: str, group: int, slots: Sequence[int]) -> None:
        """Slots freed: the request no longer uses them."""

    def restore(self, request: str, group: int, slot: int, column: int, offset: int, group_hits: Sequence[int]) -> None:
        """Restore, after a hit: the request starts at ``offset`` from the state in ``slot``, cached for ``column``.

        ``group_hits``: tokens that each group had of this prefix.
        """

    def store(self, group: int, slot: int, key: str, offset: int) -> None:
        """Store: a tier below the pool takes what a slot holds at this step's end, as state@offset, under a key."""

    def load(self, request: str, group: int, key: str, slot: int, offset: int) -> None:
        """Load: what was stored under a key comes into a slot, and the request goes on from it at ``offset``.

        Under the request's own id a connector brings its state@offset. Of any other key nothing is known.
        """

    def place(self, request: str, group: int, slot: int, offset: int) -> None:
        """Placement from outside: state@offset of this request's tokens is put into a slot that nobody uses.

        The request has come, and may have ended. A ``claim`` follows.
        """

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        """Claim, by publishing a slot under ``hash``: it holds state@offset of this request's prefix."""

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        """Withdrawal of the claim of a slot under ``hash``; ``why``: a :class:`Withdrawal`."""

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        """Chunk scheduled: tokens [start, end) of a request, the last ``drafts`` of them drafts.

        ``stop``: the rule that ended it. With ``steps`` > 0 a run of so many decode steps: [start of the first, end of
        the last), ``drafts`` of the last, and in ``accepted`` the drafts that each accepted.
        """

    def seed(self, request: str, group: int, column: int, width: int, slot: int) -> None:
        """Start column: where the worker looks for a restored request's state, in its row of ``width`` columns.

        ``slot``: what stands there; -1 past the end of all rows.
        """

    def copy(self, request: str, group: int, kind: str, src: int, dst: int, conv_src: int, shift: int) -> None:
        """Copy of a state from slot ``src`` (-1: none) to slot ``dst``, for a :class:`CopyKind`.

        ``conv_src``: the slot of which the convolution's window is taken (-1: none); ``shift``: inputs by which that
        window is moved on, negative in place.
        """

    def advance(
        self,
        request: str,
        group: int,
        start: int,
        end: int,
        drafts: Sequence[int],
        read: int,
        writes: Sequence[tuple[int, int]],
        steps: int,
    ) -> None:
        """Kernel run over [start, end), from the state in slot ``read`` (-1: a zero state).

        It leaves state@offset in slot for each (offset, slot) of ``writes``. ``drafts``: ids of the last tokens, from
        position ``end - len(drafts)`` on. ``steps``: as in :meth:`chunk`.
        """

    def accept(self, request: str, drafted: int, accepted: int) -> None:
        """Verification: ``accepted`` of ``drafted`` drafts are kept."""

    def output(self, request: str, count: int, tokens: tuple[int, ...] | None) -> None:
        """Output of ``count`` sampled tokens; ``tokens``: their ids, unless they follow from the request's index."""

    def preempt(self, request: str) -> None:
        """Preemption: the request goes back to the head of the waiting queue, with nothing computed."""

    def reset(self, done: bool) -> None:
        """Reset of the pool's prefix cache was asked; not ``done``: blocks were in use, and nothing happened."""

    def finish(self, request: str) -> None:
        """End of a request that has all its tokens."""

    def abort(self, request: str) -> None:
        """End of a request that was taken away."""

    def commit(self, time_us: int) -> None:
        """Commit of a step: at ``time_us`` its states are written and its outputs are there."""

    def end(self, steps: int, time_us: int, livelock: bool) -> None:
        """Last event: the run had ``steps`` steps and ended at ``time_us``; ``livelock``: because nothing moved."""


EVENTS: dict[str, tuple[Parameter, ...]] = {
    name: tuple(signature(method).parameters.values())[1:]
    for name, method in vars(Observer).items()
    if not name.startswith("_")
}
"""Events by name, each with its fields: the arguments of its method, their types unresolved."""


class Fanout(Observer):
    """Observer that passes each event on to several others, in order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        for name in EVENTS:
            methods = [
                method
                for observer in observers
                if getattr(method := getattr(observer, name), "__func__", None) is not getattr(Observer, name)
            ]
            setattr(self, name, methods[0] if len(methods) == 1 else _each(methods))


def _each(methods: Sequence[Any]) -> Any:
    if not methods:
        return lambda *_: None

    def tell(*args: Any) -> None:
        for method in methods:
            method(*args)

    return tell


@dataclass(frozen=True, slots=True)
class Event:
    """Event of a log: a call of an observer's method, by its name, with the arguments in their order."""

    name: str
    values: tuple[Any, ...]

    def tell(self, observer: Observer) -> None:
        """Speak the event to an observer."""
        getattr(observer, self.name)(*self.values)


@dataclass(frozen=True, slots=True)
class Write:
    """Write that left a content in a slot: of which step, for which request, over [start, end)."""

    step: int
    request: str
    start: int
    end: int
    kind: str
    """``chunk``, ``cow``, ``pre``, ``post``, ``load``, ``place``, or ``null`` (the null block, which nobody wrote)."""


GRAVE = tuple(severity for severity in Severity if severity.grave)
"""Severities that fail a run which expects nothing."""


@dataclass(frozen=True, slots=True, repr=False)
class Finding:
    """Contradiction between what was claimed and what is true.

    ``claimed`` and ``held`` are offsets in tokens; ``message`` says it in words.
    """

    id: int
    invariant: str
    severity: str
    """A :class:`Severity`."""
    step: int
    time_us: int
    request: str
    group: str
    column: int
    slot: int
    claimed: int | None
    held: int | None
    """Offset that the slot really holds: tokens absorbed by its content; None where there is none."""
    verdict: str
    """A :class:`Holding`; '' where no slot is concerned."""
    root: int | None
    """Number of the finding that this one follows from; None for a root."""
    readers: tuple[str, ...]
    """Requests that restored from the slot while it was wrong."""
    message: str
    write: Write | None = None
    claimed_by: str = ""
    """Request that claimed it, and in which step."""
    rel_error: float | None = None
    """|held - true| / |true| in the arithmetic of the state family; None for ``digest``, and where nothing is held."""

    def __repr__(self) -> str:
        # A message may name a very long request: its beginning will do.
        return f"<Finding #{self.id} {self.invariant} {self.severity} in step {self.step}: {self.message[:200]!r}>"
