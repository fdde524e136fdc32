"""Recorded decisions of real releases: one scenario a file, a result for each release.

``engine-golden/1`` has synchronous schedulers; ``engine-golden-async/1`` asynchronous ones, whose steps and ends are
told in another way, and are read as the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, Strict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from stateat.sim.errors import InputError
from stateat.sim.events import Group
from stateat.sim.inputs import MAX_RECORDING, as_json, read_bytes, shown
from stateat.sim.options import Options, Speculative
from stateat.sim.tokens import MAX_TOKENS
from stateat.sim.workload import Arrival

SYNCHRONOUS, ASYNCHRONOUS = "engine-golden/1", "engine-golden-async/1"
FORMATS = (SYNCHRONOUS, ASYNCHRONOUS)
MIRROR = {"restore_column": "state-block", "undrafted_rows": "accepted-state"}
"""Rules of the worker that recordings of all releases mirror, whatever the release's own did; the runner they name."""

Int = Annotated[int, Strict()]
Bool = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(ge=0, le=1 << 40)]
Size = Annotated[int, Strict(), Field(ge=1, le=1 << 40)]
Share = Annotated[float, Field(ge=0, lt=1)]
Row = tuple[str, Int, Int, Int]


@with_config(ConfigDict(extra="forbid"))
class Config(TypedDict, total=False):
    """Configuration of an engine; what is missing has the default of :func:`options_of`."""

    attention_block_size: Size
    mamba_block_size: Size
    hash_block_size: Size | None
    cache_config_block_size: Size | None
    num_blocks: Annotated[int, Strict(), Field(ge=2, le=1 << 24)]
    max_num_batched_tokens: Size
    max_num_seqs: Size
    long_prefill_token_threshold: Count
    num_speculative_tokens: Annotated[int, Strict(), Field(ge=0, le=1024)]
    eagle: Bool
    eagle_block_drop: Bool
    hash_lookahead: Bool
    eagle_groups: Literal["attn", "all"]
    partial_hits: Bool
    mamba_cache_mode: Literal["align", "all"]
    num_prefill_checkpoint_blocks: Count
    prefill_checkpoint_alignment: Size
    retention_interval: Count | None
    shared_prefix_checkpoint: Bool
    watermark: Share
    reserve_full_isl: Bool
    max_model_len: Annotated[int, Strict(), Field(ge=1, le=MAX_TOKENS >> 1)]
    multi_module_mtp: Bool
    draft_slots: Count
    worker: Literal["v1", "v2"]
    max_steps: Size


@with_config(ConfigDict(extra="forbid"))
class RecordedRequest(TypedDict):
    """Request, and how many of its drafts are accepted, verification by verification, in turn."""

    id: Annotated[str, Field(min_length=1)]
    arrival_step: Count
    segments: Annotated[list[tuple[Int, Size]], Field(min_length=1)]
    max_tokens: Size
    accepted: NotRequired[Annotated[list[Count], Field(min_length=1)]]
    abort_step: NotRequired[Count]
    abort_late: NotRequired[Count]


class RecordedScenario(TypedDict):
    """Scenario that was run: a configuration and its requests."""

    config: Config
    requests: list[RecordedRequest]
    id: NotRequired[str]


class RecordedStep(TypedDict):
    """Step ``n``: (request, start, end, drafts) of each chunk, and who was preempted."""

    n: Count
    scheduled: list[Row]
    preempted: list[str]


class RecordedBoundaries(TypedDict):
    """Boundaries of a request: those without a state (null), and those with one."""

    null: list[Any]
    materialized: list[Any]


class RecordedDecisions(TypedDict):
    """Decisions of a release: the fields that are compared."""

    status: Literal["ok"]
    steps: list[RecordedStep]
    hits: dict[str, Annotated[list[Int], Field(min_length=1)]]
    deferred: list[tuple[Int, str]]
    claims: list[tuple[Int, str, Int, Int, Int]]
    evictions: list[tuple[Int, Int, list[Int]]]
    launches: list[tuple[Int, str, Int, Int, Int, Int, Int]]
    copies: list[tuple[Int, str, str, Int, Int]]
    poisoned: list[tuple[Int, str, Int, Int, Int | None, Int]]
    wrong_resumes: list[Any]
    wrong_reads: list[Any]
    boundaries: dict[str, RecordedBoundaries]
    finished: dict[str, Int]
    livelock: Bool
    free_blocks_end: Int
    truncated: NotRequired[Bool]


