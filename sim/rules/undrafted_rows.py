"""Decode rows without drafts beside a drafter: the state that the kernel takes for theirs."""

from __future__ import annotations

from stateat.sim.rules.record import Rule, Value, When

UNDRAFTED_ROWS: Rule[bool] = Rule(
    "Which state does a decode row read that has no drafts, where there is a drafter, in `align` mode?",
    {
        "running-column": Value(
            True,
            "The running column's, whatever was accepted: the kernel runs it as a plain decode.",
            "vLLM to 0.31, runner v1 (`_prepare_inputs`) and v2 (mamba_hybrid, `prepare_attn`), kernels of GDN and KDA "
            "(gdn_attn, `build`); vLLM issues 39273, 56531",
        ),
        "accepted-state": Value(
            False,
            "Its own, as a row with drafts does.",
            "the same functions of vLLM from 0.32 on; Mamba-2 before, if another row of the step has drafts, with "
            "runner v2 always (mamba_attn)",
        ),
    },
    When(
        "with a drafter, and recurrent groups in `align` mode",
        lambda options, requests: (
            bool(options.speculative.num_speculative_tokens) and any(group.aligned for group in options.groups)
        ),
    ),
    note="Its own lies behind the running column where drafts were accepted in the step before. Whatever it reads, a "
    "copy into another column takes its own.",
)
"""True if it reads the running column's."""
