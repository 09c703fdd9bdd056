"""Words for counters of kernels, and for what their warps wait for.

What a reason means follows the Kernel Profiling Guide of Nsight Compute ("Warp Stall Reasons").
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sonda.analysis import wording
from sonda.analysis.device.findings import CountedUnlikeNominal, MendStall, WarpsWait
from sonda.report import quantities
from sonda.report.words.describe import describe
from sonda.report.words.names import name_layers
from sonda.report.words.numbers import share

MULTIPLYING = ("convolution", "linear layer", "attention", "Dot")
"""Families whose FLOPs are those of products of matrices."""
CALLING = ("activation", "softmax", "Sigmoid", "Tanh", "loss", "normalisation")
"""Families that call functions which the device makes of several multiply-adds."""

FUSE = "fuse it with its neighbours (torch.compile, XLA), so that less is read and written"
WAITS = {
    "barrier": "at a barrier for other warps of their block",
    "branch_resolving": "for a branch to be decided",
    "dispatch_stall": "because the dispatcher holds them back",
    "drain": "at their end for their stores to leave",
    "gmma": "for the tensor cores to take or return their tiles",
    "imc_miss": "for constants that are not in their cache",
    "lg_throttle": "because too many accesses to memory are queued",
    "long_scoreboard": "for data from memory",
    "math_pipe_throttle": "for an arithmetic unit that is busy",
    "membar": "at a memory barrier",
    "mio_throttle": "because the queue of shared memory and special functions is full",
    "misc": "for a reason that the hardware does not name",
    "no_instruction": "for instructions to be fetched",
    "not_selected": "because another warp was chosen: there is enough to do",
    "selected": "for nothing: they issue",
    "short_scoreboard": "for shared memory or special functions",
    "sleeping": "because they were told to sleep",
    "tex_throttle": "because the queue of the texture unit is full",
    "wait": "a fixed time for the instruction before",
}
"""By reason, how a sentence goes on after "warps wait"."""
MENDS = {
    "barrier": "smaller blocks, or work split more evenly",
    "branch_resolving": "fewer branches inside loops",
    "drain": FUSE,
    "gmma": "larger tiles, or a newer cuBLAS or cuDNN",
    "imc_miss": "pass fewer different constants",
    "lg_throttle": "contiguous tensors: loads are wide then",
    "long_scoreboard": f"{FUSE}; or use narrower types",
    "math_pipe_throttle": "tensor cores: TF32 or bfloat16",
    "membar": "fewer atomic operations and fences",
    "mio_throttle": "fewer accesses to shared memory",
    "no_instruction": "larger work per launch: small kernels begin cold",
    "short_scoreboard": "cheaper functions, or accesses without bank conflicts",
    "tex_throttle": "fewer texture accesses",
    "wait": "more independent work in every thread",
}
"""What to try, of reasons that can be mended."""
LONGEST_NAME = 80
APPLIED = re.compile(r"(?:[<:]|,\s)(cutlass_\w+|\w*(?:[Ff]unctor\w*|_kernel_cuda|_kernel_impl|Ops))\b")
"""Among a kernel's template arguments, words that name the operation."""


def kernel_label(name: str) -> str:
    """A kernel in a sentence: its function, and what it applies where it is a template for many operations.

    `vectorized_elementwise_kernel (sigmoid_kernel_cuda)`.
    """
    text = name.replace("(anonymous namespace)::", "")
    function = re.split(r"[<(]", text, maxsplit=1)[0].split()
    short = (function[-1] if function else text).rpartition("::")[2][:LONGEST_NAME]
    applied = [word for word in dict.fromkeys(APPLIED.findall(text)) if word != short][:2]
    return f"{short} ({' '.join(applied)})" if applied else short


@describe.register
def _(finding: WarpsWait) -> str:
    return f"warps wait {share(finding.share)} of the time {WAITS[finding.reason]} ({finding.reason})"


@describe.register
def _(finding: MendStall) -> str:
    return MENDS[finding.reason]


def explain_stalls(reasons: Iterable[str]) -> list[str]:
    """What each of these reasons means and what to try, every reason once."""
    return [
        f"{reason}: warps wait {WAITS[reason]}" + (f"; try: {MENDS[reason]}" if reason in MENDS else "")
        for reason in dict.fromkeys(reasons)
    ]


@describe.register
def _(finding: CountedUnlikeNominal) -> str:
    several, ratio = finding.places > 1, finding.ratio
    who = f"{finding.places} {finding.name} count" if several else f"{finding.name} counts"
    times = quantities.rounded(ratio, 2 if ratio < 1 else 1 if ratio < 10 else 0)
    counted, nominal = wording.amount(finding.counted, "FLOP"), wording.amount(finding.nominal, "FLOP")
    because = _because(finding.name, ratio) if finding.layer else ""
    return (
        f"{who} {times} times {'their' if several else 'its'} nominal FLOPs ({counted} where formulas have {nominal})"
        f"{because}"
    )


def _because(name: str, ratio: float) -> str:
    """A reason that fits, or ''."""
    family = name_layers(name, 1)
    if ratio < 1:
        if family == "convolution":
            return ": a transform such as Winograd's needs fewer multiplications"
        return ": the rest is not counted as FLOPs (special functions, comparisons, integers)"
    if name == "Add":
        return ": a + alpha · b is a multiply-add of two"
    if family in MULTIPLYING or name in MULTIPLYING:
        return ": tiles at the edges are filled up, or parts are computed twice"
    if family in CALLING or name in CALLING:
        return ": a function such as exp is one in a formula and several multiply-adds on the device"
    return ""