class AsynchronousDecisions(RecordedDecisions):
    """Decisions of an asynchronous scheduler. A row of a step is (request, start, tokens, drafts), with the start that
    the scheduler counts."""

    finished: dict[str, tuple[Int, Int]]  # type: ignore[misc]
    """(step whose outcome ended the request, step in which that was heard)"""


_SCENARIO = TypeAdapter(RecordedScenario)
_RESULT: Mapping[str, TypeAdapter[Any]] = {
    SYNCHRONOUS: TypeAdapter(RecordedDecisions),
    ASYNCHRONOUS: TypeAdapter(AsynchronousDecisions),
}


@dataclass(frozen=True, slots=True)
class Recording:
    """Recording of one scenario, as one release decided it."""

    scenario: str
    release: str
    config: Mapping[str, Any]
    requests: Sequence[Mapping[str, Any]]
    result: Mapping[str, Any]
    """Decisions (:class:`RecordedDecisions`), or a ``status`` alone if the release does not run this."""
    asynchronous: bool = False


def read(path: Path, releases: Sequence[str] = ()) -> list[Recording]:
    """Read the recordings of a file, of all releases or of some. Raises InputError if it is no such file."""
    data = _json(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: found {type(data).__name__}, allowed a mapping ({SYNCHRONOUS})")
    form = data.get("format")
    if form not in FORMATS:
        allowed = " or ".join(map(repr, FORMATS))
        raise InputError(f"{path}: format: found {shown(form)}, allowed {allowed}")
    scenario = _checked(path, "scenario", _SCENARIO, data.get("scenario"))
    _check_scenario(path, scenario)
    results = data.get("results")
    if not (isinstance(results, dict) and results):
        raise InputError(f"{path}: results: found {as_json(results)}, allowed a mapping of releases")
    found, seen = [], dict[int, Any]()
    for release in sorted(results, key=lambda name: _version(path, name)):
        body = _body(path, results, release)
        if releases and release not in releases:
            continue
        if id(body) not in seen:
            skipped = body.get("status") in ("unsupported", "crash")
            seen[id(body)] = body if skipped else _decisions(path, form, f"results.{release}", body)
        name = scenario.get("id", path.name.split(".")[0])
        decisions, asynchronous = seen[id(body)], form == ASYNCHRONOUS
        found.append(Recording(name, release, scenario["config"], scenario["requests"], decisions, asynchronous))
    return found


def _decisions(path: Path, form: str, where: str, body: Any) -> Mapping[str, Any]:
    """Check a release's decisions; asynchronous ones are told as synchronous ones are, with the worker's starts."""
    read: dict[str, Any] = _checked(path, where, _RESULT[form], body)
    if form == SYNCHRONOUS:
        return read
    starts = {(n, request): start for n, request, start, *_ in read["launches"]}
    for step in read["steps"]:
        rows = []
        for request, _, tokens, drafts in step["scheduled"]:
            if (step["n"], request) not in starts:
                raise InputError(f"{path}: {where}.launches: found none of {request} in step {step['n']}, allowed one")
            start = starts[step["n"], request]
            rows.append((request, start, start + tokens, drafts))
        step["scheduled"] = rows
    return read | {"finished": {name: heard for name, (_, heard) in read["finished"].items()}}


def _json(path: Path) -> Any:
    raw = read_bytes(path, MAX_RECORDING, f"a recording ({SYNCHRONOUS})", packed=True)
    try:
        return json.loads(raw)
    except RecursionError as error:
        raise InputError(f"{path}: not a recording ({SYNCHRONOUS}): nested too deeply") from error
    except ValueError as error:
        raise InputError(f"{path}: not a recording ({SYNCHRONOUS}): {error}") from error


def _version(path: Path, name: str) -> list[int]:
    parts = name.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 9 for part in parts):
        raise InputError(f"{path}: results: found {shown(name)}, allowed releases such as 0.27.0")
    return [int(part) for part in parts]


