"""Checks that types cannot make: impossible geometry, names that must exist, expectations that prove nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import gcd, lcm
from typing import Any

from stateat.sim.options import Options, Speculative, least_blocks
from stateat.sim.scenario import truth
from stateat.sim.scenario.counts import pins_to_zero
from stateat.sim.scenario.models import Whole
from stateat.sim.schema import Complaint, choice
from stateat.sim.workload import inline, named_states


def whole(model: Whole) -> Iterator[Complaint]:
    """Problems of a variant and case as a whole."""
    yield from _below(("engine",), engine(model.engine))
    yield from _below(("workload",), _workload(model))
    found = truth.wrong(model.oracle, any(group.kind == "recurrent" for group in model.engine.groups))
    if found is not None:
        yield ("oracle", found[0]), found[1]


def _below(prefix: tuple[str, ...], complaints: Iterator[Complaint]) -> Iterator[Complaint]:
    for location, text in complaints:
        yield (*prefix, *location), text


def engine(model: Options) -> Iterator[Complaint]:
    """Problems of an engine."""
    yield from names(model)
    yield from _groups(model)
    yield from _lacks(model)
    least = least_blocks(len(model.groups), model.speculative.num_speculative_tokens)
    if model.num_blocks < least:
        yield (
            ("num_blocks",),
            f"found {model.num_blocks}, allowed at least {least}: the null block, one for each group "
            f"({len(model.groups)}) and one for each draft ({model.speculative.num_speculative_tokens})",
        )
    yield from _state_pool(model)
    for name in model.group_times_to_live:
        if name not in (known := [g.name for g in model.groups if g.prefix_cacheable]):
            yield ("group_times_to_live", name), choice(name, known)
    if model.offload.blocks and not model.enable_prefix_caching:
        yield (
            ("offload", "blocks"),
            f"found {model.offload.blocks}, allowed 0 without enable_prefix_caching: only what is published is stored",
        )
    yield from _below(("speculative",), _drafts(model.speculative))


def _drafts(model: Speculative) -> Iterator[Complaint]:
    """Problems of proposals: more drafts than K, and sizes of batches for which none or two numbers are named."""
    most = model.num_speculative_tokens
    if model.accepted_drafts is not None and model.acceptance_rate is not None:
        yield (), "found accepted_drafts and acceptance_rate, allowed one of them"
    for key in ("accepted_drafts", "proposed_drafts"):
        for i, drafts in enumerate(getattr(model, key) or ()):
            if drafts > most:
                yield (key, i), f"found {drafts}, allowed 0 to {most} (num_speculative_tokens)"
    key = "num_speculative_tokens_per_batch_size"
    ranges = model.num_speculative_tokens_per_batch_size or ()
    if ranges and not most:
        yield (key,), "found ranges, allowed none without drafts (num_speculative_tokens)"
    elif ranges and model.method == "suffix":
        yield (key,), "found ranges, allowed none with method suffix: its drafter is always asked for K"
    before = 0
    for i, (first, last, drafts) in sorted(enumerate(ranges), key=lambda entry: entry[1]):
        if first > last:
            yield (key, i, 1), f"found {last}, allowed {first} (the range's first) or more"
        elif not before and first > 1:
            yield (key, i, 0), f"found {first}, allowed 1 for the first range: every number of requests has one"
        elif first <= before:
            yield (key, i, 0), f"found {first}, allowed more than {before}, the last of the range before"
        if drafts > most:
            yield (key, i, 2), f"found {drafts}, allowed 0 to {most} (num_speculative_tokens)"
        before = max(before, last)


def _state_pool(model: Options) -> Iterator[Complaint]:
    """Problems of a pool apart for states."""
    states = sum(group.kind == "recurrent" for group in model.groups)
    least = states * (1 + model.speculative.num_speculative_tokens)
    if model.num_state_blocks and not states:
        yield ("num_state_blocks",), f"found {model.num_state_blocks}, allowed 0 without a recurrent group"
    elif 0 < model.num_state_blocks < least:
        yield (
            ("num_state_blocks",),
            f"found {model.num_state_blocks}, allowed 0 or at least {least}: one and one for each draft "
            f"({model.speculative.num_speculative_tokens}) of each recurrent group ({states})",
        )


def _lacks(model: Options) -> Iterator[Complaint]:
    """Options that the release does not have."""
    from stateat.sim.releases.presets import table
    from stateat.sim.releases.support import lacks

    if not any(names(model)):
        yield from lacks(model.over_ranks(), table(model.preset, model.rules))
    interval, blocks = model.prefix_cache_retention_interval, _spans(model)
    sparse = [g.name for g in model.groups if g.kind == "recurrent" or g.sliding_window]
    if interval and not sparse:
        yield (
            ("prefix_cache_retention_interval",),
            f"found {interval}, allowed 0 or none without a recurrent group or a sliding window: "
            "full attention keeps all",
        )
    places: list[tuple[tuple[str, ...], int | None]] = [(("prefix_cache_retention_interval",), interval)]
    for name, own in model.group_retention_intervals.items():
        if name not in sparse:
            text = choice(name, sparse) if sparse else f"found {name!r}, allowed none without such a group"
            yield ("group_retention_intervals", name), f"{text} (a recurrent group, or one with a sliding window)"
        places.append((("group_retention_intervals", name), own))
    for place, tokens in places:
        if tokens and blocks and tokens % lcm(*blocks):
            yield place, f"found {tokens}, allowed 0 or a multiple of the scheduler block {lcm(*blocks)}"


def _spans(model: Options) -> list[int]:
    return [g.block_size for g in model.over_ranks().groups if g.prefix_cacheable]


def _groups(model: Options) -> Iterator[Complaint]:
    seen: dict[str, int] = {}
    for i, group in enumerate(model.groups):
        if group.name in seen:
            yield ("groups", i, "name"), f"found {group.name!r} again, allowed a name other than that of a group before"
        seen.setdefault(group.name, i)
    cacheable = _spans(model)
    if not cacheable:
        yield ("groups",), "found no group with prefix_cacheable, allowed at least one"
    unit = model.prefix_match_unit or gcd(*cacheable)
    for i, group in enumerate(model.over_ranks().groups):
        yield from _kind_of(i, model)
        if group.prefix_cacheable and group.block_size % unit:
            yield (
                ("groups", i, "block_size"),
                f"found {group.block_size} in group {group.name!r}, allowed a multiple of the hash unit {unit} "
                "(prefix_match_unit)",
            )


def _kind_of(i: int, model: Options) -> Iterator[Complaint]:
    """Problems of a group: what a recurrent one, or one beside an offload tier, cannot have."""
    group = model.groups[i]
    odd = []
    if group.sliding_window:
        odd.append(("sliding_window", str(group.sliding_window), "0"))
    if not group.prefix_cacheable:
        odd.append(("prefix_cacheable", "false", "true"))
    for key, found, plain in odd:
        if group.kind == "recurrent":
            yield ("groups", i, key), f"found {found} in a recurrent group, allowed {plain}"
        elif model.offload.blocks:
            yield ("groups", i, key), f"found {found}, allowed {plain} with engine.offload"


def names(model: Options) -> Iterator[Complaint]:
    """Presets and rules that do not exist."""
    from stateat.sim.releases.presets import PRESETS

    if model.preset not in PRESETS:
        yield ("preset",), choice(model.preset, PRESETS)
    for name, value in model.rules.items():
        wrong = rule(name, value)
        if wrong:
            yield ("rules", name), wrong


def rule(name: str, value: str) -> str:
    """Return what is wrong with a rule and its value; nothing where they are known."""
    from stateat.sim.releases.rules import check

    try:
        check(name, value)
    except ValueError as error:
        return str(error)
    return ""


def _workload(model: Whole) -> Iterator[Complaint]:
    cap = model.engine.max_num_batched_tokens
    for i, budget in enumerate(model.workload.budgets):
        if budget > cap:
            yield ("budgets", i), f"found {budget}, allowed at most {cap} (max_num_batched_tokens)"
    yield from _named(model)
    if model.workload.requests is not None:
        drafts = model.engine.speculative.num_speculative_tokens
        complaints = inline.check(model.workload.requests, model.engine.max_model_len, drafts)
        yield from _below(("requests",), complaints)


def _named(model: Whole) -> Iterator[Complaint]:
    """Problems of the states that are placed or evicted by name."""
    engine, written = model.engine, model.workload.requests
    groups = {group.name: group.prefix_cacheable for group in engine.groups}
    unit = engine.over_ranks().hash_unit if _spans(engine) else 1
    for key, states in (("evict", model.workload.evict), ("place", model.workload.place)):
        if states and not engine.enable_prefix_caching:
            yield (key,), f"found {len(states)} states, allowed none without enable_prefix_caching"
        ids = None if written is None else [request.id for request in written]
        yield from _below((key,), named_states.check(states, groups, ids, unit))


def expectation(
    expect: Mapping[str, Any],
    requests: Collection[str] | None,
    groups: Collection[str],
    cases: Collection[str],
    tier: bool = False,
) -> Iterator[Complaint]:
    """Problems of a variant's expectation: unknown names, and "clean" without a hit.

    ``requests`` is None where the ids are not written in the file. ``tier``: whether there is a tier below the pool,
    so that what is loaded may come from it.
    """
    parts: list[tuple[tuple[str, ...], Mapping[str, Any]]] = [((), expect)]
    for name, part in (expect.get("cases") or {}).items():
        if name not in cases:
            yield ("cases", name), choice(name, cases)
        parts.append((("cases", name), part))
    for place, part in parts:
        yield from _below(place, _known(part, requests, groups))
    clean = [place for place, part in parts if pins_to_zero(part.get("poisoned"))]
    if clean and not any(_expects_hits(part, tier) or part.get("vacuous") for _, part in parts):
        yield (
            (*clean[0], "poisoned"),
            "found poisoned pinned to 0 and no hit expected, which proves nothing; allowed with hit_tokens, "
            f"resume_hit_tokens{', loaded_tokens, loads' if tier else ''} or hits of a positive minimum, "
            "or with `vacuous: why`",
        )


def _known(part: Mapping[str, Any], requests: Collection[str] | None, groups: Collection[str]) -> Iterator[Complaint]:
    for key in ("ends", "hits", "loads"):
        for name in part.get(key) or {}:
            if requests is not None and name not in requests:
                yield (key, name), choice(name, requests)
    findings = part.get("findings")
    listed = isinstance(findings, list)
    prefix: tuple[str, ...] = ("findings",) if listed else ("findings", "contains")
    entries = findings if listed else (findings or {}).get("contains", ())
    for i, finding in enumerate(entries or ()):
        request, group = finding.get("request"), finding.get("group")
        if request and requests is not None and request not in requests:
            yield (*prefix, i, "request"), choice(request, requests)
        if group and group not in groups:
            yield (*prefix, i, "group"), choice(group, groups)


def _positive(number: Any) -> bool:
    return bool((number.get("min") or 0) > 0 if isinstance(number, Mapping) else number)


def _expects_hits(part: Mapping[str, Any], tier: bool) -> bool:
    numbers = [part.get("hit_tokens"), part.get("resume_hit_tokens"), *(part.get("hits") or {}).values()]
    if tier:
        numbers += [part.get("loaded_tokens"), *(part.get("loads") or {}).values()]
    return any(_positive(number) for number in numbers)
