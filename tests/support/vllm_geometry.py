"""Asks a release's own functions for block sizes and bytes. Runs under the Python that has vLLM, without torch.

    PYTHON vllm_geometry.py RELEASE_FOLDER < cases.json > answers.json

PYTHONPATH names the release's folder and ``sim/adapters/vllm_child``, whose stand-ins are used. Functions that lie in
modules which need torch or kernels are taken out of the release's source files and run as they are; none is
written again here.
"""

# mypy: ignore-errors

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import logging
import os
import sys
import types

from objects import bare, has_field
from placeholders import Lenient
from stand_ins import stub

FILES = {
    "qwen3-next": ("Qwen3NextForCausalLM", ("model_executor/models/qwen3_next.py",)),
    "qwen3.5": (
        "Qwen3_5ForConditionalGeneration",
        ("model_executor/models/qwen3_5.py",),
    ),
    "nemotron-h": ("NemotronHForCausalLM", ("model_executor/models/nemotron_h.py",)),
    "falcon-h1": ("FalconH1ForCausalLM", ("model_executor/models/falcon_h1.py",)),
    "jamba": ("JambaForCausalLM", ("model_executor/models/jamba.py",)),
    "kimi-linear": (
        "KimiLinearForCausalLM",
        ("model_executor/models/kimi_linear.py", "models/kimi_k3/nvidia/model.py"),
    ),
    "lfm2": ("Lfm2ForCausalLM", ("model_executor/models/lfm2.py",)),
}
CONFIGS = {"nemotron-h": "NemotronHForCausalLMConfig", "qwen3.5": "Qwen3_5ForConditionalGenerationConfig"}
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2, "uint8": 1, "float": 4}
QUIET = types.SimpleNamespace(
    **{name: lambda *args, **kwargs: None for name in ("info", "warning", "debug", "info_once", "warning_once")}
)


