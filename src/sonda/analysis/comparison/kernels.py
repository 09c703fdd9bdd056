"""Two imported traces kernel by kernel: how often each ran, how long a launch took, and what that makes per step.
Where neither has a device, operation by operation of the host.

The interval of a ratio of means is that of its logarithm, from the spread of single launches (Student's t with Welch's
degrees of freedom), widened so that those of all kernels hold at once with 95 % (Bonferroni). Launches of one run are
not independent of each other: two recordings of one program differ by more than these intervals say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from sonda.analysis import reasons
from sonda.analysis.comparison.findings import DifferentDevices, DifferentTools, IncompleteTrace
from sonda.analysis.comparison.limit import LimitCheck, Variation, check_limit
from sonda.analysis.comparison.summary import describe
from sonda.analysis.device.kernels import KernelTotals
from sonda.analysis.findings import Finding
from sonda.analysis.statistics import student
from sonda.analysis.summary import Value
from sonda.analysis.traces.summary import DeviceWork, device_work, host_work
from sonda.record.errors import SondaError
from sonda.record.run import Run


@dataclass(frozen=True)
class ComparedKernel:
    """A kernel that both sides have."""

    name: str
    kind: str
    launches_a: float
    """Per step, or in all where a side has no steps."""
    launches_b: float
    a: Value
    """ns per step, or in all."""
    b: Value
    mean_a: Value
    """ns of one launch."""
    mean_b: Value
    ratio: Value
    """Mean launch of B over mean launch of A, with its interval."""
    significant: bool
    text: str
    """`1.05x faster`, `not significant`; of B's launches seen from A's."""


@dataclass(frozen=True)
class LoneKernel:
    """A kernel that one side has."""

    name: str
    kind: str
    launches: float
    time: Value


@dataclass(frozen=True)
class KernelComparison:
    """B against A. Times are per step where both sides have steps, else in all."""

    a: str
    b: str
    per_step: bool
    rows: tuple[ComparedKernel, ...]
    """Largest change of time first."""
    only_a: tuple[LoneKernel, ...]
    only_b: tuple[LoneKernel, ...]
    totals: tuple[tuple[str, Value, Value], ...]
    """step, window, busy, compute, communication, copies, idle: A and B."""
    slowdown: Value
    """How much longer B's steps take, 0.05 for 5 %, or its windows where there are no steps."""
    warnings: tuple[Finding, ...]
    on_host: bool = False
    """Neither side has a device: what is compared are operations of the host."""

    variations: tuple[Variation, ...] = ()
    """How much the steps of A and of B differ; none where a side has fewer than two."""

    def check(self, limit: float) -> LimitCheck:
        """Whether B is slower than A by more than `limit`, with 95 % confidence; one number a side does not tell."""
        return check_limit(self.slowdown, limit, self.variations)


def compare_kernels(a: Sequence[Run], b: Sequence[Run]) -> KernelComparison:
    """One imported run against another. Raises SondaError for several on a side, and for a run that was measured."""
    if len(a) != 1 or len(b) != 1:
        raise SondaError("imported runs are compared one by one", "name one run on each side")
    left, right = a[0], b[0]
    for run in (left, right):
        if run.info.kind != "imported":
            raise SondaError(f"{run.id} was measured, the other was imported", "look at both: sonda report A B")
    mine, theirs = device_work(left), device_work(right)
    on_host = not mine.kernels and not theirs.kernels
    if on_host:
        mine, theirs = host_work(left), host_work(right)
    if not mine.kernels or not theirs.kernels:
        lacking = left if not mine.kernels else right
        raise SondaError(
            f"{lacking.id} holds no {'operation' if on_host else 'kernel'}",
            "compare traces that both have activities of a device, or both operations of the host",
        )
    per_step = bool(mine.step_count and theirs.step_count)
    divide = (mine.step_count, theirs.step_count) if per_step else (1, 1)
    found_a = {(kernel.kind, kernel.name): kernel for kernel in mine.kernels}
    found_b = {(kernel.kind, kernel.name): kernel for kernel in theirs.kernels}
    both = [key for key in found_a if key in found_b]
    rows = [_row(found_a[key], found_b[key], divide, len(both)) for key in both]
    rows.sort(key=lambda row: -abs((row.b.value or 0) - (row.a.value or 0)))
    warnings: list[Finding] = [IncompleteTrace(run.id) for run in (left, right) if run.info.status != "complete"]
    if left.info.machine.processor != right.info.machine.processor:
        warnings.append(DifferentDevices())
    if left.info.workload.imported != right.info.workload.imported:
        warnings.append(DifferentTools())
    return KernelComparison(
        left.id, right.id, per_step, tuple(rows),
        tuple(_lone(kernel, divide[0]) for key, kernel in found_a.items() if key not in found_b),
        tuple(_lone(kernel, divide[1]) for key, kernel in found_b.items() if key not in found_a),
        tuple(_totals(mine, theirs, divide, "operations" if on_host else "kernels and copies")),
        _slowdown(mine, theirs), tuple(warnings), on_host, _variations(mine, theirs),
    )  # fmt: skip


