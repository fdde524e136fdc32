"""State of requests, steps and slots as a log told it so far, and how an event that cannot follow is reported.

Some events a log may leave out altogether (``docs/events.md``). What needs them is asked from the first of them on,
and of all that came before it too; :attr:`Heard.unasked` says what was never asked.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from stateat.sim.events import NULL, Group, Observer

WITHOUT = {
    "step": "order and times of steps (no step is told)",
    "allocate": "slots that were handed out (no allocate of a recurrent group is told)",
    "restore": "hits against what is published, I5 (no restore is told)",
    "release": "who uses which slot, I8 and I16 (no release is told)",
}
"""Events that a log may lack, and what is not asked then."""


STATES = {"waiting": "waits", "running": "runs", "gone": "has ended"}
"""Place of a request, with its verb."""
ANY = tuple(STATES)
"""Any place, the end too: steps in flight may tell of it."""


class Impossible(ValueError):
    """An event that cannot follow from those before it."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


@dataclass(slots=True)
class PendingChunk:
    """A chunk, until its outcome is known."""

    start: int
    end: int
    drafts: int
    """Number of drafts that verification judges."""
    run: int
    """Number of those that the kernel consumes too."""
    steps: int
    era: int
    emits: bool
    """True if it reaches the last token that is known."""
    most: int
    """Output tokens that may come of it."""
    left: set[int]
    """Groups in which it has not been told yet."""
    accepted: int | None = None
    emitted: bool = False


@dataclass(slots=True)
class Life:
    """A request, from its arrival on."""

    prompt: int
    max_tokens: int
    simulated: bool
    """True if its tokens follow from its index, so that it ends after ``max_tokens`` and not before."""
    outputs: int = 0
    sampled: int = 0
    """Output tokens that the worker has: with steps in flight more than were told."""
    heard: int = -1
    """The last step in which an output of it was told."""
    owed: PendingChunk | None = None
    """Row of which the outcome was due, and is to be told with a run of decode steps that begins behind it."""
    state: str = "waiting"
    era: int = 0
    """Grows whenever it stops running: rows of an earlier one may still be told, and nothing need come of them."""
    admitted: bool = False
    covered: int = -1
    """The last step in which a chunk of it is known."""
    hit: bool = False
    """True if it was admitted with tokens that it need not compute."""
    adrift: bool = False
    """True once a row took placeholders for its last token: the worker counts from behind what is known."""
    drops: int = 0
    """Outputs of it that may be dropped: as many tokens as were to come when a reset of the pool put it back."""
    restores: bool = False
    """True if a hit of the pool alone is what it was admitted with."""
    starts: set[int] = field(default_factory=set)
    """Recurrent groups of which the state that it starts from may still be told."""
    copies: set[tuple[int, int]] = field(default_factory=set)
    """(group, slot) of copies that were made for it."""
    released: set[tuple[int, int]] = field(default_factory=set)
    """(group, slot) of what it let go of."""
    sources: dict[int, int] = field(default_factory=dict)
    """Slot by recurrent group from which the request is to start, until it has read that."""
    tables: dict[int, dict[int, int]] = field(default_factory=dict)
    """Slots of the columns by recurrent group."""

    @property
    def known(self) -> int:
        return self.prompt + self.outputs

    def leave(self, state: str) -> None:
        """Stop running, and let go of everything."""
        self.state, self.hit, self.adrift = state, False, False
        self.era += 1
        self.starts.clear()
        self.copies.clear()
        self.released.clear()
        self.sources.clear()
        self.tables.clear()


