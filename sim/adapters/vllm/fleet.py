"""The engines of a command: which run goes on which, and the processes behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.asked import (
    OWN,
    REFERENCE,
    AskedEngine,
    asked,
    check_apart,
    is_newer,
    labelled,
    nearest,
    of_python,
    of_release,
)
from stateat.sim.adapters.vllm.config import PHYSICAL
from stateat.sim.adapters.vllm.engine import LiveScheduler
from stateat.sim.adapters.vllm.process import Child
from stateat.sim.errors import EngineError, InputError, RefusedError, StateatError
from stateat.sim.events import Observer
from stateat.sim.releases import presets
from stateat.sim.releases.policy import Policy
from stateat.sim.scenario.load import Run

CLEAN = {"poisoned": 0}
"""Expectation of a run on an engine for which the file expects nothing."""
NOT_ASKED = f"the rules of its worker ({', '.join(PHYSICAL)}) and the names of its stops"
"""Parts of an engine that are not asked of it, since no scheduler has them."""
Make = Callable[[Policy, Observer, int], LiveScheduler]
"""(policy, observer, seed): a scheduler that has not stepped yet."""


class Fleet:
    """Started workers, one for each engine that was asked for, shared by all runs on it; close it when done.

    ``specs``: ``reference``, ``vllm`` (each variant on its preset's release), ``vllm:0.27.0`` or ``vllm:FOLDER`` (a
    checkout). ``python``: a Python that has vLLM, as a path or a program's name; it stands for ``vllm``, and for all
    where nothing is named. ``baseline``: one more, with which the others are compared; ``vllm`` is each variant's
    release there, beside a ``python`` too. Raises InputError for specs that name no engine, or one of them twice. A
    worker starts when its first run does; what does not start is that run's error.
    """

    def __init__(
        self,
        specs: Sequence[str],
        python: str | None = None,
        *,
        baseline: str = "",
        cache: Path = install.CACHE,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.specs = list(specs) or ([OWN] if python is not None else [REFERENCE])
        self.cache = cache
        self._warn = warn
        self._warned: set[str] = set()
        self._children: dict[str, Child] = {}
        self._failed: dict[str, StateatError] = {}
        if python is not None and OWN not in self.specs:
            raise InputError(f"--vllm-python: found --engine {self.specs[0]}, allowed with --engine vllm, or alone")
        self._baseline = baseline
        own = None if python is None else of_python(python)
        if own is not None:
            # Under a name of its own: a baseline that is called vllm is each variant's release, not this Python again.
            self.specs = [own.spec if spec == OWN else spec for spec in self.specs]
        wanted = [*self.specs, *[baseline] * bool(baseline)]
        found = {spec: own if own is not None and spec == own.spec else asked(spec) for spec in wanted}
        check_apart([found[spec] or AskedEngine(spec, spec) for spec in self.specs])
        # A baseline may be one of the others too: a release is held to itself.
        final = {each.place: each for each in labelled([each for each in found.values() if each is not None])}
        self._engines = {spec: None if each is None else final[each.place] for spec, each in found.items()}
        """Workers by spec; None for the reference engine and for each variant's own release."""
        self._labels = {each.label: each for each in final.values()}

    @property
    def live(self) -> bool:
        """True if any engine is not the reference."""
        return self.specs != [REFERENCE]

    @property
    def has_reference(self) -> bool:
        """True if the reference engine is one of them."""
        return REFERENCE in self.specs

    def spread(self, run: Run) -> list[Run]:
        """A run on each engine, as NAME@LABEL without its rules. Raises InputError where two of them are one.

        On an engine that is not its preset's release it must poison nothing and end; with rules of its own it is not
        judged.
        """
        found = [self._on(run, spec) for spec in self.specs]
        for i, on in enumerate(found):
            if any(other.variant == on.variant for other in found[:i]):
                raise InputError(
                    f"--engine vllm: of variant {run.variant} it is {on.engine}, which is named too; name releases, or "
                    "vllm alone"
                )
        return found

    def below(self, run: Run) -> Run:
        """A run on the baseline."""
        return self._on(run, self._baseline)

    @property
    def baseline(self) -> str:
        """Name of the baseline; '' for none."""
        each = self._engines.get(self._baseline)
        return self._baseline if each is None else each.label

    def maker(self, run: Run) -> Make | None:
        """Return what makes the scheduler of a run of :meth:`spread`, or raises why its engine does not start; None for
        the reference engine."""
        return self._make(run.engine) if run.engine else None

    def of(self, preset: str) -> tuple[AskedEngine, Make]:
        """The one live engine that stands for a preset's release, started, and what makes its scheduler."""
        each = self._resolve(self.specs[0], preset)
        assert each is not None
        self._child(each.label)
        return each, self._make(each.label)

    def says(self, each: AskedEngine) -> str:
        """The release that an engine says it is or comes from; '' where it does not say."""
        if each.python is None:
            return each.version
        version = str(self._child(each.label).hello["version"])
        return version if install.RELEASE.match(version) else ""

    def close(self) -> None:
        """End all workers."""
        for child in self._children.values():
            child.close()
        self._children.clear()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self, label: str) -> Make:
        def make(policy: Policy, observer: Observer, seed: int) -> LiveScheduler:
            live = LiveScheduler(policy, observer, seed, self._child(label))
            for text in live.warnings:
                self._say(f"{label}: {text}")
            return live

        return make

    def _say(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)

    def _child(self, label: str) -> Child:
        """The worker of an engine; one that crashed is started anew, one that cannot start is not tried again."""
        if label in self._failed:
            raise self._failed[label]
        child = self._children.get(label)
        if child is None or child.closed:
            try:
                child = replace(self._labels[label].source(self.cache), name=label).open()
            except RefusedError as error:
                # Nothing runs on it: that is no feature which it lacks.
                self._failed[label] = EngineError(str(error))
                raise self._failed[label] from error
            except StateatError as error:
                self._failed[label] = error
                raise
            self._children[label] = child
        return child

    def _resolve(self, spec: str, preset: str) -> AskedEngine | None:
        """A spec's engine for a run of this preset; None for the reference engine."""
        each = self._engines[spec]
        if each is None and spec == OWN:
            each = of_release(preset.removeprefix("vllm-"))
            each = self._labels.setdefault(each.label, each)
        return each

    def _near(self, each: AskedEngine, own: str) -> str:
        """The preset of what is not asked of an engine (:data:`NOT_ASKED`): that of the release which it comes from, or
        the newest before that; ``own``, the variant's, where it does not say. A warning says which, and why."""
        version = ""
        # Why it does not start is told by each of its runs.
        with suppress(StateatError):
            version = self.says(each)
        preset = nearest(version) if version else own
        if version:
            order = "the oldest that there is" if is_newer(preset, version) else "the newest that is no newer"
            why = f"it comes from vLLM {version}, of which there is no preset: of {preset}, {order}, are {NOT_ASKED}"
        else:
            why = (
                "it does not say which release it comes from (no tag such as v0.33.0 in git, no vllm/_version.py, no "
                f"notes of a package): of {own}, the variant's own preset, are {NOT_ASKED}"
            )
        if f"vllm-{version}" not in presets.PRESETS and each.label not in self._failed:
            self._say(f"{each.label}: {why}")
        return preset

    def _on(self, run: Run, spec: str) -> Run:
        each = self._resolve(spec, run.options.preset)
        if each is None:
            return run
        options = replace(run.options, preset=self._near(each, run.options.preset), rules={})
        away = run.options.preset != f"vllm-{each.release}"
        expect: Mapping[str, Any] | None = CLEAN if away else run.expect
        compared = not run.options.rules
        if not compared:
            # With rules of its own it is not what any release does: nothing is asked of it, not even that it ends.
            expect = None
            # Beside a baseline, which ignores them too, it is.
            if not self._baseline:
                rules = ", ".join(f"{rule}={value}" for rule, value in run.options.rules.items())
                what = f"{each.label} runs its own rules, not {rules}; what is expected of them is not compared"
                self._say(f"{run.variant}: {what}")
        return replace(
            run,
            variant=f"{run.variant}@{each.label}",
            engine=each.label,
            options=options,
            expect=expect,
            elsewhere=away,
            compared=compared,
        )
