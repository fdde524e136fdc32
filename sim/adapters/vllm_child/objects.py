"""Objects of a release, made with the arguments and fields that it knows; a missing one that matters is an error."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect


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
    "enable_mamba_shared_prefix_checkpoint": (False, "engine.shared_prefix_checkpoint"),  # 0.30, there as in FORMERLY
    "num_prefill_checkpoint_blocks": (0, "engine.num_prefill_checkpoint_blocks"),  # 0.29
}
"""Arguments and fields that only later releases have: what their absence stands for, and the option."""

FORMERLY = {"enable_mamba_shared_prefix_checkpoint": "enable_mamba_fine_grained_prefix_cache"}  # 0.30
"""Names that fields had before."""

WITHOUT = frozenset(
    {
        "disable_lookahead_block_hashes",  # 0.33: before, no hash looks ahead, asked or not
        "num_hash_lookahead_tokens",  # 0.33
        "prefix_cache_retention_interval",  # 0.29: before, an environment variable, which is set
        "prefill_checkpoint_alignment",  # 0.30: before, a constant of the kernel, which is not run here
    }
)
"""Arguments and fields of later releases for which any value is right where a release has none."""


def accepted(what, names, wanted):
    """Return the values wanted that a release has a place for.

    Raises Unsupported for an option that it lacks, and Strange where it lacks what all releases known have.
    """
    found, lacking = {}, []
    for name, value in wanted.items():
        if name in names:
            found[name] = value
        elif FORMERLY.get(name) in names:
            found[FORMERLY[name]] = value
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
    return call_like(function, function, **wanted)


def call_like(known, function, **wanted):
    """Call with those of the arguments that ``known`` names."""
    return function(**accepted(known.__qualname__, inspect.signature(known).parameters, wanted))


def attribute(thing, name):
    """Return an attribute that all known releases have; raises Strange without it."""
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


def has_field(cls, name):
    """True if a class is a dataclass with a field of this name."""
    return dataclasses.is_dataclass(cls) and any(field.name == name for field in dataclasses.fields(cls))


def make(cls, known):
    """A dataclass of the release; what has no default and is not known becomes None, or an empty dict."""
    values = dict(known)
    for field in dataclasses.fields(cls):
        no_default = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name not in values and no_default:
            values[field.name] = {} if "dict" in str(field.type) else None
    return cls(**values)