def _body(path: Path, results: Mapping[str, Any], release: str) -> Any:
    """Find the decisions of a release, which may be said by reference to another one (``same_as``)."""
    passed, name = [release], release
    while True:
        body = results[name]
        if not isinstance(body, dict):
            raise InputError(f"{path}: results.{name}: found {as_json(body)}, allowed a mapping")
        if "same_as" not in body:
            return body
        name = body["same_as"]
        if not isinstance(name, str) or name not in results or name in passed:
            raise InputError(f"{path}: results.{passed[-1]}.same_as: found {as_json(name)}, allowed another release")
        passed.append(name)


def _checked(path: Path, where: str, adapter: TypeAdapter[Any], value: Any) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        # A place in a union names its branch too.
        place = ".".join([where, *(str(part) for part in first["loc"] if "[" not in str(part))])
        found = "nothing" if first["type"] == "missing" else as_json(first["input"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise InputError(f"{path}: {place}: found {found}: {first['msg']}{more}") from None


def _check_scenario(path: Path, scenario: RecordedScenario) -> None:
    config = scenario["config"]
    attention, mamba = config.get("attention_block_size", 16), config.get("mamba_block_size", 1600)
    unit = config.get("hash_block_size")
    if unit and gcd(attention, mamba) % unit:
        allowed = f"a divisor of {attention} and {mamba}"
        raise InputError(f"{path}: scenario.config.hash_block_size: found {unit}, allowed {allowed}")
    names, longest = [r["id"] for r in scenario["requests"]], config.get("max_model_len", 266_240)
    for i, request in enumerate(scenario["requests"]):
        place = f"{path}: scenario.requests.{i}"
        if names.index(request["id"]) != i:
            raise InputError(f"{place}.id: found {shown(request['id'])} again, allowed another name")
        if (tokens := sum(length for _, length in request["segments"])) >= longest:
            raise InputError(f"{place}.segments: found {tokens} tokens, allowed fewer than max_model_len ({longest})")
        if any(seed < -len(names) or seed >= 1 << 31 for seed, _ in request["segments"]):
            raise InputError(f"{place}.segments: found an unknown seed, allowed {-len(names)} to {(1 << 31) - 1}")


def options_of(config: Mapping[str, Any], release: str, asynchronous: bool = False) -> Options:
    """Turn a recorded configuration into options of our engine, with the preset of ``release``."""
    eagle = config.get("eagle", False)
    flagged = eagle and config.get("eagle_groups", "attn") == "attn"
    mode = config.get("mamba_cache_mode", "align")
    return Options(
        groups=(
            Group("attention", "full-attention", config.get("attention_block_size", 16), flagged),
            Group("mamba", "recurrent", config.get("mamba_block_size", 1600), mamba_cache_mode=mode),
        ),
        preset=f"vllm-{release}",
        rules={**MIRROR, "worker": config.get("worker", "v2")},
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
        num_prefill_checkpoint_blocks=config.get("num_prefill_checkpoint_blocks", 0),
        prefill_checkpoint_alignment=config.get("prefill_checkpoint_alignment", 1),
        prefix_cache_retention_interval=config.get("retention_interval"),
        shared_prefix_checkpoint=config.get("shared_prefix_checkpoint", False),
        speculative=Speculative(
            # Asynchronously no drafter proposes from tokens that the CPU has not seen.
            "mtp" if eagle else "ngram_gpu" if asynchronous else "ngram",
            config.get("num_speculative_tokens", 0),
            draft_slots=config.get("draft_slots", 0),
            multi_module=config.get("multi_module_mtp", False),
            block_drop=config.get("eagle_block_drop", True),
            hash_lookahead=config.get("hash_lookahead", True),
        ),
        async_scheduling=asynchronous,
        clock="steps",
    )


def arrivals_of(requests: Sequence[Mapping[str, Any]]) -> list[Arrival]:
    """Turn recorded requests into arrivals; their times are step numbers."""
    return [
        Arrival(
            r["id"],
            i,
            r["arrival_step"],
            tuple((seed, length) for seed, length in r["segments"]),
            r["max_tokens"],
            tuple(r.get("accepted", [0])),
            abort=r.get("abort_step", r.get("abort_late")),
            abort_late="abort_late" in r,
        )
        for i, r in enumerate(requests)
    ]
