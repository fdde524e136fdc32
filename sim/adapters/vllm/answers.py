"""Answers of a worker: one shape for each request, and what its numbers must fit, before anything uses them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar

from pydantic import Discriminator, Field, StringConstraints, Tag, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from stateat.sim.engine.request import Request
from stateat.sim.errors import EngineError
from stateat.sim.options import Options

Whole = Annotated[int, Field(ge=0, lt=1 << 53)]
Token = Annotated[int, Field(ge=-1, lt=1 << 31)]
"""-1 holds the place of a draft that is not there yet."""
Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32,200}$")]
Version = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z.+_-]{0,100}$")]
Words = Annotated[str, StringConstraints(max_length=10_000)]
Table = list[list[Whole]]
"""Blocks of each group's columns."""

RowSaid = tuple[str, Whole, Whole, list[Token], Table | None, Table | None, Words, Whole, Whole]
"""id, start, end, drafts, the whole table or None, appended blocks or None, what stopped it, the offset it exports, the
tokens that its split was offered (0: it was not asked)"""

Event = Annotated[
    Annotated[tuple[Literal["defer"], str, Whole, Words], Tag("defer")]
    | Annotated[tuple[Literal["refuse"], str, Words], Tag("refuse")]
    | Annotated[tuple[Literal["reset"], bool], Tag("reset")]
    | Annotated[tuple[Literal["preempt"], str], Tag("preempt")]
    | Annotated[
        tuple[Literal["admit"], str, Whole, Whole, bool, Table, Whole, list[tuple[Whole, Whole]]],
        Tag("admit"),
    ]
    | Annotated[tuple[Literal["allocate"], str, Whole, Whole, list[Whole]], Tag("allocate")]
    | Annotated[tuple[Literal["release"], str, Whole, list[Whole]], Tag("release")]
    | Annotated[tuple[Literal["claim"], Whole, Whole, str, Whole, Whole, Hash], Tag("claim")]
    | Annotated[tuple[Literal["unclaim"], Whole, Whole, Hash, Words], Tag("unclaim")],
    Discriminator(lambda said: str(said[0]) if isinstance(said, list | tuple) and said else ""),
]
"""Events that the worker heard, in order; the fields are those of :class:`stateat.sim.events.Observer`'s events."""


class Hello(TypedDict):
    """The release, once it is imported."""

    version: Version


class Begun(TypedDict):
    """A scheduler that was made."""

    free: Whole
    warnings: list[Words]
    depth: Annotated[int, Field(ge=1, le=1000)]
    """Steps that may be under way, the newest included."""
    ahead: bool
    """The release schedules asynchronously."""


class StepAnswer(TypedDict):
    """Decisions of a step."""

    aborted: list[Event]
    evicted: NotRequired[list[bool]]
    log: list[Event]
    rows: list[RowSaid]
    given: Table
    copies: list[tuple[str, Whole, Whole, Whole]]
    let_go: list[tuple[str, Whole, Whole, Whole]]
    """Copies whose source is in their request's table no more."""


class Aborted(TypedDict):
    """Answer to requests that were taken away."""

    log: list[Event]


class Commit(TypedDict):
    """Answer to the sampled tokens."""

    log: list[Event]
    taken: dict[str, Whole]
    """Tokens that were added to a request's outputs."""
    finished: list[str]
    free: Whole


class Refused(TypedDict):
    """The release cannot do what it is asked."""

    unsupported: str


class Failed(TypedDict):
    """The release, or the worker, raised."""

    error: str


T = TypeVar("T")


class Answer(Generic[T]):
    """The shape of the answer to one kind of request; it may always be a refusal or a failure instead."""

    def __init__(self, shape: type[T]) -> None:
        any_of_them: Any = (
            Annotated[Refused, Tag("unsupported")] | Annotated[Failed, Tag("error")] | Annotated[shape, Tag("")]
        )
        self._adapter: TypeAdapter[Any] = TypeAdapter(Annotated[any_of_them, Discriminator(_kind)])

    def read(self, line: bytes) -> T | Refused | Failed:
        """The answer in a line of JSON; raises ValueError that says where it does not fit."""
        try:
            answer: T | Refused | Failed = self._adapter.validate_json(line, strict=True)
            return answer
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            place = ".".join(str(part) for part in first["loc"] if part != "")
            raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from None


def _kind(said: Any) -> str:
    if not isinstance(said, dict):
        return ""
    return next((key for key in ("unsupported", "error") if key in said), "")


HELLO = Answer(Hello)
BEGUN = Answer(Begun)
ADDED = Answer(dict)
STEP = Answer(StepAnswer)
ABORTED = Answer(Aborted)
COMMIT = Answer(Commit)


