"""Stand-ins for modules that a scheduler imports and does not use: it needs neither torch nor compiled parts."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types

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

USED = frozenset({"vllm.model_executor.layers.mamba.checkpoint", "vllm.v1.spec_decode.dynamic.utils"})
"""Modules inside those that are loaded after all: which state a chunk exports, and how many drafts a batch's size asks
for, is asked of the release."""


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
    """Modules stood in for before all others: parts of vLLM that decide nothing."""

    def __init__(self, used):
        self.used = used

    def find_spec(self, name, path=None, target=None):
        if name in self.used:
            return _file_of(name)
        if any(name == unused or name.startswith(unused + ".") for unused in UNUSED):
            return importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)
        return None


class _Missing(importlib.abc.MetaPathFinder):
    """Modules stood in for after all others: third-party modules that are not installed."""

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


def stands_in(thing):
    """True for a stand-in class."""
    return isinstance(thing, _Kind)


def stub(used=frozenset()):
    """Install stand-ins for all unused modules of vLLM but those in ``used``, and for all absent ones of others."""
    sys.meta_path.insert(0, _Unused(USED | used))
    sys.meta_path.append(_Missing())
