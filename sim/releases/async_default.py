"""Asynchronous scheduling by release: where a server runs so unless told otherwise, and where it refuses to.

Each release decides it when its configuration is completed (``VllmConfig.__post_init__``), by the drafter, the runner
and the pipeline. Pooling models and executors that cannot are not modelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from stateat.sim.options import Options
from stateat.sim.rules.record import Lack


@dataclass(frozen=True, slots=True)
class AsyncDefault:
    """Conditions under which a release leaves asynchronous scheduling off, or forbids it; else it is on."""

    off: tuple[str, ...] = ("ngram", "suffix")
    """Drafters beside which it is off by default."""
    forbidden: tuple[str, ...] = ("ngram", "suffix")
    """Drafters beside which it is refused."""
    on_v1: tuple[str, ...] = ()
    """Drafters among them that the V2 runner knows and can be ahead of."""
    pipeline: str = ""
    """With a pipeline the V1 runner leaves it ``off`` by default, or it is ``forbidden`` too."""


_TO_0_27 = AsyncDefault(off=("ngram", "suffix", "draft_model"))
_FROM_0_28 = AsyncDefault()
_FROM_0_31 = AsyncDefault(pipeline="off")
_FROM_0_33 = AsyncDefault(on_v1=("ngram",), pipeline="forbidden")

ASYNC_DEFAULT: dict[str, AsyncDefault] = {
    "vllm-0.26.0": _TO_0_27,
    "vllm-0.27.0": _TO_0_27,
    "vllm-0.27.1": _TO_0_27,
    "vllm-0.28.0": _FROM_0_28,
    "vllm-0.29.0": _FROM_0_28,
    "vllm-0.30.0": _FROM_0_28,
    "vllm-0.31.0": _FROM_0_31,
    "vllm-0.32.0": _FROM_0_31,
    "vllm-0.33.0": _FROM_0_33,
}
"""Conditions by preset."""


def by_default(options: Options, values: Mapping[str, str]) -> bool:
    """Return True if a server of the preset's release schedules asynchronously with these options when nothing is said;
    ``values``: the rules in force."""
    record, drafter, v1 = ASYNC_DEFAULT[options.preset], _drafter(options), values["worker"] == "v1"
    if record.pipeline and v1 and _piped(options):
        return False
    return drafter not in record.off or (drafter in record.on_v1 and not v1)


def resolved(options: Options, values: Mapping[str, str]) -> Options:
    """Return the options with ``async_scheduling: auto`` made true or false."""
    if options.async_scheduling != "auto":
        return options
    return replace(options, async_scheduling=by_default(options, values))


def lacks(options: Options, values: Mapping[str, str]) -> Iterator[Lack]:
    """Find what the release forbids beside ``async_scheduling: true``."""
    if options.async_scheduling is not True:
        return
    record, drafter, v1 = ASYNC_DEFAULT[options.preset], _drafter(options), values["worker"] == "v1"
    release = options.preset.replace("vllm-", "vLLM ")
    if drafter in record.forbidden and (v1 or drafter not in record.on_v1):
        runner = " on its V1 runner (rule worker=v1)" if drafter in record.on_v1 else ""
        device = "; ngram_gpu drafts on the device" if drafter == "ngram" else ""
        why = f": {release} does not schedule asynchronously{runner} with a drafter on the CPU{device}"
        yield Lack(("async_scheduling",), "true", f"false or auto with speculative.method {drafter}", why)
    if record.pipeline == "forbidden" and v1 and _piped(options):
        why = f": {release} does not schedule a pipeline asynchronously on its V1 runner (rule worker=v1)"
        found = options.max_concurrent_batches
        yield Lack(("async_scheduling",), "true", f"false or auto with max_concurrent_batches of {found}", why)


def _drafter(options: Options) -> str:
    """vLLM's name of the drafter; '' without one."""
    speculative = options.speculative
    if not speculative.num_speculative_tokens:
        return ""
    return "draft_model" if speculative.draft_model else speculative.method


def _piped(options: Options) -> bool:
    """Return True if there are pipeline stages, beside the step that asynchronous scheduling adds to the queue."""
    return options.max_concurrent_batches > (1 if options.async_scheduling is False else 2)
