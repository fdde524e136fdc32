"""The engines that ``--engine`` and ``--vllm-python`` name: which run goes on which, and the processes behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.adapters.vllm import install
from sim.adapters.vllm.engine import LiveScheduler
from sim.adapters.vllm.process import Child
from sim.engine import presets
from sim.engine.options import Options
from sim.engine.rules import Rules
from sim.errors import InputError
from sim.events import Observer
from sim.scenario import Run

REFERENCE = "reference"
PREFIX = "vllm:"
CLEAN = {"poisoned": 0}
"""What is expected of a run on a release for which the file expects nothing."""
Make = Callable[[Options, Rules, Observer, int], LiveScheduler]
"""(options, rules in force, observer, seed): a scheduler that has not stepped yet."""


class Fleet:
    """Started workers, one a release, shared by all runs on it; close it when done.

    ``specs``: ``reference``, ``vllm`` (each variant on its preset's release), ``vllm:0.27.0`` or ``vllm:FOLDER`` (a
    checkout). ``python``: a Python that has vLLM; it stands for ``vllm``, and for all where nothing is named. Raises
    InputError for what is not installed and EngineError for what does not start.
    """

    def __init__(
        self,
        specs: Sequence[str],
        python: Path | None = None,
        *,
        cache: Path = install.CACHE,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.specs = list(dict.fromkeys(specs)) or (["vllm"] if python is not None else [REFERENCE])
        self.python = python
        self.cache = cache
        self._warn = warn
        self._warned: set[str] = set()
        self._children: dict[str, Child] = {}
        if python is not None and "vllm" not in self.specs:
            raise InputError(f"--vllm-python: found --engine {self.specs[0]}, allowed with --engine vllm, or alone")
        for spec in self.specs:
            if spec not in (REFERENCE, "vllm") and not (spec.startswith(PREFIX) and spec != PREFIX):
                raise InputError(f"--engine {spec}: allowed are reference, vllm, vllm:RELEASE and vllm:FOLDER")

    @property
    def live(self) -> bool:
        """Whether any engine is not the reference."""
        return self.specs != [REFERENCE]

    @property
    def has_reference(self) -> bool:
        """Whether the reference engine is one of them."""
        return REFERENCE in self.specs

    def spread(self, run: Run) -> list[Run]:
        """A run on each engine, as NAME@vllm:X without its rules.

        On a release that is not its preset's it must poison nothing and end; with rules of its own it is not judged.
        """
        return [
            run if spec == REFERENCE else self._on(run, self._resolve(spec, run.options.preset)) for spec in self.specs
        ]

    def maker(self, run: Run) -> Make | None:
        """What makes the scheduler of a run that :meth:`spread` gave; None for the reference engine."""
        _, sign, name = run.variant.rpartition("@")
        child = self._children.get(name) if sign else None
        return None if child is None else self._make(child)

    def live_release(self, preset: str) -> tuple[str, Make]:
        """The one live engine that stands for a preset's release: its version, and what makes its scheduler."""
        name = self._resolve(self.specs[0], preset)
        return name.removeprefix(PREFIX), self._make(self._children[name])

    def close(self) -> None:
        """End all workers."""
        for child in self._children.values():
            child.close()
        self._children.clear()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self, child: Child) -> Make:
        def make(options: Options, rules: Rules, observer: Observer, seed: int) -> LiveScheduler:
            live = LiveScheduler(options, rules, observer, seed, child)
            for text in live.warnings:
                if text not in self._warned:
                    self._warned.add(text)
                    self._warn(f"{child.name}: {text}")
            return live

        return make

    def _resolve(self, spec: str, preset: str) -> str:
        """A spec's engine for a run of this preset, as ``vllm:VERSION``; its worker starts when it is first used."""
        if spec == "vllm" and self.python is not None:
            return self._start("python", install.of_python(self.python))
        if spec == "vllm":
            spec = PREFIX + preset.removeprefix("vllm-")
        what = spec.removeprefix(PREFIX)
        if "/" in what or what.startswith((".", "~")):
            return self._start(spec, install.of_checkout(Path(what).expanduser(), cache=self.cache))
        if spec not in self._children:
            self._children[spec] = install.of_release(what, cache=self.cache).open()
        return spec

    def _start(self, key: str, source: install.Source) -> str:
        for name, child in self._children.items():
            if child.name == source.name:
                return name
        child = source.open()
        name = PREFIX + str(child.hello["version"] or key)
        self._children[name] = child
        return name

    def _on(self, run: Run, name: str) -> Run:
        preset = "vllm-" + name.removeprefix(PREFIX)
        nearest = preset if preset in presets.PRESETS else next(reversed(presets.PRESETS))
        options = replace(run.options, preset=nearest, rules={})
        away = run.options.preset != preset
        if nearest != preset:
            text = f"{name} has no preset: {nearest} stands in where it is not asked (what a worker reads and writes)"
            if text not in self._warned:
                self._warned.add(text)
                self._warn(text)
        expect: Mapping[str, Any] | None = CLEAN if away else run.expect
        compared = not run.options.rules
        if not compared:
            # With rules of its own it is not what any release does: nothing is asked of it, not even that it ends.
            expect = None
            rules = ", ".join(f"{rule}={value}" for rule, value in run.options.rules.items())
            text = f"{run.variant}: {name} runs its own rules, not {rules}; what is expected of them is not compared"
            if text not in self._warned:
                self._warned.add(text)
                self._warn(text)
        named = f"{run.variant}@{name}"
        return replace(run, variant=named, options=options, expect=expect, elsewhere=away, compared=compared)