class AnswerCheck:
    """Holds the numbers of answers against the configuration and the requests; raises EngineError."""

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.blocks_in_pool = options.num_blocks
        self.sizes = [group.block_size for group in options.groups]
        self.recurrent = frozenset(options.recurrent)
        self.state_block = options.state_block
        self.longest = options.max_model_len + options.speculative.num_speculative_tokens + 1

    def names(self, names: Sequence[str], requests: Mapping[str, Request]) -> None:
        """Each request is there, and is named once."""
        for name in names:
            self._request(name, requests)
        self._hold(len(set(names)) == len(names), f"rows of the requests {', '.join(names)}", "one row for each")

    def blocks(self, name: str, table: Sequence[Sequence[int]] | None, more: Sequence[Sequence[int]] | None) -> None:
        """A table has a part for each group, of blocks in the pool."""
        for part in (table, more):
            if part is not None:
                self._groups(part, f"the table of {name}")
                for blocks in part:
                    self._slots(blocks)

    def start(self, name: str, counted: int, right: int) -> None:
        """The scheduler counts what the worker has computed, and what is still under way."""
        self._hold(counted == right, f"a chunk of {name} from {counted} on", f"{right}, by the steps under way")

    def chunk(self, request: Request, start: int, end: int, drafts: int, export: int) -> None:
        """A chunk starts before it ends, at tokens that are there, in blocks that it was given."""
        what = f"chunk [{start}, {end}) of {request.id}"
        # A row that sampled nothing, behind clipped placeholders, leaves a request behind its own last token.
        known = max(request.num_prompt + max(request.sampled, request.outputs), request.at + 1) + drafts
        # Nor is there more of it than a release asks for that has not lost outputs (0.26 does, behind a reset).
        known = min(known, request.tokens.ids.size)
        self._hold(start < end <= known, what, f"one in its {known:,} tokens")
        pages = request.pages
        held = [len(pages[g]) * size if g < len(pages) else 0 for g, size in enumerate(self.sizes)]
        self._hold(end <= min(held), what, f"one in the {min(held):,} tokens of its blocks")
        if export:
            # Aligned groups alone export, and have one block size.
            columns = -(-end // self.state_block) if self.state_block else 0
            fits = start < export < end and columns > 1
            self._hold(fits, f"{what} exporting a state@{export}", "one inside it, into the column before its last")

    def taken(self, name: str, count: int, sampled: int) -> None:
        """A request gets no more tokens than it sampled."""
        self._hold(count <= sampled, f"{count} tokens taken for {name}", f"at most the {sampled} that it sampled")

    def moves(
        self,
        copies: Sequence[tuple[str, int, int, int]],
        given: Sequence[Sequence[int]],
        requests: Mapping[str, Request],
    ) -> None:
        """Copies between slots, and blocks that groups were given."""
        for name, group, source, target in copies:
            self._request(name, requests)
            if group >= len(self.sizes):
                self._hold(False, f"group {group}", f"0 to {len(self.sizes) - 1}")
            self._slots((source, target))
        self._groups(given, "the blocks given")
        for blocks in given:
            self._slots(blocks)

    def event(self, event: Sequence[Any], requests: Mapping[str, Request]) -> None:
        """Refuse an event that names something unknown."""
        getattr(self, f"_{event[0]}", self._of_request)(requests, *event[1:])

    def _of_request(self, requests: Mapping[str, Request], name: str, *_: Any) -> None:
        self._request(name, requests)

    def _reset(self, requests: Mapping[str, Request], done: bool) -> None:
        pass

    def _admit(
        self,
        requests: Mapping[str, Request],
        name: str,
        hit: int,
        external: int,
        resumed: bool,
        slots: Sequence[Sequence[int]],
        junction: int,
        loads: Sequence[tuple[int, int]],
    ) -> None:
        self._request(name, requests)
        known = requests[name].num_tokens
        self._hold(hit + external <= known, f"a hit of {hit} + {external} tokens of {name}", f"at most {known:,}")
        self._offset(junction)
        if hit:
            self._groups(slots, f"the hit blocks of {name}")
        for last in slots:
            self._hold(len(last) in (0, 2), f"a hit block of {name} as {list(last)}", "a slot and a count, or none")
            self._slots(last[:1])
        for group, slot in loads:
            self._group(group)
            self._slots((slot,))

    def _allocate(
        self, requests: Mapping[str, Request], name: str, group: int, column: int, slots: Sequence[int]
    ) -> None:
        self._request(name, requests)
        self._group(group)
        self._offset(column)
        self._slots(slots)

    def _release(self, requests: Mapping[str, Request], name: str, group: int, slots: Sequence[int]) -> None:
        self._request(name, requests)
        self._group(group)
        self._slots(slots)

    def _claim(
        self, requests: Mapping[str, Request], group: int, slot: int, name: str, column: int, offset: int, key: str
    ) -> None:
        self._request(name, requests)
        self._group(group)
        self._slots((slot,))
        self._offset(column)
        self._offset(offset)

    def _unclaim(self, requests: Mapping[str, Request], group: int, slot: int, key: str, why: str) -> None:
        self._group(group)
        self._slots((slot,))

    # The parts.

    def _request(self, name: str, requests: Collection[str]) -> None:
        if name not in requests:
            self._hold(False, f"request {name!r}", "one that is here")

    def _group(self, group: int) -> None:
        if group not in self.recurrent:
            self._hold(False, f"group {group}", "a recurrent one")

    def _groups(self, parts: Sequence[Any], what: str) -> None:
        if len(parts) != len(self.sizes):
            self._hold(False, f"{what} in {len(parts)} groups", f"{len(self.sizes)} groups")

    def _slots(self, slots: Sequence[int]) -> None:
        if slots and max(slots) >= self.blocks_in_pool:
            self._hold(False, f"block {max(slots)}", f"0 to {self.blocks_in_pool - 1}")

    def _offset(self, offset: int) -> None:
        if offset > self.longest:
            self._hold(False, f"offset {offset}", f"at most {self.longest:,}")

    def _hold(self, right: bool, found: str, allowed: str) -> None:
        if not right:
            raise EngineError(f"{self.name} answered nonsense: found {found}, allowed {allowed}")