class Heard(Observer):
    """One run of a log, as far as it has been told, and the questions that all events are asked."""

    def __init__(self) -> None:
        self.line = 0
        """Line of the event that is told; set by the reader of the log."""
        self.groups: tuple[Group, ...] = ()
        self.recurrent: list[int] = []
        self.num_drafts = 0
        self.num_blocks: int | None = None
        """Number of blocks of the pool, where the log says so."""
        self.depth = 1
        """Steps in flight that have not run, the one that is decided among them."""
        self.lag = 0
        """Steps between one that runs and the one whose outcome is told then: 1 or more if scheduled asynchronously."""
        self.cap = 0
        """Tokens that a step may have."""
        self._lives: dict[str, Life] = {}
        self._indices: set[int] = set()
        self._placed: set[tuple[int, int]] = set()
        """(group, slot) that was placed from outside: no request has it in a column."""
        self._told: dict[str, None] = {}
        """Optional events that this log has."""
        self._lacking: dict[str, Impossible] = {}
        """Events that a log lacks, each with the first that would have needed it."""
        self._step = -1
        self._open = False
        """True if a step has begun and not ended."""
        self._runs = -1
        """The step of which events tell what was launched."""
        self._hears = -1
        """The step of which events tell the outcome."""
        self._before: deque[int] = deque()
        """Steps of which the outcome is to come, behind that one."""
        self._launched = -1
        self._time = 0
        self._arrived = 0
        self._budget: int | None = None
        self._batches: dict[int, dict[str, PendingChunk]] = {}
        """Rows by step: those that were decided and are not over."""
        self._quiet: dict[str, PendingChunk] = {}
        """Runs of decode steps that are being told."""
        self._claims: dict[tuple[int, int], dict[bytes, int]] = {}
        """(group, slot) -> hashes, with their offsets."""
        self._hashes: dict[tuple[int, bytes], dict[int, int]] = {}
        """(group, hash) -> slots, with their offsets."""
        self._known: dict[int, int] = {}
        """Slots that were handed out, loaded or copied to, and the step in which each was first."""
        self._met: set[int] = set()
        """Slots from which a hit starts."""
        self._unplaced: dict[int, tuple[int, int, Impossible]] = {}
        """Claimed slots that a copy of that step, or a load, has yet to put into that column."""
        self._copied: set[tuple[object, ...]] = set()
        """Copies of this step."""
        self._stored: dict[tuple[int, str], int] = {}
        self._put_back: dict[str, int] = {}
        """Requests that were preempted in this step, with the tokens that were to come of their rows in flight."""
        self._never = ""
        """A request that was refused for good, until it is taken away."""
        self._ended = False

    @property
    def unasked(self) -> tuple[str, ...]:
        """Note on checks that were not made, since this run never tells the events."""
        return tuple(text for kind, text in WITHOUT.items() if kind in self._lacking)

    # How it is said.

    def _impossible(self, key: str, found: object, allowed: str) -> Impossible:
        return Impossible(f"{key}: found {found!r}, allowed is {allowed}", self.line)

    def _check(self, right: bool, key: str, found: object, allowed: str) -> None:
        if not right:
            raise self._impossible(key, found, allowed)

    def _tells(self, kind: str) -> None:
        """The log has such events."""
        if kind not in self._told:
            self._told[kind] = None
            if kind in self._lacking:
                raise self._lacking[kind]

    def _lacks(self, kind: str, key: str, found: object, allowed: str) -> None:
        """An event would have needed one that was not told: impossible in a log that has such."""
        error = self._impossible(key, found, f"{allowed} ({kind} tells)")
        if kind in self._told:
            raise error
        self._lacking.setdefault(kind, error)

    def _place(self, slot: int, column: int) -> None:
        """A slot is in a table now."""
        if slot in self._unplaced and self._unplaced[slot][1] == column:
            del self._unplaced[slot]

    # Names that an event gives.

    def _life(self, kind: str, request: str, *states: str) -> Life:
        """The request, in one of these states (by default not gone)."""
        life = self._lives.get(request)
        if life is None:
            raise self._impossible(f"{kind}.request", request, "one that arrived")
        allowed = states or ("waiting", "running")
        if life.state not in allowed:
            text = "one that " + " or ".join(STATES[state] for state in allowed)
            raise self._impossible(f"{kind}.request", f"{request}, which {STATES[life.state]}", text)
        return life

    def _within(self, kind: str) -> None:
        """Something that only happens in a step."""
        if self._ended:
            raise Impossible(f"{kind}: after end, allowed is another run", self.line)
        if not self._open:
            self._lacks("step", f"{kind}: before a step began or after its commit; step", None, "one that is open")

    def _group(self, kind: str, group: int, recurrent: bool | None = True) -> Group:
        what = {True: "a recurrent group", False: "an attention group", None: "a group"}[recurrent]
        allowed = [i for i, g in enumerate(self.groups) if recurrent is None or g.recurrent == recurrent]
        if group not in allowed:
            raise self._impossible(f"{kind}.group", group, f"{what}: {', '.join(map(str, allowed)) or 'there is none'}")
        return self.groups[group]

    def _slot(self, key: str, slot: int, least: int = 1) -> None:
        """A block of the pool: 0 is the null block, -1 none."""
        if slot < least or (self.num_blocks is not None and slot >= self.num_blocks):
            top = "" if self.num_blocks is None else f" to {self.num_blocks - 1}"
            raise self._impossible(key, slot, f"{least}{top or ' or more'}")

    def _handed(self, key: str, slot: int) -> None:
        """A slot that somebody was given."""
        if slot > NULL and slot not in self._known and slot not in self._met:
            self._lacks("allocate", key, slot, "a slot that was handed out")
