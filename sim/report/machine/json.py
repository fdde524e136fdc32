"""Results as JSON: the same bytes for the same scenario and seed, on every run and every machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from stateat.sim.events import Finding, Write
from stateat.sim.report.words.failures import plain
from stateat.sim.run.result import Failure, Outcome, Result, States
from stateat.sim.scenario.counts import COUNTS

PERCENTILES = ("p50", "p95", "p99")


def dumps(results: Result | Sequence[Result]) -> str:
    """Return one result as an object, several as a list, each with its ``path``; indented, in a fixed order of keys."""
    tree: Any = to_json(results) if isinstance(results, Result) else _of_files(results)
    return json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_json(result: Result) -> dict[str, Any]:
    """A result as plain data. Nothing in it depends on how long the run took."""
    tree: dict[str, Any] = {
        "scenario": result.scenario,
        "clock": result.clock,
        "variants": {name: _outcome(outcome) for name, outcome in result.variants.items()},
        "not_run": [
            {name: getattr(each, name) for name in ("variant", "case", "engine", "kind", "why")}
            for each in result.not_run
        ],
    }
    if result.baseline:
        tree["baseline"] = {
            "engine": result.baseline,
            "new": [_failure(failure) for failure in result.failed_expectations],
            "also_there": [_failure(failure) for failure in result.in_baseline],
        }
    return tree


def _of_files(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Files of one name in two folders are told apart by their paths."""
    return [{"path": result.path, **to_json(result)} for result in results]


def _failure(failure: Failure) -> dict[str, Any]:
    values = {"expected": plain(failure.expected), "found": plain(failure.found)}
    return {"variant": failure.variant, "case": failure.case, "key": failure.key, **values}


def _outcome(outcome: Outcome, is_case: bool = False) -> dict[str, Any]:
    counts = {name: getattr(outcome, name) for name, count in COUNTS.items() if count.in_json}
    tree: dict[str, Any] = {
        **{name: counts.pop(name) for name in ("poisoned", "poisoned_roots")},
        "findings": [finding_tree(finding) for finding in outcome.findings],
        **{name: count for name, count in counts.items() if name != "violated"},
        "ttft_us": _percentiles(outcome.ttft_us),
        "digest": outcome.digest,
        "ends": {request: list(ends) for request, ends in outcome.ends.items()},
        "hits": dict(outcome.hits),
        "loads": dict(outcome.loads),
    }
    if not is_case:
        tree["cases"] = {name: _outcome(case, is_case=True) for name, case in outcome.cases.items()}
    tree["violated"] = counts["violated"]
    if outcome.engine:
        tree["engine"] = outcome.engine
    if outcome.not_asked:
        tree["not_asked"] = list(outcome.not_asked)
    if outcome.states is not None:
        tree["states"] = _states(outcome.states)
    return tree


def finding_tree(finding: Finding) -> dict[str, Any]:
    """A finding as plain data."""
    return {
        "id": finding.id,
        "invariant": finding.invariant,
        "severity": finding.severity,
        "step": finding.step,
        "time_us": finding.time_us,
        "request": finding.request,
        "group": finding.group,
        "column": finding.column,
        "slot": finding.slot,
        "claimed": finding.claimed,
        "held": finding.held,
        "verdict": finding.verdict,
        "distance": None if finding.claimed is None or finding.held is None else finding.claimed - finding.held,
        "rel_error": _number(finding.rel_error),
        "root": finding.root,
        "readers": list(finding.readers),
        "message": finding.message,
        "write": _write(finding.write),
    }


def _states(states: States) -> dict[str, Any]:
    """Return what the arithmetic of a state family said."""
    return {
        **states.truth.keyed,
        "state_bytes": states.state_bytes,
        "checked": states.checked,
        "verdicts": dict(states.verdicts),
        "worst_noise": [{**noise, "rel_error": _number(noise["rel_error"])} for noise in states.worst],
        "nearest_wrong": _number(states.nearest_wrong),
    }


def _number(value: float | None) -> float | None:
    """Null where there is no number (JSON has no infinity)."""
    return value if value is not None and isfinite(value) else None


def _write(write: Write | None) -> dict[str, Any] | None:
    if write is None:
        return None
    return {name: getattr(write, name) for name in ("step", "request", "start", "end", "kind")}


def _percentiles(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return always the same keys; null where there is no number (JSON has no NaN)."""
    found = {name: values.get(name) for name in PERCENTILES}
    return {name: _number(value) for name, value in found.items()}
