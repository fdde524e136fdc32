"""Steps in flight: the release's own decision about asynchronous scheduling, and how many steps it has under way."""

from __future__ import annotations

import ast
import inspect
import textwrap

from objects import Strange, Unsupported, attribute, refusing

SCHEDULING = "self.scheduler_config.async_scheduling"
"""The condition that the release's decision begins with."""


def staged(wanted, make):
    """The configuration whose batch queue is as deep as is wanted: as many pipeline stages as that takes.

    ``make``: (stages, model runner V2, V1, or None as the release chooses) to a configuration of the release. Raises
    Unsupported, in the release's own words, for what it refuses to schedule asynchronously.
    """
    depth, runner_v2 = wanted["max_concurrent_batches"], wanted["runner_v2"]
    if wanted["async_scheduling"]:
        # A stage and the step ahead of it are two; with further stages only runner V2 is ahead of all of them.
        config = make(depth - runner_v2 if depth > 2 else 1, runner_v2)
        decide(config)
        if config.scheduler_config.async_scheduling:
            return hold(config, max(depth, 2))
    config = make(depth, None)
    config.scheduler_config.async_scheduling = False
    return hold(config, depth)


def hold(config, depth):
    """The configuration, if that is the depth of its queue."""
    made = attribute(config, "max_concurrent_batches")
    if made != depth:
        raise Unsupported(f"engine.max_concurrent_batches: found {depth}, and the release made it {made}")
    return config


def decide(config):
    """Let the release say if it schedules asynchronously, with this configuration: it runs that part of its own checks.

    They stand in the middle of the checks of a whole server, which no scheduler needs.
    """
    names = vars(inspect.getmodule(_checks(type(config)))) | {
        "self": config,
        "executor_backend": None,
        "executor_supports_async_sched": True,
        "uses_rocm_deepep_ht_dbo": False,
    }
    with refusing("engine.async_scheduling"):
        exec(_decision(_checks(type(config))), names)


def _checks(kind):
    for base in kind.__mro__:
        if "__post_init__" in vars(base):
            return vars(base)["__post_init__"]
    raise Strange(f"its {kind.__name__} checks nothing")


def _decision(checks):
    """The statements that decide, from the last one that says what stands against it."""
    checks = inspect.unwrap(checks)
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(checks))).body
    statements = body.body
    found = [i for i, s in enumerate(statements) if isinstance(s, ast.If) and ast.unparse(s.test) == SCHEDULING]
    if not found:
        raise Strange("it does not say when it schedules asynchronously")
    last = found[0]
    first = last
    while first and _against(statements[first - 1]):
        first -= 1
    return compile(ast.Module(statements[first : last + 1], []), inspect.getfile(checks), "exec")


def _against(statement):
    """True for a statement that says what a model runner cannot do asynchronously (since 0.33)."""
    return "v1_async_sched_incompat" in ast.unparse(statement)
