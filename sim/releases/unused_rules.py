"""Rules that nothing in a run asks: under each of their values it decides, copies and claims the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stateat.sim.options import INFILL_METHODS, Options
from stateat.sim.workload import Arrival

Asked = Callable[[Options, Sequence[Arrival]], bool]


def _brought(options: Options, arrivals: Sequence[Arrival]) -> bool:
    """Whether states come from a tier or a connector."""
    return options.offload.blocks > 0 or any(arrival.external for arrival in arrivals)


def _several_sizes(options: Options, arrivals: Sequence[Arrival]) -> bool:
    return len({group.block_size for group in options.groups if group.recurrent and group.aligned}) > 1


ASKED: Mapping[str, Asked] = {
    "abort": lambda options, arrivals: any(arrival.abort is not None for arrival in arrivals),
    "checkpoint": lambda options, arrivals: options.num_prefill_checkpoint_blocks > 0,
    "connector": _brought,
    "draft_slots": lambda options, arrivals: options.speculative.draft_slots > 0,
    "encoder": lambda options, arrivals: any(arrival.encoder for arrival in arrivals),
    "free": lambda options, arrivals: options.max_concurrent_batches > 1,
    "item_hash": lambda options, arrivals: any(len(arrival.encoder) > 1 for arrival in arrivals),
    "kernel": lambda options, arrivals: any(group.recurrent and not group.aligned for group in options.groups),
    "load_failure": lambda options, arrivals: any(arrival.load_error for arrival in arrivals),
    "modules": lambda options, arrivals: options.speculative.multi_module,
    "offload": lambda options, arrivals: options.offload.blocks > 0,
    "running": lambda options, arrivals: options.speculative.method in INFILL_METHODS,
    "snapshots": lambda options, arrivals: any(arrival.snapshots for arrival in arrivals),
    "state_blocks": _several_sizes,
    "threshold": lambda options, arrivals: options.long_prefill_token_threshold > 0,
    "whole_items": lambda options, arrivals: any(arrival.encoder for arrival in arrivals),
    "window": lambda options, arrivals: any(group.sliding_window for group in options.groups),
}
"""By rule, what a run needs for it to be asked; the other rules always are."""


def idle(options: Options, arrivals: Sequence[Arrival]) -> set[str]:
    """The rules that this run does not ask."""
    return {rule for rule, asked in ASKED.items() if not asked(options, arrivals)}
