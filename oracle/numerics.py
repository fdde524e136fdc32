"""The numbers behind the verdicts: what each claimed slot holds, in the arithmetic of a state family.

Fingerprints have decided when a check comes here, and nothing that is computed here changes a decision. So checks wait
until there are many, and the states of all of them are computed in as few launches as their chains allow.

Verified:

- I18 numerics: equal offset and prefix, other bits (rounding, another chunk history), is counted as noise and no
  finding; a state with NaN or infinity is one

Not verified:

- I18: states that nobody claims, which are never computed; how far noise may go, since no tolerance tells it from a
  wrong token; the layers before and after
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from stateat.kernels.work import State, Work, zero
from stateat.oracle.lineage import Draft, Lineage
from stateat.oracle.states.lazy import LazyState, Recipe
from stateat.oracle.states.numeric import Numeric
from stateat.sim.events import Holding, Severity

PENDING = 512
"""Checks that wait, at most."""
KNOWN_BYTES = 1 << 28
"""Bytes of true states that are kept, so that a longer prefix can continue from them."""
TOGETHER = 64
"""Requests in a launch: more of them make it no faster, and what is said of its progress rarer."""
WORST = 3
"""Noisy slots that a report names."""


class TooLarge(Exception):
    """A launch that does not fit in memory; the message says how many bytes."""


@dataclass(slots=True)
class ClaimedSlot:
    """A claimed slot, as it was at the end of a step."""

    held: LazyState
    truth: LazyState
    request: str
    group: str
    column: int
    slot: int
    claimed: int
    step: int
    time_us: int
    finding: int | None
    """The I1 finding about it; None where the fingerprints agree."""


@dataclass(frozen=True, slots=True)
class Noise:
    """A slot that holds the right state, with other bits than the truth."""

    request: str
    group: str
    slot: int
    claimed: int
    step: int
    error: float


@dataclass(slots=True)
class Measured:
    """Outcome of the checks: how many were exact, noise, not finite, and how far off the wrong ones are."""

    exact: int = 0
    noise: int = 0
    worst: list[Noise] = field(default_factory=list)
    """The :data:`WORST` noisiest, the worst first."""
    errors: dict[int, float] = field(default_factory=dict)
    """Relative error of the content that each finding is about."""
    not_finite: int = 0
    infinite: list[ClaimedSlot] = field(default_factory=list)
    """Slots of the latest flushes that hold NaN or infinity."""
    nearest_wrong: float | None = None
    """The least relative error of a wrong state."""

    def add_noise(self, noise: Noise) -> None:
        self.noise += 1
        self.worst.append(noise)
        self.worst.sort(key=lambda n: (-n.error, n.step, n.slot))
        del self.worst[WORST:]


class Numerics:
    """Computes what is held and what is true, in batches, and compares."""

    def __init__(self, family: Numeric) -> None:
        self.family = family
        self.report: Callable[[int, int], None] | None = None
        """Listener that is told how many tokens were absorbed, of how many, while states are computed."""
        self._absorbed = self._wanted = 0
        free = available_bytes()
        # One that is held, the truth, and what the kernel works on.
        if free is not None and 3 * family.state_bytes > free:
            raise TooLarge(f"one state is {family.state_bytes:,} bytes, three are needed, and {free:,} are free")
        self.measured = Measured()
        self._pending: list[ClaimedSlot] = []
        self._known: OrderedDict[LazyState, State] = OrderedDict()
        self._offsets: set[int] = set()

    def note(self, check: ClaimedSlot) -> None:
        """A claimed slot to be compared, some time."""
        self._pending.append(check)
        if len(self._pending) >= PENDING:
            self.flush()

    def flush(self) -> None:
        """Compare all that waits."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        truths = self._truths([check.truth for check in pending])
        self._compute([recipe for check in pending if (recipe := check.held.recipe) is not None])
        for check in pending:
            recipe = check.held.recipe
            held = self._zero() if recipe is None else recipe.value
            assert held is not None
            self._compare(check, held, truths[check.truth])

    def settle(self, lineage: Lineage) -> None:
        """Numbers for what was found, and I18, which they alone show: a state that is no number."""
        self.flush()
        done = self.measured
        for finding, error in done.errors.items():
            lineage.drafts[finding].error = error
        for check in done.infinite:
            message = (
                f"{check.group} column {check.column} (slot {check.slot}, request {check.request}) is hashed as "
                f"state@{check.claimed} and holds NaN or infinity"
            )
            lineage.add(
                Draft(
                    "I18", Severity.NUMERICS, check.step, check.time_us, check.request, check.group, check.column,
                    check.slot, check.claimed, check.claimed if check.finding is None else None, Holding.NOT_FINITE,
                    message,
                )
            )  # fmt: skip
        done.infinite.clear()

    def _compare(self, check: ClaimedSlot, held: State, truth: State) -> None:
        done = self.measured
        if not all(np.isfinite(array).all() for array in held.values()):
            done.not_finite += 1
            done.infinite.append(check)
            return
        error = relative_error(held, truth)
        if check.finding is not None:
            done.errors.setdefault(check.finding, error)
            done.nearest_wrong = error if done.nearest_wrong is None else min(done.nearest_wrong, error)
        elif all(np.array_equal(held[name], truth[name]) for name in truth):
            done.exact += 1
        else:
            done.add_noise(Noise(check.request, check.group, check.slot, check.claimed, check.step, error))

    # The truth: a prefix in one go, rounded once.

    def _truths(self, wanted: Iterable[LazyState]) -> dict[LazyState, State]:
        found: dict[LazyState, State] = {}
        streams: dict[int, dict[int, LazyState]] = {}
        for truth in dict.fromkeys(wanted):
            if truth.recipe is None:
                found[truth] = self._zero()
            elif truth in self._known:
                self._known.move_to_end(truth)
                found[truth] = self._stored(truth, self._known[truth])
            else:
                streams.setdefault(id(truth.recipe.tokens), {})[truth.recipe.end] = truth
        asked: list[tuple[list[LazyState], Work]] = []
        for stream in streams.values():
            offsets = sorted(stream)
            recipe = stream[offsets[0]].recipe
            assert recipe is not None
            start, state = self._start(recipe, offsets[0])
            ids = recipe.tokens.ids[start : offsets[-1]]
            asked.append(([stream[n] for n in offsets], Work(ids, tuple(n - start for n in offsets), state)))
        self._wanted += sum(work.tokens.size for _, work in asked)
        for truths, states in zip([truths for truths, _ in asked], self._launch([w for _, w in asked]), strict=True):
            for truth, state in zip(truths, states, strict=True):
                found[truth] = self._stored(truth, state)
                self._keep(truth, state)
        return found

    def _start(self, recipe: Recipe, offset: int) -> tuple[int, State | None]:
        """The longest prefix below ``offset`` whose true state is still known; only where that changes no bit."""
        self._offsets.add(offset)
        if not self._known or self.family.how.form != "sequential":
            return 0, None
        for n in sorted((n for n in self._offsets if n < offset), reverse=True)[:64]:
            state = self._known.get(LazyState(recipe.tokens.fingerprint(n), None))
            if state is not None:
                return n, state
        return 0, None

    def _keep(self, truth: LazyState, state: State) -> None:
        assert truth.recipe is not None
        self._offsets.add(truth.recipe.end)
        self._known[truth] = state
        while len(self._known) * self.family.state_bytes > KNOWN_BYTES and len(self._known) > 1:
            self._known.popitem(last=False)

    def _stored(self, truth: LazyState, state: State) -> State:
        assert truth.recipe is not None
        return self.family.stored(state, truth.recipe.mark)

    # What is held: a chain of writes, each from what the one before left.

    def _compute(self, wanted: Sequence[Recipe]) -> None:
        chains = _chains(wanted, self.family.merges)
        waiting: dict[Recipe, list[Recipe]] = {}
        ready: list[Recipe] = []
        self._wanted += sum(link.ids().size for path in chains.values() for link in path)
        for recipe, path in chains.items():
            base = path[-1].parent
            if base is None or base.value is not None:
                ready.append(recipe)
            else:
                waiting.setdefault(base, []).append(recipe)
        while ready:
            works = []
            for recipe in ready:
                path = chains[recipe]
                ids = np.concatenate([link.ids() for link in reversed(path)])
                base = path[-1].parent
                works.append(Work(ids, (ids.size,), None if base is None else base.value))
            for recipe, (state,) in zip(ready, self._launch(works), strict=True):
                recipe.value = self.family.stored(state, recipe.mark)
                # What led here is not needed again.
                recipe.parent = None
            ready = [after for recipe in ready for after in waiting.pop(recipe, ())]

    def _launch(self, works: Sequence[Work]) -> list[list[State]]:
        states = sum(len(work.offsets) for work in works)
        needed, free = states * self.family.state_bytes, available_bytes()
        if free is not None and needed > free:
            raise TooLarge(
                f"{states} states of {self.family.state_bytes:,} bytes are {needed:,} bytes, and {free:,} are free"
            )
        found: list[list[State]] = []
        for first in range(0, len(works), TOGETHER):
            part = works[first : first + TOGETHER]
            found += self.family.launch(part)
            self._absorbed += sum(work.tokens.size for work in part)
            if self.report is not None:
                self.report(self._absorbed, self._wanted)
        return found

    def _zero(self) -> State:
        return zero(self.family.shape)


