"""Work: the pieces of a step that rules speak of, each counted once, with what bounds it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sonda.analysis.bounds import BoundedRatio
from sonda.analysis.layer_families import family_of
from sonda.analysis.rules.limit_findings import Pieces
from sonda.analysis.steps.costs import ceiling_ratio
from sonda.analysis.summary import Cost, PartSummary, Summary, Value

WORTH = 0.10
"""What takes less than a tenth of the step is not worth a sentence: removing it brings 1.1x at most."""
NAMED = 0.80
"""Families of layers are named until they cover this part of what the rule found."""
MOST_NAMED = 2
"""Families that are named at most."""

UNTOLD = 0.20
"""Part of the median step that the median phases may leave untold."""

OFTEN_WAITED = 5
"""Steps that must have been seen to wait: of fewer nobody knows how often such come."""

LAYERED = frozenset({"forward", "prefill", "decode", "backward"})
"""Phases whose time is that of the layers inside them."""


@dataclass(frozen=True)
class Work:
    """A layer without the layers inside it, or a phase that has no layers."""

    name: str
    """Class of the layer, or name of the phase."""
    layer: bool
    cost: Cost

    @property
    def family(self) -> tuple[bool, str]:
        """Work of one family is named together: layers of similar classes, or one phase."""
        return self.layer, family_of(self.name) if self.layer else self.name

    @property
    def above(self) -> str:
        """The limit that it beat, compute, memory or overhead; '' where it beat none."""
        bound = self.cost.bound
        return self.cost.above or (bound if bound and reached([self], bound).broken else "")


def first_part(summary: Summary) -> PartSummary | None:
    """The part that verdicts speak of, if it has a time."""
    part = summary.parts[0] if summary.parts else None
    return part if part is not None and part.step.value else None


def works(part: PartSummary) -> list[Work]:
    """Everything that takes time in a step, once: layers, and the phases that have none; not the input, what is
    exchanged with other ranks, or `other`.

    Layers of a fused function are those of steps in pieces, which take longer: the function itself was timed.
    """
    fused = any(row.name == "fused" and row.cost.time.value for row in part.phases)
    layers = [
        Work(row.name, True, row.own_cost or row.cost)
        for row in part.layers
        if not fused and (row.own_cost or row.leaf)
    ]
    covered = LAYERED if layers else frozenset()
    if any(row.name.endswith("Loss") and row.path for row in part.layers):
        covered |= {"loss"}
    apart = {"data", "communicate", "other"} | ({"transfer"} if part.device is not None else set())
    phases = [Work(row.name, False, row.cost) for row in part.phases if row.name not in covered | apart]
    return [work for work in layers + phases if work.cost.time.value]


def bound_by(part: PartSummary, bound: str) -> list[Work]:
    """The work that this limit explains."""
    return [work for work in works(part) if work.cost.bound == bound and not work.above]


def share(work: Iterable[Work]) -> float:
    """Part of the step that work takes, 0 to 1: medians of layers may add up to more than the median step."""
    return min(sum(work.cost.share for work in work if work.cost.share == work.cost.share), 1.0)


def time(work: Iterable[Work]) -> float:
    """ns per step that work takes."""
    return sum(work.cost.time.value or 0.0 for work in work)


def above(part: PartSummary) -> list[Work]:
    """The work that was faster than a measured ceiling allows: what limits it is not known."""
    return [work for work in works(part) if work.above]


def reached(work: list[Work], name: str) -> BoundedRatio:
    """What one limit accounts for, over the time that work took."""
    return over_time(name, limit(work, name), work)


def over_time(name: str, least: float, work: list[Work]) -> BoundedRatio:
    """The ns that a limit asks for at least, over the time that work took. Ends of times are added up, which is the
    widest that the interval of their sum can be."""
    times = [part.cost.time for part in work]
    ends = all(time.low is not None and time.high is not None for time in times)
    whole = Value(
        time(work), "ns", "measured",
        sum(time.low or 0.0 for time in times) if ends else None,
        sum(time.high or 0.0 for time in times) if ends else None,
        few=min((time.few for time in times if time.few), default=0),
    )  # fmt: skip
    return ceiling_ratio(name, least, whole)


def limit(work: Iterable[Work], name: str) -> float:
    """ns per step that one limit alone accounts for."""
    return sum(work.cost.limits.get(name, 0.0) for work in work)


def leading(works: list[Work]) -> list[Work]:
    """The work of the one or two families that make up most of what was found; all of it, where the largest two are
    not worth a sentence."""
    families: dict[tuple[bool, str], list[Work]] = {}
    for work in works:
        families.setdefault(work.family, []).append(work)
    ordered = sorted(families.values(), key=share, reverse=True)
    chosen: list[Work] = []
    for members in ordered[:MOST_NAMED]:
        chosen += members
        if share(chosen) >= NAMED * share(works):
            break
    return chosen if share(chosen) >= WORTH else works


def pieces_of(works: list[Work]) -> Pieces:
    """The layers and phases that this work is, for a finding."""
    return Pieces(
        tuple(work.name for work in works if work.layer), tuple(work.name for work in works if not work.layer)
    )


def data_share(part: PartSummary) -> float:
    """Part of the step spent waiting for input, 0 to 1."""
    return _phase_share(part, "data")


def is_uneven(part: PartSummary) -> bool:
    """Whether the median times of the phases leave a fifth of the median step untold: each is then that of other
    steps, and only the time of all steps together tells what takes how much."""
    return sum(row.cost.share for row in part.phases if row.cost.share == row.cost.share) < 1 - UNTOLD


def data_share_of_all(part: PartSummary) -> float:
    """Part of the time of all timed steps together spent waiting for input, 0 to 1: of workers that give a batch each
    and then none, some steps wait long and others not at all, and the median step tells of neither."""
    apart = part.set_apart
    waits = [wait for at, wait in enumerate(part.phase_steps.get("data", ())) if at not in apart and wait == wait]
    whole = float(sum(part.timed))
    return min(float(sum(waits)) / whole, 1.0) if whole else 0.0


def communication_share(part: PartSummary) -> float:
    """Part of the step in which a rank does nothing but exchange with others, 0 to 1."""
    return min(_phase_share(part, "communicate") + part.inside.get("communicate", 0.0), 1.0)


def transfer_share(part: PartSummary) -> float:
    """Part of the step in which a GPU does nothing but take its input, 0 to 1; copies that are hidden do not count."""
    if part.device is None:
        return 0.0
    return _phase_share(part, "transfer")


def host_share(part: PartSummary) -> float:
    """Part of the step in which a GPU does nothing, waiting for input left out, 0 to 1."""
    if part.device is None or part.device.share != part.device.share:
        return 0.0
    return max(1 - part.device.share - data_share(part), 0.0)


def waiting_share(summary: Summary, part: PartSummary) -> float:
    """Part of the step in which a training waits outside its phases, 0 to 1; a host that waits for its GPU is none."""
    waits = summary.workload.waits
    if waits is None or part.name != "train" or part.device is not None or waits.waited < OFTEN_WAITED:
        return 0.0
    # Some steps may wait long and others not at all, so means are compared, of all steps.
    whole = float(sum(part.durations))
    outside = float(sum(part.phase_steps.get("other", ())))
    waited = float(waits.step_ns) * len(part.durations)
    return min(waited, outside) / whole if whole else 0.0


def _phase_share(part: PartSummary, name: str) -> float:
    """Part of the step that phases of this name take, 0 to 1; nothing where that is not known."""
    known = [row.cost.share for row in part.phases if row.name == name and row.cost.time.value]
    return min(sum(share for share in known if share == share), 1.0)


def explained(part: PartSummary) -> dict[str, float]:
    """Part of the step that each limit explains: compute, memory, overhead, input, communication, transfer, host; and
    the part that a measured ceiling says nothing right of."""
    shares = {bound: share(bound_by(part, bound)) for bound in ("compute", "memory", "overhead")}
    return shares | {
        "above": share(above(part)),
        "input": data_share(part),
        "communication": communication_share(part),
        "transfer": transfer_share(part),
        "host": host_share(part),
    }