def _time(nanoseconds: float) -> Value:
    return Value(nanoseconds, "ns", "measured")


def _lone(kernel: KernelTotals, steps: int) -> LoneKernel:
    return LoneKernel(kernel.name, kernel.kind, kernel.launches / steps, _time(kernel.total / steps))


def _row(a: KernelTotals, b: KernelTotals, steps: tuple[int, int], comparisons: int) -> ComparedKernel:
    ratio, significant, text = _ratio((a.mean, a.deviation, a.launches), (b.mean, b.deviation, b.launches), comparisons)
    return ComparedKernel(
        a.name, a.kind, a.launches / steps[0], b.launches / steps[1], _time(a.total / steps[0]),
        _time(b.total / steps[1]), _time(a.mean), _time(b.mean), ratio, significant, text,
    )  # fmt: skip


def _ratio(a: tuple[float, float, int], b: tuple[float, float, int], comparisons: int) -> tuple[Value, bool, str]:
    """Of two means with their deviations and sizes, with its interval where both have a spread."""
    if not a[0] or not b[0]:
        return Value(None, "1", "derived", reason=reasons.SIDE_TOOK_NO_TIME), False, ""
    value = b[0] / a[0]
    if math.isnan(a[1]) or math.isnan(b[1]):
        return Value(value, "1", "derived", reason=reasons.ONE_LAUNCH), False, ""
    first, second = ((mean, (deviation / mean) ** 2 / many, many) for mean, deviation, many in (a, b))
    spread = first[1] + second[1]
    # Welch's degrees of freedom.
    below = first[1] ** 2 / (first[2] - 1) + second[1] ** 2 / (second[2] - 1)
    freedom = max(1, int(spread**2 / below)) if below else first[2] + second[2] - 2
    width = min(student(1 - 0.025 / max(1, comparisons), freedom) * math.sqrt(spread), 700.0)
    low, high = value * math.exp(-width), value * math.exp(width)
    significant = not low <= 1 <= high
    text = describe(value, low, high) if significant else "not significant"
    return Value(value, "1", "derived", low, high), significant, text


def _totals(a: DeviceWork, b: DeviceWork, steps: tuple[int, int], all_: str) -> list[tuple[str, Value, Value]]:
    """Sums over devices; step is the mean step. `all_`: what the activities are."""
    rows = []
    if a.step_count and b.step_count:
        rows.append(("step", _time(fmean(_steps(a))), _time(fmean(_steps(b)))))
    if a.devices and b.devices:
        for name in ("window", "busy", "compute", "communication", "copying", "idle"):
            sides = [
                sum(getattr(device, name) for device in work.devices) / many
                for work, many in zip((a, b), steps, strict=True)
            ]
            rows.append((name, _time(sides[0]), _time(sides[1])))
    rows.append((all_, _time(a.total / steps[0]), _time(b.total / steps[1])))
    return rows


def _steps(work: DeviceWork) -> list[int]:
    return [duration for durations in work.steps.values() for duration in durations]


def _variations(a: DeviceWork, b: DeviceWork) -> tuple[Variation, ...]:
    sides = [_steps(work) for work in (a, b)]
    if min(map(len, sides)) < 2 or not all(map(fmean, sides)):
        return ()
    return tuple(Variation(stdev(steps) / fmean(steps), len(steps)) for steps in sides)


def _slowdown(a: DeviceWork, b: DeviceWork) -> Value:
    if a.step_count and b.step_count:
        sides = []
        for work in (a, b):
            durations = _steps(work)
            sides.append((fmean(durations), stdev(durations) if len(durations) > 1 else math.nan, len(durations)))
        ratio, _, _ = _ratio(sides[0], sides[1], 1)
    else:
        windows = [sum(device.window for device in work.devices) or work.total for work in (a, b)]
        ratio = Value(
            windows[1] / windows[0] if windows[0] else None, "1", "derived", reason=reasons.NO_STEPS_IN_TRACES
        )
    if ratio.value is None:
        return ratio
    low = None if ratio.low is None else ratio.low - 1
    high = None if ratio.high is None else ratio.high - 1
    return Value(ratio.value - 1, "1", "derived", low, high, ratio.reason)
