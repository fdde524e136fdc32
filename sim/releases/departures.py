"""Departures: options with which a preset is known not to decide as its release, or to run what that would not.

A departure is a warning that names the option, until the preset can. What is asked is the table of rule values in
force, so that a rule that is put in instead counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from stateat.sim.cache.drafter_drop import DRAFTER_DROP
from stateat.sim.options import Options
from stateat.sim.releases.presets import PRESETS, table
from stateat.sim.rules.checkpoint import CHECKPOINT
from stateat.sim.rules.partial_hits import PARTIAL_HITS_WHEN
from stateat.sim.rules.record import Demand


class How(Enum):
    """Ways in which a release departs from its preset."""

    STOPS = "it refuses this, or stops with an error"
    DECIDES = "it decides otherwise"
    SERVER = "a whole server does otherwise, while its scheduler, driven alone, decides as the preset"


@dataclass(frozen=True, slots=True)
class Departure:
    """An option with which a preset decides otherwise than its release, or runs what that would not."""

    option: str
    """The key in ``engine``; of requests in ``workload``."""
    applies: Callable[[Options, Mapping[str, str]], bool]
    """(options, rule values in force)"""
    text: str
    """A sentence on what the release does."""
    since: str = ""
    """The first preset that it is true of; '': the first of all."""
    until: str = ""
    """The last one; '': the last of all."""
    asked: Callable[[Sequence[Demand]], bool] = lambda requests: True
    """Requests with which it is so."""
    how: How = How.STOPS

    @property
    def place(self) -> str:
        """The key in a file."""
        return f"workload.{self.option}" if self.option.startswith("requests.") else f"engine.{self.option}"

    @property
    def presets(self) -> list[str]:
        """The presets that it is true of."""
        known = list(PRESETS)
        first = known.index(self.since) if self.since else 0
        return known[first : known.index(self.until) + 1] if self.until else known[first:]


def _one_mode(options: Options, rules: Mapping[str, str]) -> bool:
    return len({options.groups[i].mamba_cache_mode for i in options.recurrent}) > 1


def _alone(options: Options, rules: Mapping[str, str]) -> bool:
    sizes = [group.block_size for group in options.groups]
    return options.enable_prefix_caching and len(sizes) == 1 and options.hash_unit != sizes[0]


def _alike(options: Options, rules: Mapping[str, str]) -> bool:
    kinds = {(g.recurrent, g.block_size, g.sliding_window, g.mamba_cache_mode) for g in options.groups}
    several = options.enable_prefix_caching and len(options.groups) > 1 and len(kinds) == 1
    return several and rules["lookup"] == "intersection-first-cut"


def _window_inside_blocks(options: Options, rules: Mapping[str, str]) -> bool:
    unasked = rules["partial_hits_when"] == "states-alone" and options.enable_prefix_caching
    windows = [group for group in options.groups if group.sliding_window]
    unable = any(group.block_size != options.hash_unit for group in windows)
    return unasked and unable and PARTIAL_HITS_WHEN["states-alone"].on(options)


def _uncut(options: Options, rules: Mapping[str, str]) -> bool:
    dense = {g.block_size for g in options.groups if not (g.recurrent or g.sliding_window) and g.prefix_cacheable}
    return options.enable_prefix_caching and len(dense) > 1 and rules["lookup"] == "intersection-first-cut"


def _rereads_past_a_block(options: Options, rules: Mapping[str, str]) -> bool:
    short = options.scheduler_block_size < options.speculative.num_speculative_tokens
    return options.enable_prefix_caching and options.speculative.multi_module and short


def _tail_behind_a_draft(options: Options, rules: Mapping[str, str]) -> bool:
    s = options.speculative
    late = options.enable_prefix_caching and s.multi_module and s.prefill_lookahead > 1
    tails = any(g.aligned and g.block_size > options.hash_unit for g in options.groups)
    return late and tails and rules["tail_copy"] == "copied" and DRAFTER_DROP[rules["drafter_drop"]].drop(options)


def _decode_spans_a_unit(options: Options, rules: Mapping[str, str]) -> bool:
    wide = options.speculative.num_speculative_tokens >= options.hash_unit
    return bool(options.num_prefill_checkpoint_blocks) and wide and CHECKPOINT[rules["checkpoint"]].rekeys


def _padding_cut(options: Options, rules: Mapping[str, str]) -> bool:
    drafts, split = options.speculative.num_speculative_tokens, any(group.aligned for group in options.groups)
    cut = 0 < options.long_prefill_token_threshold <= drafts and rules["padding"] != "kept"
    return cut and not (split and options.enable_prefix_caching)


def _padding_taken_off(options: Options, rules: Mapping[str, str]) -> bool:
    cut = 0 < options.long_prefill_token_threshold <= options.speculative.num_speculative_tokens
    return cut and rules["padding"] == "kept"


def _past_hashes(options: Options, rules: Mapping[str, str]) -> bool:
    cached = [group for group in options.groups if group.prefix_cacheable]
    windows = any(group.sliding_window for group in cached)
    # Full attention is looked up as far as there are hashes, and states then no further; so are those inside blocks.
    fine = PARTIAL_HITS_WHEN[rules["partial_hits_when"]].on(options)
    whole = any(not fine or group.block_size == options.hash_unit for group in cached)
    states = whole and all(group.recurrent for group in cached)
    return (windows or states) and DRAFTER_DROP[rules["drafter_drop"]].ahead(options) > 1


def _parallel(options: Options, rules: Mapping[str, str]) -> bool:
    return options.decode_context_parallel_size > 1


def _parallel_windows(options: Options, rules: Mapping[str, str]) -> bool:
    return _parallel(options, rules) and any(group.sliding_window for group in options.groups)


def _parallel_states_alone(options: Options, rules: Mapping[str, str]) -> bool:
    alone = len(options.groups) == 1 and bool(options.recurrent) and options.enable_prefix_caching
    return _parallel(options, rules) and alone and not PARTIAL_HITS_WHEN[rules["partial_hits_when"]].parallel


def _parallel_connector(options: Options, rules: Mapping[str, str]) -> bool:
    # They ask the groups by themselves.
    apart = rules["connector"] in ("longest-group", "divergent")
    return _parallel(options, rules) and apart and bool(options.recurrent) and bool(options.attention)


def _late_output(options: Options, rules: Mapping[str, str]) -> bool:
    return options.async_scheduling is True and rules["stale_output"] == "counted"


def _no_budget(options: Options, rules: Mapping[str, str]) -> bool:
    s = options.speculative
    if not s.num_speculative_tokens:
        return False
    if rules["draft_slots"] == "max-num-seqs":
        taken = s.draft_slots * options.max_num_seqs
    else:
        taken = s.lookahead_tokens if rules["running"] == "fits-draft-pass" else s.draft_slots
    return taken >= options.max_num_batched_tokens


def _brought(requests: Sequence[Demand]) -> bool:
    return any(request.external for request in requests)


def _hashes_ahead(options: Options, rules: Mapping[str, str]) -> bool:
    return DRAFTER_DROP[rules["drafter_drop"]].ahead(options) > 0


DEPARTURES = (
    Departure(
        "enable_prefix_caching",
        lambda options, rules: not options.enable_prefix_caching and bool(options.recurrent),
        "without prefix caching a server of any release keeps one state of a request, and one for each draft "
        "(mamba_cache_mode none); here a recurrent group holds what its own mode holds",
        how=How.SERVER,
    ),
    Departure(
        "groups",
        _one_mode,
        "a server of any release has one mamba_cache_mode for all its recurrent groups; here each group has its own",
        how=How.SERVER,
    ),
    Departure(
        "prefix_match_unit",
        _alone,
        "any release stops with an assertion where a group that is alone is hashed in units smaller than its block",
    ),
    Departure(
        "groups",
        _alike,
        "releases to vLLM 0.28 stop with an assertion where all groups are of one kind and block size",
        until="vllm-0.28.0",
    ),
    Departure(
        "groups",
        _window_inside_blocks,
        "releases to vLLM 0.27 stop with an assertion where hits are finer than a sliding window's block",
        until="vllm-0.27.1",
    ),
    Departure(
        "groups",
        _uncut,
        "with attention blocks of several sizes releases to vLLM 0.28 stop with an assertion where a hit ends inside "
        "one, and miscount free blocks where a connector brings more",
        how=How.DECIDES,
        until="vllm-0.28.0",
    ),
    Departure(
        "speculative.multi_module",
        _rereads_past_a_block,
        "releases refuse a drafter of several modules with more drafts than the scheduler block has tokens",
        since="vllm-0.29.0",
    ),
    Departure(
        "speculative.multi_module",
        _past_hashes,
        "vLLM 0.33 stops with an error where a sliding window, or states without attention beside them, are looked up "
        "past the last token whose hash is known",
        since="vllm-0.33.0",
    ),
    Departure(
        "speculative.multi_module",
        _tail_behind_a_draft,
        "where a drafter gives up a block of each hit, releases from vLLM 0.29 on publish a prompt's tail behind its "
        "prefill, in a recurrent block wider than the hash unit, and stop with an assertion where drafts reach past it",
        since="vllm-0.29.0",
    ),
    Departure(
        "num_prefill_checkpoint_blocks",
        _decode_spans_a_unit,
        "releases from vLLM 0.30 on take a decode and its drafts that reach over a hash unit for a chunk that exports "
        "a state, and stop with an assertion where it would be published past the last token whose hash is known",
        since="vllm-0.30.0",
    ),
    Departure(
        "long_prefill_token_threshold",
        _padding_cut,
        "releases from vLLM 0.29 on stop with an assertion where it cuts the placeholders of a request that is padded, "
        "unless chunks are split at recurrent blocks; they want room for what is left of them",
        since="vllm-0.29.0",
        how=How.DECIDES,
    ),
    Departure(
        "long_prefill_token_threshold",
        _padding_taken_off,
        "releases to vLLM 0.28 cut the placeholders of a request that is padded, and take all of them off the tokens "
        "that it has computed: of a short prompt less than none are left",
        until="vllm-0.28.0",
    ),
    Departure(
        "max_num_batched_tokens",
        _no_budget,
        "releases refuse one that leaves no token beside a drafter's slots: those of draft_slots, to vLLM 0.27 for "
        "each of max_num_seqs, in 0.33 those for its K drafts (K + 1 for dflash)",
    ),
    Departure(
        "decode_context_parallel_size",
        _parallel_windows,
        "releases refuse a sliding window on several ranks of context parallelism, or stop with an assertion",
    ),
    Departure(
        "decode_context_parallel_size",
        _parallel_states_alone,
        "releases to vLLM 0.28 stop with an assertion where a recurrent group is alone on several ranks of context "
        "parallelism",
        until="vllm-0.28.0",
    ),
    Departure(
        "decode_context_parallel_size",
        _parallel_connector,
        "releases to vLLM 0.27 look attention up in the blocks of one rank for a connector, and find nothing or too "
        "little",
        until="vllm-0.27.1",
        asked=_brought,
        how=How.DECIDES,
    ),
    Departure(
        "async_scheduling",
        lambda options, rules: _late_output(options, rules) and options.speculative.num_speculative_tokens > 0,
        "vLLM 0.26 drops as many outputs of a request that a reset puts back (`reset_running_requests`) as tokens were "
        "expected, drafts included, and hashes the others as if nothing were missing; here hashes name the tokens that "
        "were sampled",
        until="vllm-0.26.0",
        how=How.DECIDES,
    ),
    Departure(
        "max_concurrent_batches",
        lambda options, rules: _late_output(options, rules) and options.batch_queue > 2,
        "vLLM 0.26 counts what comes late of a preempted request as any other output, also when it runs again, and "
        "then takes tokens twice; here hashes name each token once",
        until="vllm-0.26.0",
        how=How.DECIDES,
    ),
    Departure(
        "offload.blocks",
        lambda options, rules: options.offload.blocks > 0,
        "a release loads and stores beside its steps, and a request waits for what it loads; "
        "here that is there at once",
        how=How.DECIDES,
    ),
    Departure(
        "requests.external",
        lambda options, rules: bool(options.recurrent),
        "any release counts a block too few for a state that a connector brings, and stops with an error where the "
        "pool has no other; here the request waits",
        asked=_brought,
    ),
    Departure(
        "requests.external",
        _hashes_ahead,
        "with a connector a server of vLLM 0.33 has no hashes that look ahead, and its drafter gives up a block of "
        "each hit; here they look ahead (engine.speculative.hash_lookahead: false makes it as there)",
        since="vllm-0.33.0",
        asked=_brought,
        how=How.SERVER,
    ),
    Departure(
        "requests.load_error",
        lambda options, rules: True,
        "any release ends such a request with an error unless kv_load_failure_policy is recompute; then it hears of "
        "the failure after a step, and computes from the first block that failed (with several groups releases to "
        "vLLM 0.29 stop with an error, later ones look the request up again where the connector names it); here it is "
        "known before",
        asked=lambda requests: any(request.load_error for request in requests),
        how=How.DECIDES,
    ),
)


REFUSES_WIDE_BLOCKS = frozenset({"vllm-0.26.0"})
"""Presets whose releases refuse to start with a block wider than a chunk may be; here they run."""


def refused_blocks(options: Options) -> list[str]:
    """Tell which limits of a chunk the preset's release would refuse beside its recurrent block."""
    if options.preset not in REFUSES_WIDE_BLOCKS or options.state_block is None:
        return []
    release = options.preset.replace("vllm-", "vLLM ")
    block = options.cache_config_block_size or options.state_block
    budget, threshold = options.max_num_batched_tokens, options.long_prefill_token_threshold
    texts = []
    if block > budget:
        texts.append(f"{release} refuses a block of {block} tokens above max_num_batched_tokens ({budget})")
    if 0 < threshold < block:
        texts.append(f"{release} refuses a long_prefill_token_threshold ({threshold}) below a block ({block})")
    return texts


def departures(options: Options, requests: Sequence[Demand] = (), ways: Collection[How] = tuple(How)) -> list[str]:
    """Tell what is known to be otherwise in the release of these options' preset: ``engine.KEY: what it does``."""
    rules = table(options.preset, options.rules)
    found = [each for each in DEPARTURES if each.applies(options, rules) and each.asked(requests)]
    return [f"{each.place}: {each.text}" for each in found if each.how in ways]
