"""Hand-made runs for the tests of the oracle: an engine says what a test wants, and the auditor hears it.

A test of an invariant tells one run that breaks it, and the nearest run that keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stateat.oracle.audit import Auditor
from stateat.oracle.states import StateFamily
from stateat.sim.events import SCHEMA, Finding, Group

B = 16
"""Tokens of the recurrent block of every story."""
FULL = Group("attention", "full-attention", 4)
GDN = Group("gdn", "recurrent", B)
KDA = Group("kda", "recurrent", B)
GDN_GROUP = 1


class Story:
    """Engine that says what a test wants: one recurrent group of block 16 beside attention, unless given others."""

    def __init__(
        self,
        groups: Sequence[Group] = (FULL, GDN),
        drafts: int = 0,
        cap: int = 1000,
        threshold: int = 0,
        family: StateFamily | None = None,
        **more: object,
    ) -> None:
        self.auditor = Auditor(family)
        self.steps = 0
        self.arrived = 0
        options: dict[str, object] = {
            "hash_unit": 4,
            "max_num_batched_tokens": cap,
            "long_prefill_token_threshold": threshold,
            "enable_prefix_caching": True,
        }
        self.auditor.run(SCHEMA, "hand", tuple(groups), drafts, options | more)
        # All of the pool has been handed out before, so that a slot without a state was never written.
        self.auditor.slots.hand(range(1000))

    def arrive(self, *names: str, prompt: int = 40, outputs: int = 8, seed: int | None = None) -> None:
        """Requests with a text of their own each, unless a seed says which."""
        for name in names:
            self.arrived += 1
            text = self.arrived if seed is None else seed
            self.auditor.arrive(name, self.arrived - 1, 0, ((text, prompt),), None, outputs)

    def step(self, *acts: Callable[[], None]) -> Story:
        """One whole step."""
        self.auditor.step(self.steps, 10 * self.steps, 1000)
        for act in acts:
            act()
        self.steps += 1
        self.auditor.commit(10 * self.steps)
        return self

    def admit(self, name: str, hit: int = 0, slot: int | None = None) -> Callable[[], None]:
        """From waiting to running; with a hit it restores from ``slot``."""

        def act() -> None:
            self.auditor.admit(name, hit, 0, False)
            if slot is not None:
                self.auditor.restore(name, GDN_GROUP, slot, (hit - 1) // B, hit, [hit, hit])

        return act

    def run(
        self,
        name: str,
        start: int,
        end: int,
        read: int,
        *writes: tuple[int, int],
        drafts: Sequence[int] = (),
        stop: str = "",
        steps: int = 0,
        accepted: Sequence[int] = (),
    ) -> Callable[[], None]:
        """A chunk and its forward pass."""

        def act() -> None:
            self.auditor.chunk(name, start, end, len(drafts), stop, steps, accepted)
            self.auditor.advance(name, GDN_GROUP, start, end, drafts, read, writes, steps)

        return act

    def claim(
        self, slot: int, name: str, offset: int, key: bytes | None = None, group: int = GDN_GROUP
    ) -> Callable[[], None]:
        hash = key or f"{name}@{offset}".encode()
        return lambda: self.auditor.claim(group, slot, name, -(-offset // B) - 1, offset, hash)

    def unclaim(self, slot: int, key: str, why: str = "evict") -> Callable[[], None]:
        return lambda: self.auditor.unclaim(GDN_GROUP, slot, key.encode(), why)

    def chunk(self, name: str, start: int, end: int) -> Callable[[], None]:
        """A chunk that is decided; its forward pass comes later."""
        return lambda: self.auditor.chunk(name, start, end, 0, "", 0, ())

    def forward(self, name: str, start: int, end: int, read: int, *writes: tuple[int, int]) -> Callable[[], None]:
        """The forward pass of a chunk."""
        return lambda: self.auditor.advance(name, GDN_GROUP, start, end, (), read, writes, 0)

    def launch(self, index: int) -> Callable[[], None]:
        return lambda: self.auditor.launch(index)

    def take(self, name: str, *slots: int, group: int = GDN_GROUP) -> Callable[[], None]:
        """Slots that are handed out."""
        return lambda: self.auditor.allocate(name, group, 0, slots)

    def release(self, name: str, *slots: int) -> Callable[[], None]:
        return lambda: self.auditor.release(name, GDN_GROUP, slots)

    def preempt(self, name: str) -> Callable[[], None]:
        return lambda: self.auditor.preempt(name)

    def abort(self, name: str) -> Callable[[], None]:
        return lambda: self.auditor.abort(name)

    def copy(
        self, name: str, kind: str, source: int, target: int, group: int = GDN_GROUP, shift: int = 0
    ) -> Callable[[], None]:
        return lambda: self.auditor.copy(name, group, kind, source, target, source, shift)

    def output(self, name: str, count: int = 1) -> Callable[[], None]:
        return lambda: self.auditor.output(name, count, None)

    def accept(self, name: str, drafted: int, accepted: int) -> Callable[[], None]:
        return lambda: self.auditor.accept(name, drafted, accepted)

    def attention(self, *slots: int) -> Callable[[], None]:
        """Slots that attention writes over."""
        return lambda: self.auditor.allocate("", 0, -1, slots)

    def finish(self, name: str) -> Callable[[], None]:
        return lambda: self.auditor.finish(name)

    def outputs_of(self, name: str, first: int, count: int) -> list[int]:
        """The tokens that a request really says from a position on."""
        return list(map(int, self.auditor.requests[name].tokens.ids[first : first + count]))

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.auditor.findings()

    @property
    def invariants(self) -> list[str]:
        return [f.invariant for f in self.findings]


def poisoned() -> Story:
    """Request a: [0, 10) into slot 7, which is hashed as state@16 in step 1 and holds state@10 (one I1 finding)."""
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, 10, -1, (10, 7), stop="partial-tail"))
    story.step(story.claim(7, "a", 16), story.run("a", 10, 16, 7, (16, 8)))
    return story


def clean() -> Story:
    """The same, but slot 7 holds state@16."""
    story = Story()
    story.arrive("a")
    story.step(story.admit("a"), story.run("a", 0, 10, -1, (10, 7), stop="partial-tail"))
    story.step(story.claim(7, "a", 16), story.run("a", 10, 16, 7, (16, 7)))
    return story


def tainted() -> Story:
    """Request b restores the poisoned slot 7 as state@16, runs to 32 and claims that: a root and one behind it."""
    story = poisoned()
    story.arrive("b", seed=1)
    story.step(
        story.admit("b", 16, 7),
        story.claim(9, "b", 32),
        story.copy("b", "pre", 7, 9),
        story.run("b", 16, 32, 9, (32, 9)),
    )
    return story


def prefilled(*claims: int, prompt: int = 50, seed: int = 1) -> Story:
    """A prompt that runs block by block, with states claimed at these offsets."""
    story = Story()
    story.arrive("a", prompt=prompt, seed=seed)
    story.step(story.admit("a"))
    for column, start in enumerate(range(0, prompt, B)):
        end, slot = min(start + B, prompt), 7 + column
        acts = [story.run("a", start, end, slot - 1 if start else -1, (end, slot))]
        if end in claims:
            acts.append(story.claim(slot, "a", end))
        if end == prompt:
            acts.append(story.output("a"))
        story.step(*acts)
    return story


def two_groups() -> Story:
    """Request a leaves state@16 in slot 7 of gdn and in slot 17 of kda, both claimed."""
    story = Story((FULL, GDN, KDA))
    story.arrive("a")
    story.step(
        story.admit("a"),
        story.run("a", 0, 16, -1, (16, 7)),
        lambda: story.auditor.advance("a", 2, 0, 16, (), -1, [(16, 17)], 0),
        story.claim(7, "a", 16, b"gdn"),
        story.claim(17, "a", 16, b"kda", group=2),
    )
    assert story.findings == ()
    return story
