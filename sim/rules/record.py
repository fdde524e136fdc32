"""Records of rules: a question in which releases differ, and each value with what it does and where that is from.

A rule is the mapping from the names of its values to what the engine asks. ``docs/rules.md`` is printed from the
records (:mod:`stateat.sim.releases.pages`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from stateat.sim.options import Options

T = TypeVar("T")
Read = Callable[[Any], Any]
"""Makes a plain value of a plug-in's answer; raises ValueError for an answer that is not allowed."""


class Standing(Enum):
    """Standing of a value: releases behave so, somebody proposed it, or it is a fault that is injected on purpose."""

    RELEASE = "release"
    PROPOSAL = "proposal"
    FAULT = "injected fault"


class Lack(NamedTuple):
    """An option to which a value gives no meaning."""

    key: tuple[str | int, ...]
    """The key under ``engine``."""
    found: object
    allowed: str
    why: str = ""
    """More of the reason; without it, that the preset has no such thing, with the rule and its value."""


Lacks = Callable[[Options], Iterator[Lack]]
"""Finds the options to which a value gives no meaning."""


def lacks_nothing(options: Options) -> Iterator[Lack]:
    """Find nothing: the value gives a meaning to every option."""
    return iter(())


@dataclass(frozen=True, slots=True)
class Value(Generic[T]):
    """A value of a rule."""

    asked: T
    """The object that the engine asks."""
    does: str
    """A plain sentence, in Markdown, that tells what the engine does under it."""
    source: str
    """The releases, pull requests or issues that it was read in; or ``the control``."""
    standing: Standing = Standing.RELEASE
    lacks: Lacks = lacks_nothing


class Demand(Protocol):
    """Facts of an arriving request that decide which rules a run asks."""

    @property
    def external(self) -> int:
        """Leading tokens that a connector computed."""

    @property
    def load_error(self) -> bool:
        """True if what a connector or tier should bring does not arrive."""

    @property
    def abort(self) -> int | None:
        """The time at which it is taken away again; None: never."""

    @property
    def encoder(self) -> tuple[tuple[int, int], ...]:
        """Spans of the prompt that an encoder computes."""

    @property
    def snapshots(self) -> tuple[int, ...]:
        """Positions of its prompt where the client asks for a state."""


class When(NamedTuple):
    """Runs that ask a rule; under each of its values the other runs decide, copy and claim the same."""

    tells: str
    """``with …``: what such a run has."""
    holds: Callable[[Options, Sequence[Demand]], bool]


ALWAYS = When("every run", lambda options, requests: True)


class Argument(NamedTuple):
    """An argument with which a plug-in is called."""

    name: str
    type: str
    is_: str
    """Meaning of the number, with its unit."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Call of a user's plug-in in place of a named value."""

    arguments: tuple[Argument, ...]
    answer: str
    """The answers that are allowed, for messages: ``a number of tokens``."""
    read: Read
    means: str
    """The meaning of the answer to the engine."""


@dataclass(frozen=True, eq=False)
class Rule(Mapping[str, T], Generic[T]):
    """A question in which releases differ, with its answers by name."""

    question: str
    records: Mapping[str, Value[T]]
    """Values by name, in the order in which lists name them."""
    asked: When = ALWAYS
    signature: Signature | None = None
    """The call of a plug-in; None: values are chosen by name only."""
    note: str = field(default="", kw_only=True)
    """A remark on the question, printed behind it."""

    def __getitem__(self, name: str) -> T:
        return self.records[name].asked

    def __iter__(self) -> Iterator[str]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)
