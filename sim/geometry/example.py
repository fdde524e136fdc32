"""A scenario with a derived geometry: the groups, the drafter, the budget, and requests that share prefixes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import inf, lcm
from typing import Any

from stateat.sim.errors import InputError
from stateat.sim.geometry.layout import Geometry
from stateat.sim.options import Options
from stateat.sim.releases.runners import rules_of
from stateat.sim.scenario.models import SCHEMA

LAYERS = {"gated-delta": "gdn", "kda": "kda", "ssd": "mamba", "selective-scan": "mamba", "short-conv": "conv"}
"""Names of groups, by state family."""
OLD_GATE = "vllm-0.26.0"
"""The last release whose chunks run across a boundary below the reach of a look-ahead drafter."""
BLOCKS = 4
"""Blocks of the prefix that the long prompts share."""


def options(geometry: Geometry) -> Options:
    """The engine's configuration with this geometry, which tells its grid, hash unit and shortest cacheable prompt."""
    return _validated(geometry).over_ranks()


def _validated(geometry: Geometry) -> Options:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(Options).validate_python(_engine(geometry))
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key = next((str(part) for part in reversed(wrong["loc"]) if isinstance(part, str)), "")
        if key == "groups":
            count = geometry.attention_groups + geometry.recurrent_groups
            raise InputError(
                f"{geometry.model.name}: found {count} groups of {geometry.layers_per_group} layers, allowed at most "
                f"{wrong['ctx']['max_length']}"
            ) from None
        text = f"{wrong['msg'][0].lower()}{wrong['msg'][1:]}"
        raise InputError(f"--{key.replace('_', '-')}: found {wrong['input']}, {text}") from None


def complaints(geometry: Geometry) -> Iterator[str]:
    """Problems for which the release, or its engine here, refuses it."""
    from stateat.sim.scenario.checks import engine

    budget = geometry.serving.max_num_batched_tokens
    if geometry.mode == "align" and geometry.sizing.rejects_wide and geometry.block_size > budget:
        yield (
            f"--max-num-batched-tokens: found {budget}, allowed at least {geometry.block_size}, the block: "
            f"{geometry.serving.preset} refuses to start"
        )

    for location, text in engine(_validated(geometry)):
        yield f"--{str(location[0]).replace('_', '-')}: {text}"


