"""States in numbers: what all families but ``digest`` share.

The fingerprint of the tokens absorbed travels with every state and decides whether it is the right one. The numbers
say how far apart two states are: a bfloat16 state that was rounded at every decode token can be as far from the truth
as one wrong token is, so that no tolerance could decide (``docs/states.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stateat.kernels.backends import INSTALL, Unavailable, choose, states_at
from stateat.kernels.rounding import round_state
from stateat.kernels.shapes import Shape, shape
from stateat.kernels.work import State, Work
from stateat.oracle.states.digest import Digest
from stateat.oracle.states.held import Held, Node
from stateat.sim.tokens import EMPTY, MASK, Tokens

_DIGEST = Digest()

CHUNK = {"ssd": 128}
"""Tokens of a chunk of the chunked kernels, where it is not :data:`COMMON_CHUNK` (Nemotron-H: 128)."""
COMMON_CHUNK = 64


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How a family is computed and stored."""

    preset: str = "small"
    """A model's widths (:data:`stateat.kernels.shapes.MODELS`), ``*N`` for N layers."""
    dtype: str = "float32"
    """In which a state is stored between chunks: ``float32``, ``bfloat16`` or ``float16``; ``ring`` has none."""
    kernel: str = "sequential"
    """``sequential``: float32 bits do not depend on the split; ``chunked``, as prefill kernels: they do."""
    rounding: str = "nearest"
    """``nearest``, or ``stochastic`` from the scenario's seed."""
    backend: str = "auto"
    device: str = "auto"
    seed: int = 0


class Numeric:
    """A family whose states are arrays; each has a module of its own that says its recurrence."""

    name = ""

    def __init__(self, how: Arithmetic) -> None:
        self.how = how
        self.shape: Shape = shape(self.name, how.preset)
        self.backend, self.device = choose(how.backend, how.device, self.name)
        if how.kernel == "chunked" and self.backend == "numpy":
            raise Unavailable(
                f"kernel chunked of {self.name} needs torch or Triton, found numpy (backend {how.backend}); "
                f"torch comes with {INSTALL}"
            )

    # What the auditor asks.

    def zero(self) -> Held:
        """No tokens absorbed."""
        return Held(EMPTY, None)

    def advance(self, state: Held, tokens: Tokens, start: int, end: int, drafts: Sequence[int]) -> Held:
        """After tokens [start, end) of the stream, and then ``drafts``."""
        print = _DIGEST.advance(state.print, tokens, start, end, drafts)
        if end <= start and not drafts:
            return Held(print, state.node)
        return Held(print, Node(state.node, tokens, start, end, tuple(drafts), print[0]))

    def state_at(self, tokens: Tokens, offset: int) -> Held:
        """The state of the first ``offset`` tokens, absorbed in one go."""
        print = tokens.fingerprint(offset)
        return Held(print, Node(None, tokens, 0, offset, (), print[0]) if offset else None)

    def equal(self, one: Held, other: Held) -> bool:
        """Whether both absorbed the same tokens."""
        return one.print == other.print

    def find(self, state: Held, tokens: Tokens) -> int | None:
        """The offset whose prefix this state absorbed."""
        return tokens.find(state.print)

    def values(self, tokens: Tokens, offsets: Sequence[int]) -> list[State]:
        """The true states at increasing ``offsets``, as arrays and as they are stored."""
        (states,) = self.launch([Work(tokens.ids[: offsets[-1]], tuple(offsets), None)])
        marks = [tokens.fingerprint(n)[0] for n in offsets]
        return [self.stored(state, mark) for state, mark in zip(states, marks, strict=True)]

    # What the ledger asks.

    @property
    def state_bytes(self) -> int:
        """Of one request's state, as it is computed."""
        return self.shape.bytes()

    @property
    def merges(self) -> bool:
        """Whether a run of writes has the bits of one write of all their tokens."""
        return self.name == "ring" or (self.how.dtype == "float32" and self.how.kernel == "sequential")

    def launch(self, works: Sequence[Work]) -> list[list[State]]:
        """The states of many requests at once, not yet rounded."""
        how = {"backend": self.backend, "device": self.device, "form": self.how.kernel}
        return states_at(self.shape, works, chunk=CHUNK.get(self.name, COMMON_CHUNK), **how) if works else []

    def stored(self, state: State, mark: int) -> State:
        """A state as a slot keeps it."""
        if self.name == "ring" or self.how.dtype == "float32":
            return state
        seed = (self.how.seed ^ mark ^ mark >> 32) & (MASK >> 32) if self.how.rounding == "stochastic" else None
        return round_state(state, self.how.dtype, seed)
