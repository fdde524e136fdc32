"""The release's own configuration and scheduler, made of what a scenario says, and held against it."""

from __future__ import annotations

import os
import typing

from objects import FORMERLY, Strange, Unsupported, attribute, bare, call, call_like, has_field, refusing
from overlap import staged
from placeholders import Grammar, Lenient, features_in_window
from stand_ins import stands_in

PATCHED = {}
"""Class attributes of the release that the session before changed, with what they were."""


class Configuration:
    """Builds the scheduler that a configuration asks for."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.warnings = []
        self.drafts = wanted["num_speculative_tokens"]

    def scheduler(self):
        """(scheduler, block hasher)"""
        from vllm.v1.core import kv_cache_utils as utils
        from vllm.v1.core import single_type_kv_cache_manager as managers
        from vllm.v1.core.sched.scheduler import Scheduler

        self._check_features(Scheduler)
        config = staged(self.wanted, self._whole)
        self._drafts_in_a_pipeline(Scheduler, config)
        budget = attribute(config, "_set_max_num_scheduled_tokens")
        with refusing("engine.max_num_batched_tokens"):
            budget()
        cache = self._cache()
        managers.register_all_kvcache_specs(config)
        self._validate(config)
        block, unit = self._sizes(utils, cache, config)
        self._partial_hits(self.wanted["partial_hits"])
        self._retention()
        with refusing("engine"):
            # The asynchronous one takes the same arguments, and does not name them.
            scheduler = call_like(
                Scheduler,
                config.scheduler_config.get_scheduler_cls(),
                vllm_config=config,
                kv_cache_config=cache,
                structured_output_manager=Grammar(),
                block_size=block,
                hash_block_size=unit,
                include_finished_set=False,
                log_stats=False,
            )
        if not self.wanted["partial_hits"]:
            attribute(scheduler, "mamba_partial_cache_hit")
            scheduler.mamba_partial_cache_hit = False
        self._encoder(scheduler)
        self.hold(scheduler)
        return scheduler, self._hasher(utils, config, unit)

    def _retention(self):
        """Set the variable from which a release without the option takes it."""
        interval = self.wanted["prefix_cache_retention_interval"]
        os.environ.pop("VLLM_PREFIX_CACHE_RETENTION_INTERVAL", None)
        if interval is not None:
            os.environ["VLLM_PREFIX_CACHE_RETENTION_INTERVAL"] = str(interval)

    def _drafts_in_a_pipeline(self, scheduler, config):
        """Say that a server hands drafts over otherwise, and refuse those that count no token then."""
        if not self.drafts or config.max_concurrent_batches == 1 or config.scheduler_config.async_scheduling:
            return
        said = (
            "hands a pipeline's drafts over as soon as a step is launched, and decides the next one without the token "
            "before them"
        )
        # Since 0.28.
        if not hasattr(scheduler, "_reserve_prefill_lookahead"):
            raise Unsupported(
                f"engine.max_concurrent_batches: found {self.wanted['max_concurrent_batches']} beside drafts, allowed "
                f"1, or more with async_scheduling: a server of this release {said}"
            )
        self.warnings.append(
            f"a server of this release {said}; here they come with that token (engine.max_concurrent_batches)"
        )

    def _encoder(self, scheduler):
        """Budgets that it would derive from a multimodal model."""
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
        from vllm.v1.core.sched import scheduler as module

        attribute(scheduler, "max_num_encoder_input_tokens")
        attribute(scheduler, "encoder_cache_manager")
        scheduler.max_num_encoder_input_tokens = self.wanted["max_num_encoder_input_tokens"]
        scheduler.encoder_cache_manager = EncoderCacheManager(cache_size=self.wanted["encoder_cache_size"])
        attribute(module, "get_mm_features_in_window")
        # The cache's own module has had it too since 0.31.
        for place in (module, kv_cache_utils):
            if stands_in(vars(place).get("get_mm_features_in_window")):
                place.get_mm_features_in_window = features_in_window

    def _check_features(self, scheduler):
        """Refuse features that a release lacks and that have no argument or field of their own."""
        wanted, lacking = self.wanted, []
        # Since 0.28.
        if wanted["multi_module"] and not hasattr(scheduler, "_reserve_prefill_lookahead"):
            lacking.append("engine.speculative.multi_module")
        modes = self._modes()
        for i, group in enumerate(wanted["groups"]):
            if group["recurrent"] and group["mamba_cache_mode"] not in modes:
                lacking.append(f"engine.groups.{i}.mamba_cache_mode: {group['mamba_cache_mode']}")
        if lacking:
            raise Unsupported("it has no " + ", no ".join(lacking))

    def _modes(self):
        """The release's own words: ``all`` went with 0.32."""
        from vllm.config import CacheConfig

        modes = typing.get_args(typing.get_type_hints(CacheConfig).get("mamba_cache_mode"))
        if "align" not in modes:
            raise Strange("its CacheConfig.mamba_cache_mode has no align")
        return modes

    def _whole(self, stages, runner_v2):
        """The whole, with so many pipeline stages; on model runner V2, on V1, or (None) as the release chooses."""
        from vllm.config import (
            CacheConfig,
            ObservabilityConfig,
            ParallelConfig,
            SchedulerConfig,
            VllmConfig,
        )

        wanted = self.wanted
        model = Lenient(
            max_model_len=wanted["max_model_len"],
            runner_type="generate",
            multimodal_config=None,
            architectures=(),
            hf_config=Lenient(),
            hf_text_config=Lenient(),
        )
        cache = bare(
            CacheConfig,
            block_size=wanted["cache_config_block_size"],
            num_gpu_blocks=wanted["num_blocks"],
            enable_prefix_caching=wanted["enable_prefix_caching"],
            prefix_match_unit=wanted["hash_unit"],
            mamba_block_size=max((g["block_size"] for g in wanted["groups"] if g["recurrent"]), default=None),
            mamba_cache_mode=self._cache_mode(),
            prefix_cache_retention_interval=wanted["prefix_cache_retention_interval"],
            enable_mamba_shared_prefix_checkpoint=wanted["shared_prefix_checkpoint"],
        )
        scheduling = bare(
            SchedulerConfig,
            max_num_batched_tokens=wanted["max_num_batched_tokens"],
            max_num_scheduled_tokens=None,
            max_num_seqs=wanted["max_num_seqs"],
            long_prefill_token_threshold=wanted["long_prefill_token_threshold"],
            enable_chunked_prefill=True,
            # None: as the release decides.
            async_scheduling=None if wanted["async_scheduling"] == "auto" else wanted["async_scheduling"],
            disable_chunked_mm_input=wanted["disable_chunked_mm_input"],
            watermark=wanted["watermark"],
            scheduler_reserve_full_isl=wanted["scheduler_reserve_full_isl"],
            policy="fcfs",
        )

        class OnRunner(VllmConfig):
            """The release's own, but for the model runner."""

            use_v2_model_runner = runner_v2

        return bare(
            VllmConfig if runner_v2 is None else OnRunner,
            model_config=model,
            cache_config=cache,
            scheduler_config=scheduling,
            parallel_config=bare(
                ParallelConfig,
                pipeline_parallel_size=stages,
                decode_context_parallel_size=wanted["decode_context_parallel_size"],
            ),
            observability_config=bare(ObservabilityConfig),
            speculative_config=self._speculative(),
            lora_config=None,
            kv_events_config=None,
            kv_transfer_config=None,
            ec_transfer_config=None,
        )

    def _speculative(self):
        if not self.drafts:
            return None
        from vllm.config import SpeculativeConfig

        wanted = self.wanted
        slots = wanted["draft_slots"]

        class Speculative(SpeculativeConfig):
            """The release's own, but for the slots that the scenario says."""

            max_num_new_slots_for_drafting = slots

        made = bare(
            Speculative,
            method=wanted["method"],
            num_speculative_tokens=self.drafts,
            num_speculative_tokens_per_batch_size=wanted["num_speculative_tokens_per_batch_size"],
            parallel_drafting=False,
            disable_eagle_block_drop=not wanted["block_drop"],
            disable_lookahead_block_hashes=not wanted["hash_lookahead"],
            draft_model_config=Lenient(
                hf_config=Lenient(
                    num_nextn_predict_layers=self.drafts if wanted["multi_module"] else 1,
                    # dspark's own default; else it would need a slot more.
                    sample_from_anchor=True,
                )
            ),
        )
        self._slots(made, attribute(SpeculativeConfig, "max_num_new_slots_for_drafting").fget)
        return made

    def _slots(self, speculative, own):
        """A warning where a server would not take the scenario's slots off the budget, however it drafts."""
        slots = {}
        for parallel in (True, False):
            object.__setattr__(speculative, "parallel_drafting", parallel)
            slots[own(speculative)] = None
        wanted = self.wanted["draft_slots"]
        if wanted not in slots:
            self.warnings.append(
                f"a server of this release would take {' or '.join(map(str, sorted(slots)))} slots for each request "
                f"off the budget for {self.wanted['method']}, not the {wanted} of engine.speculative.draft_slots"
            )

    def _cache_mode(self):
        """A server sets it to none without prefix caching, so that its scheduler does not split at blocks."""
        if not self.wanted["enable_prefix_caching"]:
            return "none"
        # No server has groups in both modes: where one is aligned, chunks end for its sake.
        modes = {g["mamba_cache_mode"] for g in self.wanted["groups"]}
        return "all" if "all" in modes and "align" not in modes else "align"

    def _cache(self):
        from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec

        if not self.wanted["enable_prefix_caching"] and any(g["recurrent"] for g in self.wanted["groups"]):
            self.warnings.append(
                "without prefix caching a server of this release keeps one state of a request, and one for each draft "
                "(mamba_cache_mode none); here a recurrent group holds what its own mode holds "
                "(engine.enable_prefix_caching)"
            )
        groups = [
            call(
                KVCacheGroupSpec,
                layer_names=[g["name"]],
                kv_cache_spec=self._spec(g),
                is_eagle_group=g["eagle"],
            )
            for g in self.wanted["groups"]
        ]
        return call(
            KVCacheConfig,
            num_blocks=self.wanted["num_blocks"],
            kv_cache_tensors=[],
            kv_cache_groups=groups,
            prefix_cache_retention_interval=self.wanted["prefix_cache_retention_interval"],
        )

    def _spec(self, group):
        import torch
        from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec

        if not group["recurrent"]:
            window = {"sliding_window": group["sliding_window"]} if group["sliding_window"] else {}
            kind = SlidingWindowSpec if window else FullAttentionSpec
            return call(
                kind, block_size=group["rank_block_size"], num_kv_heads=1, head_size=64, dtype=torch.float16, **window
            )
        return call(
            MambaSpec,
            block_size=group["rank_block_size"],
            shapes=((1, 64),),
            dtypes=(torch.float16,),
            mamba_cache_mode=group["mamba_cache_mode"],
            num_speculative_blocks=self.drafts,
            num_prefill_checkpoint_blocks=self.wanted["num_prefill_checkpoint_blocks"],
            prefill_checkpoint_alignment=self.wanted["prefill_checkpoint_alignment"],
        )

    def _validate(self, config):
        """Warn where a server of this release would refuse the block size; the scenario runs all the same."""
        check = attribute(config, "validate_block_size")
        try:
            check()
        except AssertionError as error:
            said = str(error) or "an assertion without a text"
            self.warnings.append(f"a server of this release would refuse this configuration: {said}")

    def _sizes(self, utils, cache, config):
        """(scheduler block, hash unit): the scenario's, with a warning where the release resolves them otherwise."""
        block, unit = self.wanted["scheduler_block_size"], self.wanted["hash_unit"]
        try:
            resolved = utils.resolve_kv_cache_block_sizes(cache, config)
        except ValueError as error:
            self.warnings.append(f"a server of this release would refuse this configuration: {error}")
        else:
            if resolved != (block, unit) and self.wanted["enable_prefix_caching"]:
                self.warnings.append(
                    f"a server of this release would hash every {resolved[1]} tokens and align to {resolved[0]}, "
                    f"not {unit} and {block}"
                )
        return block, unit

    def _partial_hits(self, on):
        """Hits finer than a block: as the release decides, or off, as where a third group cannot serve them."""
        from vllm.v1.core.kv_cache_coordinator import HybridKVCacheCoordinator as Hybrid

        for name, value in PATCHED.items():
            setattr(Hybrid, name, value) if value is not None else delattr(Hybrid, name)
        PATCHED.clear()
        if not on:
            name = "enable_partial_hash_hits"
            PATCHED[name] = Hybrid.__dict__.get(name)
            # The constructor decides: an attribute that stays off.
            setattr(Hybrid, name, property(lambda self: False, lambda self, value: None))

    def _hasher(self, utils, config, unit):
        from vllm.utils.hashing import sha256

        utils.init_none_hash(sha256)
        if not self.wanted["enable_prefix_caching"]:
            return None
        return call(
            utils.get_request_block_hasher,
            hash_block_size=unit,
            caching_hash_fn=sha256,
            num_hash_lookahead_tokens=hash_lookahead(config),
        )

    # What became of it.

    def hold(self, scheduler):
        """Hold what the release made of the configuration against what it was told; raises Unsupported by name."""
        made = [
            f"{option}: found {wanted}, and the release made it {found}"
            for option, wanted, found in (*self._made(scheduler), *self._made_of_groups(scheduler))
            if found != wanted
        ]
        if made:
            raise Unsupported("; ".join(made))
        # A limit of its own since 0.31; 0.33 lowers it where the drafter's queries would not fit the budget.
        active = getattr(scheduler, "max_num_active_reqs", scheduler.max_num_running_reqs)
        if active < self.wanted["max_num_seqs"]:
            self.warnings.append(
                f"this release runs at most {active} requests at a time here, not the {self.wanted['max_num_seqs']} "
                "of engine.max_num_seqs"
            )

    def _made(self, scheduler):
        """(option, what was asked, what the release has)"""
        wanted, manager, config = self.wanted, scheduler.kv_cache_manager, scheduler.vllm_config
        coordinator, pool = manager.coordinator, manager.block_pool
        settings, cache, speculative = config.scheduler_config, config.cache_config, config.speculative_config
        yield "engine.num_blocks", wanted["num_blocks"], pool.num_gpu_blocks
        yield "engine.max_num_batched_tokens", wanted["max_num_batched_tokens"], settings.max_num_batched_tokens
        # To 0.27 a drafter's slots are taken off beforehand, for each request that could run.
        budget, cap = wanted["max_num_batched_tokens"], scheduler.max_num_scheduled_tokens
        taken = wanted["draft_slots"] * wanted["max_num_seqs"] if self.drafts else 0
        yield "engine.speculative.draft_slots", cap if cap == budget else budget - taken, cap
        yield "engine.max_num_seqs", wanted["max_num_seqs"], scheduler.max_num_running_reqs
        yield "engine.max_model_len", wanted["max_model_len"], scheduler.max_model_len
        threshold = settings.long_prefill_token_threshold
        yield "engine.long_prefill_token_threshold", wanted["long_prefill_token_threshold"], threshold
        ranks = config.parallel_config.decode_context_parallel_size
        yield "engine.decode_context_parallel_size", wanted["decode_context_parallel_size"], ranks
        yield "engine.enable_prefix_caching", wanted["enable_prefix_caching"], bool(manager.enable_caching)
        if not wanted["partial_hits"]:
            yield "engine.partial_hits", False, partial_hits(coordinator)
        yield "engine.prefix_match_unit", wanted["hash_unit"], scheduler.hash_block_size
        yield "engine.prefix_match_unit", wanted["hash_unit"], pool.hash_block_size
        yield "engine.groups", wanted["scheduler_block_size"], scheduler.block_size
        yield "engine.cache_config_block_size", wanted["cache_config_block_size"], cache.block_size
        yield "engine.watermark", int(wanted["watermark"] * wanted["num_blocks"]), manager.watermark_blocks
        full = bool(scheduler.scheduler_reserve_full_isl)
        yield "engine.scheduler_reserve_full_isl", wanted["scheduler_reserve_full_isl"], full
        # To 0.28 the coordinator reads an environment variable.
        interval = wanted["prefix_cache_retention_interval"]
        yield "engine.prefix_cache_retention_interval", interval, coordinator.retention_interval
        # The release itself narrows it to caches where it can help.
        names = (name := "enable_mamba_shared_prefix_checkpoint", FORMERLY[name])
        junctions = any(getattr(cache, each, False) for each in names)
        yield "engine.shared_prefix_checkpoint", wanted["shared_prefix_checkpoint"], junctions
        encoder = scheduler.encoder_cache_manager
        yield "engine.encoder_cache_size", wanted["encoder_cache_size"], encoder.cache_size
        tokens = scheduler.max_num_encoder_input_tokens
        yield "engine.max_num_encoder_input_tokens", wanted["max_num_encoder_input_tokens"], tokens
        whole = settings.disable_chunked_mm_input
        yield "engine.disable_chunked_mm_input", wanted["disable_chunked_mm_input"], whole
        yield "engine.speculative.num_speculative_tokens", self.drafts, scheduler.num_spec_tokens
        yield "engine.speculative.method", wanted["look_ahead"], bool(scheduler.use_eagle)
        slots = wanted["lookahead_tokens"] if self.drafts else 0
        yield "engine.speculative.method (slots ahead)", slots, scheduler.num_lookahead_tokens
        if self.drafts:
            yield "engine.speculative.method", wanted["method"], speculative.method
            lookup = attribute(scheduler, "dynamic_sd_lookup")
            # Its entry for no request at all is never asked.
            behind = None if lookup is None else lookup[1:]
            yield "engine.speculative.num_speculative_tokens_per_batch_size", wanted["drafts_behind"], behind
        if hasattr(scheduler, "_reserve_prefill_lookahead"):  # 0.28
            ahead = wanted["prefill_lookahead"]
            yield "engine.speculative.multi_module", ahead, attribute(scheduler, "num_prefill_lookahead")
        if not wanted["hash_lookahead"]:
            yield "engine.speculative.hash_lookahead", 0, hash_lookahead(config)
        if self.drafts and not wanted["block_drop"]:
            yield "engine.speculative.block_drop", False, bool(attribute(scheduler, "use_eagle_block_drop"))  # 0.30

    def _made_of_groups(self, scheduler):
        coordinator, groups = scheduler.kv_cache_manager.coordinator, self.wanted["groups"]
        flagged = {i for i, group in enumerate(groups) if group["eagle"]}
        held = set(coordinator.eagle_group_ids)
        # Where a drafter looks ahead and no group is flagged, a release flags all.
        if flagged or held != set(range(len(groups))) or not self.wanted["look_ahead"]:
            yield "engine.groups (eagle)", flagged, held
        yield "engine.groups", len(groups), len(coordinator.single_type_managers)
        for i, (group, manager) in enumerate(zip(groups, coordinator.single_type_managers, strict=False)):
            spec, place = manager.kv_cache_spec, f"engine.groups.{i}"
            yield f"{place}.block_size", group["block_size"], manager.block_size
            if group["recurrent"]:
                yield f"{place}.mamba_cache_mode", group["mamba_cache_mode"], spec.mamba_cache_mode
                yield f"{place} (drafts)", self.drafts, spec.num_speculative_blocks
                blocks = getattr(spec, "num_prefill_checkpoint_blocks", 0)  # 0.29
                yield "engine.num_prefill_checkpoint_blocks", self.wanted["num_prefill_checkpoint_blocks"], blocks
            else:
                # The plain kind has the field and leaves it empty.
                yield f"{place}.sliding_window", group["sliding_window"], getattr(spec, "sliding_window", 0) or 0


def hash_lookahead(config):
    """Tokens behind a block that its hash covers; there are such since 0.33."""
    if not has_field(type(config.speculative_config), "disable_lookahead_block_hashes"):
        return 0
    return attribute(config, "num_hash_lookahead_tokens")


def partial_hits(coordinator):
    """True if hits finer than a block are on; to 0.27 only a coordinator of several kinds of groups knows."""
    return bool(getattr(coordinator, "enable_partial_hash_hits", False))