def _engine(geometry: Geometry) -> dict[str, Any]:
    serving, drafts = geometry.serving, geometry.serving.num_speculative_tokens
    engine: dict[str, Any] = {
        "preset": serving.preset,
        "max_num_batched_tokens": serving.max_num_batched_tokens,
        "max_model_len": geometry.max_model_len,
        "groups": list(_groups(geometry)),
        "clock": "steps",
    }
    if geometry.num_blocks is not None:
        engine["num_blocks"] = geometry.num_blocks
    if geometry.mode == "none":
        engine["enable_prefix_caching"] = False
    if serving.prefix_match_unit is not None:
        engine["prefix_match_unit"] = serving.prefix_match_unit
    if geometry.checkpoint_blocks:
        engine["num_prefill_checkpoint_blocks"] = geometry.checkpoint_blocks
        engine["prefill_checkpoint_alignment"] = _alignment(geometry)
    if geometry.sizing.retention is not None:
        engine["prefix_cache_retention_interval"] = geometry.sizing.retention
    method = serving.speculative_method if drafts else ""
    if rules := rules_of(serving.preset, geometry.model.architectures, geometry.model.state.family, method):
        engine["rules"] = rules
    if drafts:
        accepted = sorted({0, drafts // 2, drafts}, reverse=True)
        engine["speculative"] = {
            "method": serving.speculative_method,
            "num_speculative_tokens": drafts,
            "accepted_drafts": accepted,
        }
    return engine


def _alignment(geometry: Geometry) -> int:
    """A GDN kernel exports on the grid of hits, a KDA kernel on its own; a Mamba-2 kernel's chunk is cut anywhere."""
    if geometry.model.state.family == "kda":
        return geometry.sizing.kda_checkpoint
    if geometry.model.state.family != "gated-delta":
        return 1
    unit = geometry.serving.prefix_match_unit
    return lcm(unit, geometry.sizing.gdn_checkpoint) if unit else geometry.block_size


def _groups(geometry: Geometry) -> Iterator[dict[str, Any]]:
    for i in range(geometry.attention_groups):
        group: dict[str, Any] = {
            "name": _numbered("attention", i, geometry.attention_groups),
            "kind": "full-attention",
            "block_size": geometry.block_size,
        }
        if geometry.drops:
            group["eagle"] = True
        yield group
    for i in range(geometry.recurrent_groups):
        group = {
            "name": _numbered(LAYERS[geometry.model.state.family], i, geometry.recurrent_groups),
            "kind": "recurrent",
            "block_size": geometry.block_size,
        }
        if geometry.mode == "all":
            group["mamba_cache_mode"] = "all"
        yield group


def _numbered(name: str, i: int, count: int) -> str:
    return name if count == 1 else f"{name}{i}"


def scenario(geometry: Geometry, name: str) -> str:
    """The scenario file. Raises InputError, which names the flag, where no scenario can say it."""
    if not name.isprintable() or not name.strip():
        raise InputError(f"--scenario: found {name!r}, allowed a name of printable characters")
    if geometry.mode == "none":
        raise InputError("--scenario: nothing is cached without prefix caching, allowed mode align or all")
    if wrong := next(complaints(geometry), None):
        raise InputError(f"--scenario: {wrong}")
    if geometry.num_blocks is not None and geometry.num_blocks < (least := _pool(geometry)):
        raise InputError(
            f"--scenario: found {geometry.num_blocks:,} blocks, allowed at least {least:,}: the requests are to hit "
            "what those before them left"
        )
    longest = _longest(geometry)
    if geometry.max_model_len <= longest:
        raise InputError(
            f"--scenario: found max_model_len {geometry.max_model_len:,}, allowed above {longest:,}: the requests are "
            f"{BLOCKS} blocks long"
        )
    return _text(
        {
            "schema": SCHEMA,
            "name": name,
            "title": _title(geometry),
            "engine": _engine(geometry),
            "workload": {**_budgets(geometry), "requests": list(_requests(geometry))},
            "variants": _variants(geometry),
        }
    )


def _text(data: Mapping[str, Any]) -> str:
    """YAML with a line for each key of the second level, and for each item of a list of mappings."""
    lines = []
    for key, value in data.items():
        if not isinstance(value, Mapping):
            lines.append(f"{key}: {_flow(value)}")
            continue
        lines.append(f"{key}:")
        for name, part in value.items():
            if isinstance(part, list) and part and isinstance(part[0], Mapping):
                lines += [f"  {name}:", *(f"    - {_flow(item)}" for item in part)]
            else:
                lines.append(f"  {name}: {_flow(part)}")
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=True, width=inf)
    return text.removesuffix("\n").removesuffix("\n...")


def _title(geometry: Geometry) -> str:
    serving = geometry.serving
    drafts = f", {serving.num_speculative_tokens} drafts" if serving.num_speculative_tokens else ""
    dtypes = f"{geometry.kv_dtype} KV, {geometry.state_dtype} state"
    return (
        f"{geometry.model.name}, TP {serving.tensor_parallel_size}, {dtypes}{drafts}: blocks of "
        f"{geometry.block_size} tokens"
    )


def _short(geometry: Geometry) -> int:
    """Tokens of a prompt whose last cacheable position lies below its first boundary, for a look-ahead drafter."""
    return geometry.block_size + geometry.block_size // 4


def _longest(geometry: Geometry) -> int:
    return BLOCKS * geometry.block_size + 8 + 1 + geometry.serving.num_speculative_tokens


def _pool(geometry: Geometry) -> int:
    """Blocks with which nothing is taken from the requests of the scenario, if each keeps all that it had."""
    lengths = [sum(length for _, length in request["prompt"]) + 1 for request in _requests(geometry)]
    return 1 + sum(geometry.attention_blocks(length) + _kept(geometry, length) for length in lengths)


def _kept(geometry: Geometry, tokens: int) -> int:
    """Recurrent blocks that a request of so many tokens leaves behind or has at its end."""
    return geometry.state_blocks(tokens) + geometry.recurrent_groups * -(-tokens // geometry.block_size)


def _fills(geometry: Geometry) -> bool:
    """Return True if a step has room for the whole of the short prompt."""
    return geometry.serving.max_num_batched_tokens >= _short(geometry)


def _poisons(geometry: Geometry) -> bool:
    """Return True if the old gate lets a chunk run from inside the first block across its end."""
    return geometry.mode == "align" and geometry.drops and _fills(geometry) and geometry.block_size >= 16


def _budgets(geometry: Geometry) -> dict[str, list[int]]:
    """Others leave a quarter of a block to the first prompt, and then room for all of it."""
    return {"budgets": [geometry.block_size // 4, _short(geometry)]} if _poisons(geometry) else {}


def _requests(geometry: Geometry) -> Iterator[dict[str, Any]]:
    short, shared = _short(geometry), BLOCKS * geometry.block_size
    if _poisons(geometry):
        yield {"id": "short", "prompt": [[1, short]], "max_tokens": 1}
        # They go on where the short one ends and share two blocks: a look-ahead drafter gives the second one up, so
        # the reader starts from the first boundary, whose hash names the slot that came first. It is the third, since
        # under retention a state is kept only where the second sender saw that it would be hit.
        more = [[1, short], [2, 2 * geometry.block_size - short]]
        for i, (before, name) in enumerate(pairwise(("short", "longer", "longer again", "reader"))):
            yield {"id": name, "after": before, "prompt": [*more, [7 + i, 8]], "max_tokens": 1}
    for i, name in enumerate(("first", "second", "third")):
        request: dict[str, Any] = {"id": name, "prompt": [[3, shared], [4 + i, 8]], "max_tokens": 1}
        last = ("reader" if _poisons(geometry) else None, "first", "second")[i]
        if last:
            request["after"] = last
        yield request


def _variants(geometry: Geometry) -> dict[str, Any]:
    """Return the expectations: hits of right states; on the old gate a poisoned slot in every group, which is read."""
    clean: dict[str, Any] = {"expect": {"poisoned": 0, "hits": {"third": {"min": geometry.block_size}}}}
    name = geometry.serving.preset
    if not _poisons(geometry):
        return {name: clean}
    read = {"reader": {"min": geometry.block_size}}
    clean["expect"]["hits"] |= read
    poisoned = {
        "poisoned": {"min": geometry.recurrent_groups},
        "wrong_restores": {"min": 1},
        "hits": read,
        "findings": {"contains": [{"invariant": "I1"}]},
    }
    old: dict[str, Any] = {"preset": OLD_GATE, "expect": poisoned}
    undo = {key: value for key, value in _engine(geometry).items() if key in _LATER}
    if undo:
        old["engine"] = {key: _LATER[key] for key in undo}
    if name == OLD_GATE:
        return {"old gate": old, "fixed gate": {"preset": "vllm-0.27.0", **clean}}
    return {"old gate": old, "fixed gate": clean}


_LATER = {
    "num_prefill_checkpoint_blocks": 0,
    "prefill_checkpoint_alignment": 1,
    "prefix_cache_retention_interval": None,
}
"""Options that the old release does not have, and what takes them away."""
