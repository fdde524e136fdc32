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

    off: tuple[str, ...] = ("ngram",)
    """Drafters beside which it is off by default."""
    forbidden: tuple[str, ...] = ("ngram",)
    """Drafters beside which it is refused."""
    drafters_by_runner: bool = False
    """Those hold for the V1 runner alone."""
    pipeline: str = ""
    """With a pipeline the V1 runner leaves it ``off`` by default, or it is ``forbidden`` too."""


_TO_0_27 = AsyncDefault(off=("ngram", "draft_model"))
_FROM_0_28 = AsyncDefault()
_FROM_0_31 = AsyncDefault(pipeline="off")
_FROM_0_33 = AsyncDefault(drafters_by_runner=True, pipeline="forbidden")

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
"""By preset."""


def by_default(options: Options, values: Mapping[str, str]) -> bool:
    """Return True if a server of the preset's release schedules asynchronously with these options when nothing is said;
    ``values``: the rules in force."""
    record = ASYNC_DEFAULT[options.preset]
    if _piped(options) and _runs_on_v1(values) and record.pipeline:
        return False
    return _drafter(options) not in record.off or (record.drafters_by_runner and not _runs_on_v1(values))


def resolved(options: Options, values: Mapping[str, str]) -> Options:
    """Return the options with ``async_scheduling: auto`` made true or false."""
    if options.async_scheduling != "auto":
        return options
    return replace(options, async_scheduling=by_default(options, values))


def lacks(options: Options, values: Mapping[str, str]) -> Iterator[Lack]:
    """Find what the release forbids beside ``async_scheduling: true``."""
    if options.async_scheduling is not True:
        return
    record, drafter, v1 = ASYNC_DEFAULT[options.preset], _drafter(options), _runs_on_v1(values)
    release = options.preset.replace("vllm-", "vLLM ")
    runner = " on its V1 runner" if record.drafters_by_runner else ""
    if drafter in record.forbidden and (v1 or not record.drafters_by_runner):
        why = (
            f": {release} does not schedule asynchronously{runner} with a drafter on the CPU "
            "(speculative.method ngram_gpu drafts on the device)"
        )
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
    return "draft_model" if speculative.method == "ngram" and speculative.draft_slots else speculative.method


def _piped(options: Options) -> bool:
    """Return True if there are pipeline stages, beside the step that asynchronous scheduling adds to the queue."""
    return options.max_concurrent_batches > (1 if options.async_scheduling is False else 2)


def _runs_on_v1(values: Mapping[str, str]) -> bool:
    return values["worker"] == "v1"
