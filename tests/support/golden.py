"""Recorded decisions of released vLLM schedulers (``engine-golden/1``), and our engine under the same load."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sim.engine.options import Options, Speculative
from sim.events import Finding, Group, Observer
from sim.replay import drive
from sim.result import Outcome
from sim.workload import Arrival

RELEASES = ("0.26.0", "0.27.0")
NOT_MODELLED = ("draft_slots", "multi_module_mtp")


def recordings(folder: Path) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """(name, release, scenario, recorded result) of what the presets can be held to."""
    for path in sorted(folder.glob("*.json.gz")):
        with gzip.open(path) as stream:
            data = json.load(stream)
        config = data["scenario"]["config"]
        if config.get("mamba_cache_mode", "align") != "align" or any(config.get(key) for key in NOT_MODELLED):
            continue
        for release in RELEASES:
            result = data["results"].get(release)
            while result is not None and "same_as" in result:
                result = data["results"][result["same_as"]]
            if result is not None and result["status"] == "ok":
                yield path.name.removesuffix(".json.gz"), release, data["scenario"], result


def options_of(config: dict[str, Any], release: str) -> Options:
    """A recorded configuration as options."""
    eagle = config.get("eagle", False)
    flagged = eagle and config.get("eagle_groups", "attn") == "attn"
    return Options(
        groups=(
            Group("attention", "full-attention", config.get("attention_block_size", 16), flagged),
            Group("mamba", "recurrent", config.get("mamba_block_size", 1600)),
        ),
        preset=f"vllm-{release}",
        rules={"worker": config.get("worker", "v2")},
        num_blocks=config.get("num_blocks", 4000),
        max_num_batched_tokens=config.get("max_num_batched_tokens", 8192),
        max_num_seqs=config.get("max_num_seqs", 128),
        max_model_len=config.get("max_model_len", 266_240),
        long_prefill_token_threshold=config.get("long_prefill_token_threshold", 0),
        partial_hits=config.get("partial_hits", True),
        prefix_match_unit=config.get("hash_block_size"),
        cache_config_block_size=config.get("cache_config_block_size"),
        watermark=config.get("watermark", 0.0),
        scheduler_reserve_full_isl=config.get("reserve_full_isl", True),
        speculative=Speculative("mtp" if eagle else "ngram", config.get("num_speculative_tokens", 0)),
        clock="steps",
    )


def arrivals_of(requests: Sequence[dict[str, Any]]) -> list[Arrival]:
    """Recorded requests."""
    return [
        Arrival(
            r["id"],
            i,
            r["arrival_step"],
            tuple((seed, length) for seed, length in r["segments"]),
            r["max_tokens"],
            tuple(r.get("accepted", [0])),
        )
        for i, r in enumerate(requests)
    ]


class Decisions(Observer):
    """What a recording holds of a run, heard from our engine."""

    def __init__(self) -> None:
        self.index = 0
        self.scheduled: dict[int, list[tuple[str, int, int, int]]] = {}
        self.preempted: dict[int, list[str]] = {}
        self.hits: dict[str, int] = {}
        self.claims: Counter[tuple[int, str, int]] = Counter()
        self.evictions: dict[tuple[int, int], list[int]] = {}
        self.deferred: list[tuple[int, str]] = []
        self.copies: Counter[tuple[int, str]] = Counter()
        self.finished: dict[str, int] = {}
        self._offsets: dict[int, dict[bytes, int]] = {}

    def run(
        self, schema: str, engine: str, groups: tuple[Group, ...], num_speculative_tokens: int, options: dict[str, Any]
    ) -> None:
        self._recurrent = [group.recurrent for group in groups]

    def step(self, index: int, time_us: int, budget: int) -> None:
        self.index = index

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        if not steps:
            self.scheduled.setdefault(self.index, []).append((request, start, end, drafts))
        for i, right in enumerate(accepted):
            row = (request, start, start + 1 + drafts, drafts)
            self.scheduled.setdefault(self.index - steps + i, []).append(row)
            start += right + 1

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        self.hits.setdefault(request, hit)

    def preempt(self, request: str) -> None:
        self.preempted.setdefault(self.index, []).append(request)

    def refuse(self, request: str, reason: str) -> None:
        if reason == "same_step":
            self.deferred.append((self.index, request))

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        self.claims[self.index, request, offset] += 1
        self._offsets.setdefault(slot, {})[hash] = offset

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        offset = self._offsets[slot].pop(hash)
        if why == "evict":
            self.evictions.setdefault((self.index, slot), []).append(offset)

    def copy(self, request: str, group: int, kind: str, src: int, dst: int, conv_src: int, shift: int) -> None:
        # The recordings follow states, not attention.
        self.copies[self.index, kind] += self._recurrent[group]

    def finish(self, request: str) -> None:
        self.finished[request] = self.index


def differences(scenario: dict[str, Any], recorded: dict[str, Any], release: str, fast_forward: bool) -> list[str]:
    """What our engine decides or finds otherwise than was recorded; [] for nothing."""
    ours = Decisions()
    options = options_of(scenario["config"], release)
    outcome = drive(options, arrivals_of(scenario["requests"]), observers=[ours], fast_forward=fast_forward)
    pairs = [*_decisions(recorded, ours), *_physical(recorded, ours, outcome)]
    return [f"{name}: recorded {theirs!r}, ours {own!r}" for name, theirs, own in pairs if theirs != own]


def _decisions(recorded: dict[str, Any], ours: Decisions) -> Iterator[tuple[str, Any, Any]]:
    for step in recorded["steps"]:
        n = step["n"]
        yield f"step {n}", sorted(map(tuple, step["scheduled"])), sorted(ours.scheduled.get(n, []))
        yield f"preempted in step {n}", step["preempted"], ours.preempted.get(n, [])
    yield "hits", {name: hit[0] for name, hit in recorded["hits"].items()}, ours.hits
    yield "same-step refusals", [tuple(row) for row in recorded["deferred"]], ours.deferred
    yield "finished", recorded["finished"], ours.finished
    yield "claims", Counter((row[0], row[1], row[3]) for row in recorded["claims"]), ours.claims
    theirs = Counter((row[0], tuple(sorted(row[2]))) for row in recorded["evictions"])
    yield "evictions", theirs, Counter((step, tuple(sorted(row))) for (step, _), row in ours.evictions.items())
    yield "copies", Counter((row[0], row[2]) for row in recorded["copies"] if row[2] != "ckpt"), +ours.copies


def _physical(recorded: dict[str, Any], ours: Decisions, outcome: Outcome) -> Iterator[tuple[str, Any, Any]]:
    yield "poisoned", sorted(map(_recorded_poison, recorded["poisoned"])), sorted(_poison(outcome.findings))
    yield "wrong restores", len(recorded["wrong_resumes"]), outcome.wrong_restores
    yield "wrong reads", len(recorded["wrong_reads"]), outcome.wrong_reads
    boundaries = recorded["boundaries"].values()
    yield "null boundaries", sum(len(b["null"]) for b in boundaries), outcome.null_boundaries
    yield "materialized", sum(len(b["materialized"]) for b in boundaries), outcome.materialized_boundaries
    yield "livelock", recorded["livelock"], outcome.livelock


def _recorded_poison(row: list[Any]) -> tuple[int, str, int, int]:
    return row[0], row[1], row[3], -1 if row[4] is None else row[4]


def _poison(findings: Sequence[Finding]) -> Iterator[tuple[int, str, int, int]]:
    for f in findings:
        if f.invariant == "I1":
            assert f.claimed is not None
            yield f.step, f.request, f.claimed, -1 if f.held is None else f.held
