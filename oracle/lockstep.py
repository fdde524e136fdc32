"""I13 lock-step: the components of a slot hold the same offset.

Beside its matrix a recurrent layer keeps the last inputs of a short convolution. A speculative row leaves the matrix
after each of its tokens in a column of its own, but one window of inputs, drafts included, in the running column;
whoever reads or copies a later column takes that window and shifts it by the distance (vLLM's worker, see
``docs/states.md``). A wrong shift leaves a slot whose matrix is right and whose window is not.

Verified:

- I13 lock-step: the components of one slot (convolution, recurrent) hold the same offset; checked where the state
  family has both

Not verified:

- I13: slots whose matrix is wrong already (I1); reads of a torn slot that nobody claimed; families of one component
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stateat.oracle.evidence import Evidence
from stateat.oracle.records import Claimed, Seen
from stateat.oracle.slots import Content
from stateat.sim.events import Holding
from stateat.sim.tokens import Tokens

Window = tuple[int, ...]
"""Ids of the tokens whose inputs are kept, the last one last; shorter near the start of a sequence."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of a convolution that a slot keeps."""

    window: Window
    ahead: int
    """Last entries of the window that lie behind the state of this slot (drafts)."""

    def shifted(self, shift: int) -> Window:
        """The window of the state ``shift`` tokens later; empty where it does not reach that far."""
        cut = self.ahead - shift
        return self.window[: len(self.window) - cut] if 0 <= cut <= len(self.window) else ()


class Lockstep:
    """The windows of all slots, for convolutions with ``taps`` taps."""

    def __init__(self, taps: int) -> None:
        self.kept = taps - 1
        self._inputs: dict[int, Inputs] = {}
        self._tier: dict[tuple[int, str], Inputs | None] = {}
        self._torn: dict[tuple[bytes, int], int] = {}
        """The finding of each (hash, slot) whose components ever differed."""

    def check_window(self, evidence: Evidence, hash: bytes, claim: Claimed, slot: int, content: Content) -> int | None:
        """I13: where the matrix is right, the window of the convolution is too. Returns the finding if it is not."""
        tokens = evidence.tokens(claim.request)
        if tokens is None or self.held(slot) == self.window(tokens, claim.offset):
            return None
        if (hash, slot) not in self._torn:
            verdicts = evidence.counts.verdicts
            verdicts[Holding.TORN] = verdicts.get(Holding.TORN, 0) + 1
            message = (
                f"{evidence.groups[claim.group].name} column {claim.column} (slot {slot}, request {claim.request}) "
                f"holds state@{claim.offset}, but its convolution has the inputs of another offset"
            )
            where = (claim.request, claim.group, claim.column, slot, claim.offset, claim.offset)
            self._torn[hash, slot] = evidence.poison("I13", *where, Holding.TORN, message, content)
        finding = self._torn[hash, slot]
        evidence.lineage.poison(slot, finding)
        return finding

    def window(self, tokens: Tokens, offset: int) -> Window:
        """The true window after ``offset`` tokens."""
        return tuple(tokens.ids[max(offset - self.kept, 0) : offset].tolist())

    def held(self, slot: int) -> Window | None:
        """The window that goes with the state of this slot; None where there is none."""
        inputs = self._inputs.get(slot)
        return None if inputs is None else inputs.shifted(0)[-self.kept :]

    def load(self, slot: int, tokens: Tokens, offset: int) -> None:
        """A state that came from elsewhere brings its window."""
        self._inputs[slot] = Inputs(self.window(tokens, offset), 0)

    def store(self, slot: int, key: tuple[int, str]) -> None:
        """A tier takes the window of a slot with its state."""
        self._tier[key] = self._inputs.get(slot)

    def fetch(self, key: tuple[int, str], slot: int) -> None:
        """Bring a window back from a tier, as it was."""
        inputs = self._tier.get(key)
        if inputs is None:
            self._inputs.pop(slot, None)
        else:
            self._inputs[slot] = inputs

    def copy(self, source: int, target: int, shift: int) -> None:
        """Copy the window of ``source`` (-1: of none), shifted; by a negative ``shift`` within its own slot."""
        inputs = self._inputs.get(source)
        if inputs is None:
            self._inputs.pop(target, None)
        elif shift < 0:
            self._inputs[target] = Inputs(self._overlapped(inputs, -shift), 0)
        else:
            self._inputs[target] = Inputs(inputs.window, inputs.ahead - shift)

    def _overlapped(self, inputs: Inputs, shift: int) -> Window:
        """The window after a shift in place that moves the last input first: each finds what the one before it left."""
        window = list(inputs.shifted(shift)[-self.kept :])
        for i in reversed(range(len(window) - shift)):
            window[i] = window[i + shift]
        return tuple(window)

    def erase(self, slots: Iterable[int]) -> None:
        """Erase the windows of slots over which attention wrote."""
        for slot in slots:
            self._inputs.pop(slot, None)

    def row(
        self,
        evidence: Evidence,
        seen: Seen,
        group: int,
        start: int,
        end: int,
        drafts: Sequence[int],
        read: int,
        writes: Sequence[tuple[int, int]],
    ) -> None:
        """A row; the window of a speculative one is that of the running column, wherever its state is."""
        several = evidence.num_drafts > 0 and evidence.groups[group].aligned and len(writes) == len(drafts) + 1
        speculative = several and (len(drafts) > 0 or (start >= seen.num_prompt and writes[0][0] == start + 1))
        source, shift = read, 0
        if speculative and read >= 0 and (running := writes[0][1]) != read:
            at, kept = evidence.slots.get(read), evidence.slots.get(running)
            source, shift = running, (0 if at is None or kept is None else at.absorbed - kept.absorbed)
        self.advance(seen.tokens, start, end, drafts, source, shift, writes, speculative)

    def advance(
        self,
        tokens: Tokens,
        start: int,
        end: int,
        drafts: Sequence[int],
        read: int,
        shift: int,
        writes: Sequence[tuple[int, int]],
        speculative: bool,
    ) -> None:
        """A row: tokens [start, end), the last of them ``drafts``, after the window of slot ``read`` (-1: none)
        shifted by ``shift``."""
        before: Window = ()
        if read >= 0:
            inputs = self._inputs.get(read)
            if inputs is None:
                for _, slot in writes:
                    self._inputs.pop(slot, None)
                return
            before = inputs.shifted(shift)[-self.kept :]
        known = end - len(drafts)
        first = max(start, known - self.kept)
        lead = before if first == start else ()
        window = (*lead, *tokens.ids[first:known].tolist(), *drafts)
        keep = self.kept + len(drafts)
        if speculative:
            (_, running), *later = writes
            self._inputs[running] = Inputs(window[-keep:], len(drafts))
            for _, slot in later:
                self._inputs.pop(slot, None)
            return
        for offset, slot in writes:
            self._inputs[slot] = (
                Inputs(window[-keep:], 0) if offset == end else Inputs(self._at(before, tokens, start, offset), 0)
            )

    def _at(self, before: Window, tokens: Tokens, start: int, offset: int) -> Window:
        """The window at a state that a row leaves on its way."""
        window = (*before, *tokens.ids[start:offset].tolist()) if offset - start < self.kept else ()
        return window[-self.kept :] if window else self.window(tokens, offset)