def _chains(wanted: Sequence[Recipe], merges: bool) -> dict[Recipe, list[Recipe]]:
    """The recipes to compute, each with the links (last first) that lead to it from a recipe that will be known.

    With ``merges`` a recipe that nobody asked for, and from which one other continues, is a link of that one's path.
    """
    needed: dict[Recipe, int] = {}
    for recipe in wanted:
        link: Recipe | None = recipe
        while link is not None and link.value is None:
            first = link not in needed
            needed[link] = needed.get(link, 0) + 1
            if not first:
                break
            link = link.parent
    targets = set(wanted)
    chains: dict[Recipe, list[Recipe]] = {}
    for recipe, uses in needed.items():
        if merges and recipe not in targets and uses == 1:
            continue
        path, link = [recipe], recipe.parent
        while merges and link is not None and link.value is None and link not in targets and needed[link] == 1:
            path.append(link)
            link = link.parent
        chains[recipe] = path
    return chains


def relative_error(held: State, truth: State) -> float:
    """|held - truth| / |truth| (Frobenius) of the recurrent component, of the convolution's where that is all; for
    integers the share of entries that differ.

    One token changes most inputs of a convolution, so that its error would hide how far apart the matrices are.
    """
    name = "recurrent" if "recurrent" in truth else "conv"
    one, other = held[name], truth[name]
    if other.dtype == np.uint64:
        return float(np.mean(one != other))
    distance = np.linalg.norm((one.astype(np.float64) - other).ravel())
    size = np.linalg.norm(other.astype(np.float64).ravel())
    if size == 0.0:
        return 0.0 if distance == 0.0 else float("inf")
    return float(distance / size)


def available_bytes() -> int | None:
    """Memory that is free for use on this machine; None where that cannot be said."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