class Release:
    """The functions of one release."""

    def __init__(self, folder):
        self.folder = folder
        stub(
            {
                "vllm.model_executor.layers.mamba.mamba_utils",
                "vllm.transformers_utils.model_arch_config_convertor",
                "vllm.model_executor.models.config",
            }
        )
        import vllm.config.vllm as whole
        import vllm.model_executor.layers.mamba.abstract as abstract
        import vllm.model_executor.layers.mamba.mamba_utils as states
        import vllm.model_executor.models as models
        import vllm.platforms.interface as interface
        import vllm.transformers_utils.model_arch_config_convertor as convertor
        import vllm.v1.kv_cache_interface as specs
        from vllm.config import CacheConfig
        from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE

        self.states, self.specs, self.models, self.convertor = states, specs, models, convertor
        self.abstract, self.interface, self.cache_config = abstract, interface, CacheConfig
        self.dtypes = STR_DTYPE_TO_TORCH_DTYPE
        whole.set_current_vllm_config = lambda *args, **kwargs: contextlib.nullcontext()
        specs.get_dtype_size = self.dtype_size
        divide = self.functions("distributed/utils.py", ("ensure_divisibility", "divide"))
        states.divide = divide["divide"]
        states.is_conv_state_dim_first = lambda: False
        if isinstance(getattr(convertor, "CONFIG_FIELD_ALIASES", None), type):
            convertor.CONFIG_FIELD_ALIASES = self.literal("transformers_utils/config.py", "CONFIG_FIELD_ALIASES")
        convertor.envs = types.SimpleNamespace(VLLM_MLA_DISABLE=False)
        if hasattr(convertor, "get_compress_ratios"):
            convertor.get_compress_ratios = lambda config: None

    @staticmethod
    def dtype_size(dtype):
        return BYTES[dtype.__name__]

    def tree(self, path):
        with open(os.path.join(self.folder, "vllm", path), encoding="utf-8") as file:
            return ast.parse(file.read())

    def literal(self, path, name):
        for node in self.tree(path).body:
            target = node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])[0]
            if isinstance(node, ast.Assign | ast.AnnAssign) and getattr(target, "id", "") == name:
                return ast.literal_eval(node.value)
        raise LookupError(f"{path} has no {name}")

    def functions(self, path, names, owner=None, **known):
        """Functions of a file, or methods of a class in it, in a namespace of their own."""
        body = self.tree(path).body
        if owner:
            body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == owner).body
        picked = [node for node in body if isinstance(node, ast.FunctionDef) and node.name in names]
        future = ast.parse("from __future__ import annotations").body
        module = ast.fix_missing_locations(ast.Module(future + picked, []))
        space = dict(known)
        exec(compile(module, path, "exec"), space)
        return {node.name: space[node.name] for node in picked}

    def model_class(self, family):
        name, paths = FILES[family]
        path = next(p for p in paths if os.path.exists(os.path.join(self.folder, "vllm", p)))
        owner = next(n for n in self.tree(path).body if isinstance(n, ast.ClassDef) and n.name == name)
        wanted = ("get_mamba_state_shape_from_config", "get_mamba_state_dtype_from_config")
        known = {
            "MambaStateShapeCalculator": self.states.MambaStateShapeCalculator,
            "MambaStateDtypeCalculator": self.states.MambaStateDtypeCalculator,
        }
        found = self.functions(path, wanted, name, **known)
        if len(found) < 2:
            # a class between holds them
            bases = [base.id for base in owner.bases if isinstance(base, ast.Name)]
            for base in bases:
                with contextlib.suppress(StopIteration):
                    found = {**self.functions(path, wanted, base, **known), **found}
        bases = {getattr(base, "id", "") for base in owner.bases}
        return type(name, (), found), "SupportsMambaPrefixCaching" in bases

    def backend(self, kernel, nvfp4):
        """An attention backend whose kernels take multiples of this; FlashInfer's packing where keys are nvfp4."""
        pack = lambda spec: spec  # noqa: E731
        if nvfp4:
            import vllm.utils.torch_utils as utils

            with contextlib.suppress(KeyError, AttributeError):
                found = self.functions(
                    "v1/attention/backends/flashinfer.py",
                    ("customize_spec",),
                    "FlashInferBackend",
                    nvfp4_kv_cache_full_dim=utils.nvfp4_kv_cache_full_dim,
                    get_dtype_size=self.dtype_size,
                    replace=dataclasses.replace,
                )
                pack = lambda spec: found["customize_spec"].__func__(None, spec)  # noqa: E731

        class Backend:
            is_ssm = staticmethod(lambda: False)
            get_name = staticmethod(lambda: "TEST")
            get_supported_kernel_block_sizes = staticmethod(lambda *args: [kernel])
            supports_block_size = staticmethod(lambda block: block is None or block % kernel == 0)
            get_preferred_block_size = staticmethod(lambda default: default if default % kernel == 0 else kernel)
            customize_spec = staticmethod(pack)

        return Backend

    def ask(self, case):
        """Block sizes, bytes, mode and groups of a model and a server's flags."""
        family, flags, values = case["family"], case["flags"], case["config"]
        model_class, supports_all = self.model_class(family)
        outer = namespace(values)
        inner = outer
        for key in ("text_config", "llm_config", "language_config"):
            if isinstance(values.get(key), dict):
                inner = getattr(outer, key)
        drafts = flags["num_speculative_tokens"]
        parallel = types.SimpleNamespace(
            tensor_parallel_size=flags["tensor_parallel_size"], decode_context_parallel_size=1
        )
        model = self.model(outer, inner, flags, supports_all)
        wanted = {
            "block_size": flags["block_size"] or 16,
            "user_specified_block_size": flags["block_size"] is not None,
            "mamba_block_size": flags["mamba_block_size"],
            "user_specified_mamba_block_size": flags["mamba_block_size"] is not None,
            "cache_dtype": flags["kv_cache_dtype"],
            "mamba_cache_dtype": flags["mamba_cache_dtype"],
            "mamba_ssm_cache_dtype": flags["mamba_ssm_cache_dtype"],
            "mamba_cache_mode": flags["mamba_cache_mode"] or "none",
            "enable_prefix_caching": flags["enable_prefix_caching"],
            "mamba_page_size_padded": None,
            "kv_cache_dtype_skip_layers": [],
            "calculate_kv_scales": False,
            "use_replayssm": False,
        }
        # Not all releases have all of them.
        known = {name: value for name, value in wanted.items() if has_field(self.cache_config, name)}
        cache = bare(self.cache_config, **known)
        config = types.SimpleNamespace(
            model_config=model,
            cache_config=cache,
            parallel_config=parallel,
            scheduler_config=types.SimpleNamespace(enable_chunked_prefill=True),
            speculative_config=types.SimpleNamespace(num_speculative_tokens=drafts) if drafts else None,
            num_speculative_tokens=drafts,
        )
        import vllm.model_executor.models.config as configs

        if family in CONFIGS:
            getattr(configs, CONFIGS[family]).verify_and_update_config(config)
        configs.HybridAttentionMambaModelConfig.verify_and_update_config(config)
        self.models.ModelRegistry.resolve_model_cls = staticmethod(lambda *args, **kwargs: (model_class, ""))
        gdn = family in ("qwen3-next", "qwen3.5") and flags["gdn_prefill_backend"] in ("auto", "flashinfer")
        source = "v1/attention/backends/gdn_attn.py"
        name = "FLASHINFER_GDN_CHECKPOINT_ALIGNMENT"
        with contextlib.suppress(LookupError):
            alignment = self.literal(source, name)
            self.abstract.get_mamba_prefill_checkpoint_alignment = lambda config: alignment if gdn else None
        backend = self.backend(flags["attention_kernel_block"], cache.cache_dtype == "nvfp4")

        class Platform(self.interface.Platform):
            _find_non_ssm_backend = classmethod(lambda cls, config: backend)
            _find_non_ssm_backends = classmethod(lambda cls, config: [backend])

        Platform.update_block_size_for_backend(config)
        state = self.specs.MambaSpec(
            shapes=model_class.get_mamba_state_shape_from_config(config),
            dtypes=model_class.get_mamba_state_dtype_from_config(config),
            block_size=cache.mamba_block_size,
            mamba_cache_mode=cache.mamba_cache_mode,
            num_speculative_blocks=drafts,
        )
        padded = dataclasses.replace(state, page_size_padded=cache.mamba_page_size_padded)
        checkpoint = case.get("checkpoint_blocks", 0)
        kept = dataclasses.replace(padded, num_prefill_checkpoint_blocks=checkpoint) if checkpoint else padded
        return {
            "tokens": self.tokens(case, config, kept),
            "mode": cache.mamba_cache_mode,
            "block_size": cache.block_size,
            "mamba_block_size": cache.mamba_block_size,
            "state_bytes": state.page_size_bytes,
            "page_bytes": padded.page_size_bytes,
            "pinned": padded.max_memory_usage_bytes(config) // padded.page_size_bytes,
            "groups": self.counted(self.groups(case, config, padded)),
            "retention": getattr(cache, "prefix_cache_retention_interval", None),
        }

    def model(self, outer, inner, flags, supports_all):
        convertor = self.convertor.ModelArchConfigConvertorBase(outer, inner)
        methods = self.functions("config/model.py", ("get_num_kv_heads", "get_mamba_chunk_size"), "ModelConfig")
        model = Lenient(
            hf_config=outer,
            hf_text_config=inner,
            dtype=self.dtypes[flags["dtype"]],
            use_mla=convertor.is_deepseek_mla(),
            model_arch_config=types.SimpleNamespace(total_num_kv_heads=convertor.get_total_num_kv_heads()),
            max_model_len=flags["max_model_len"],
            supports_mamba_prefix_caching=supports_all,
            is_hybrid=True,
            architecture="",
            model="",
        )
        model.get_head_size = convertor.get_head_size
        model.get_total_num_kv_heads = convertor.get_total_num_kv_heads
        model.get_num_kv_heads = lambda parallel, *more: methods["get_num_kv_heads"](model, parallel)
        model.get_mamba_chunk_size = lambda: methods["get_mamba_chunk_size"](model)
        return model

    def tokens(self, case, config, state):
        """What the log says of a pool."""
        from vllm.v1.core.kv_cache_utils import get_kv_cache_capacity

        pool = types.SimpleNamespace(
            num_blocks=case.get("num_blocks", 1000), kv_cache_groups=self.groups(case, config, state)
        )
        return get_kv_cache_capacity(config, pool)[0]

    @staticmethod
    def counted(found):
        attention = sum(g.layer_names[0].startswith("attention") for g in found)
        return [attention, len(found) - attention]

    def groups(self, case, config, state):
        """The groups of so many attention and recurrent layers with one page size."""
        try:
            from vllm.v1.core.kv_cache_planning import _get_kv_cache_groups_uniform_page_size as group
        except ImportError:
            from vllm.v1.core.kv_cache_utils import _get_kv_cache_groups_uniform_page_size as group
        token = self.specs.FullAttentionSpec(
            block_size=config.cache_config.block_size,
            num_kv_heads=1,
            head_size=1,
            dtype=self.dtypes["fp8"],
            page_size_padded=state.page_size_bytes,
        )
        layers = {f"attention.{i}": token for i in range(case["attention_layers"])}
        layers |= {f"recurrent.{i}": state for i in range(case["recurrent_layers"])}
        return group(layers)


def namespace(values):
    """A mapping as an object with attributes, the mappings inside that are models' configs too."""
    inner = {k: namespace(v) if k in ("text_config", "llm_config") else v for k, v in values.items()}
    return types.SimpleNamespace(**inner)


def main():
    (folder,) = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    release = Release(folder)
    answers = []
    for case in json.load(sys.stdin):
        try:
            answers.append(release.ask(case))
        except AssertionError as error:
            answers.append({"refused": str(error)})
    json.dump(answers, out)
    out.flush()


if __name__ == "__main__":
    main()
