"""An exploration: a workload on every accelerator of a space, kept as one run whose points are its rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sonda.record.errors import SondaError
from sonda.record.run import Run, RunInfo, new_id, now, write_run
from sonda.record.span import Spans, Words
from sonda.record.store import Store
from sonda.studies.pareto import Numbers, knee, least, pareto_front
from sonda.studies.point_table import joined, point_table, reasons
from sonda.studies.space import ON
from sonda.studies.space import points as count_points
from sonda.targets.exploration import Explored, explore_targets
from sonda.targets.exploring import AND, MAPPING, by_field
from sonda.targets.job import Job
from sonda.targets.keeping import Say

DEFAULT = "default"
"""The word for the mapping that a description gives or a rule chooses."""
OBVIOUS = {"dlrm": "sim:dlrm-hybrid"}
"""Where a workload is explored when nobody says."""
ELSE = "sim:maeri-256"
OBJECTIVES = ("cycles", "energy", "area")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
MOST_REASONS = 50
BY_TIME = "clocks differ: points are compared by their time, cycles over clock"
BY_CYCLES = "clocks differ and some points have none: points are compared by cycles, which are not times"


def explore(
    job: Job, space: Mapping[str, Sequence[str]], store: Store, tags: Sequence[str] = (), say: Say = lambda text: None
) -> Run:
    """Simulate the job at every point of the space and keep them as one run.

    `space` has values by field: those of a description, `mapping`, and `on` for targets; fields whose names are joined
    by commas vary in step. `job.on` is where to go where
    `on` does not vary; where it is empty too, an obvious accelerator. Raises SondaError when nothing varies, when a
    field is unknown, or when no point is possible.
    """
    for tag in tags:
        store.check_tag(tag)
    if not space:
        raise SondaError("nothing varies", "give for example --vary multipliers=64..1024*2")
    count_points(space)
    for name, given in ((ON, job.on), (MAPPING, job.mapping)):
        if given and name in space:
            raise SondaError(f"{name} is given as {given} and varies", f"leave out --{name} or --vary {name}=…")
    targets = tuple(space.get(ON, (job.on or OBVIOUS.get(job.workload, ELSE),)))
    axes = {key: tuple(values) for key, values in space.items() if key != ON}
    if MAPPING in axes:
        axes[MAPPING] = tuple("" if one == DEFAULT else one for one in axes[MAPPING])
    found = explore_targets(job, targets, axes, say)
    say("comparing points")
    possible = _possible(found)
    objectives, names = _objectives(found, possible)
    points = found.points
    on_host = reasons(points, "on_host")
    front, compared = _front(objectives, np.where(possible, on_host.codes, -1), on_host.words)
    among = np.where(compared[:, None], objectives, np.nan)
    info = RunInfo(
        id=new_id(),
        created=now(),
        status="complete",
        workload=found.workload,
        target={
            "spec": ",".join(targets),
            "device": "exploration",
            "options": {"mapping": job.mapping, "set": job.set},
            "descriptions": found.descriptions,
            "exploration": {
                "axes": {field: list(dict.fromkeys(values)) for field, values in by_field(space).items()},
                "together": [key.split(AND) for key in space if AND in key],
                "points": len(possible),
                "possible": int(possible.sum()),
                "impossible": _counted(reasons(points, "impossible")),
                "unpriced": _counted(reasons(points, "unpriced")) + _incomplete(found, objectives, names, possible),
                "front": int(front.sum()),
                "objectives": list(names),
                "best": {name: least(among, place) for place, name in enumerate(names)},
                "knee": knee(among),
                "on_host": sorted(on_host.words[code] for code in np.unique(on_host.codes[possible])),
                "simulations": found.simulations,
                "seconds": found.seconds,
            },
        },
        machine=found.machine,
        versions=found.versions,
        seed=job.seed,
        notes=[*filter(None, [_clock_note(found, possible)]), *_notes(found, axes, job.mapping)],
    )
    run = write_run(store.root, info, Spans({"start": np.zeros(0)}, {}), points=point_table(points, axes, front))
    for tag in tags:
        store.tag(run.id, tag)
    return run


def _possible(found: Explored) -> Any:
    """Mask of the points that can be. Raises SondaError with the most frequent reason where none can."""
    possible = joined(found.points, "impossible") == 0
    if not possible.any():
        words = reasons(found.points, "impossible")
        often = words.words[int(np.bincount(words.codes).argmax())]
        raise SondaError(f"no point is possible: {often}", "vary other values, or give what is missing with --set")
    units = {one.units for one in found.points.values()}
    if len(units) > 1:
        raise SondaError(
            "the energy tables of these accelerators do not count in the same units", "give --set energy_table=45nm"
        )
    return possible


def _objectives(found: Explored, possible: Any) -> tuple[Numbers, tuple[str, ...]]:
    """Points x what is to be small; NaN for points that are not compared. What is known nowhere is left out."""
    cycles = joined(found.points, "cycles").astype(np.float64)
    if _clock_note(found, possible) == BY_TIME:
        cycles = cycles / np.concatenate(list(found.clocks.values()))
    columns = {
        "cycles": np.where(possible, cycles, np.nan),
        "energy": joined(found.points, "energy")[:, 0],
        "area": joined(found.points, "area")[:, 0],
    }
    names = tuple(name for name in OBJECTIVES if not np.isnan(columns[name]).all())
    return np.stack([columns[name] for name in names], axis=1), names


def _clock_note(found: Explored, possible: Any) -> str:
    """What cycles are worth where points have different clocks; '' where all have the same or none."""
    clocks = np.unique(np.concatenate(list(found.clocks.values()))[possible])
    if len(clocks) == 1:
        return ""
    return BY_CYCLES if np.isnan(clocks).any() else BY_TIME


def _front(objectives: Numbers, groups: Any, words: Sequence[str]) -> tuple[Any, Any]:
    """Masks of the front, and of the points among which the best are sought.

    Points that leave other operations to the host do not do the same work: each such group has a front of its own, and
    the best are sought where the fewest operations are left.
    """
    front = np.zeros(len(objectives), dtype=bool)
    for group in np.unique(groups[groups >= 0]):
        inside = np.flatnonzero(groups == group)
        front[inside] = pareto_front(objectives[inside])
    priced = groups[~np.isnan(objectives).any(axis=1)]
    fewest = min(np.unique(priced), key=lambda group: sum(map(int, NUMBER.findall(words[group]))), default=-1)
    return front, groups == fewest


def _counted(found: Words) -> list[dict[str, Any]]:
    """Reasons that differ in numbers only, together: for how many points, and one in full; the most frequent first."""
    groups: dict[str, dict[str, Any]] = {}
    for code, count in enumerate(np.bincount(found.codes, minlength=len(found.words))):
        reason = found.words[code]
        if reason and count:
            like = NUMBER.sub("N", reason.partition("; ")[0])
            group = groups.setdefault(like, {"reason": like, "points": 0, "example": reason})
            group["points"] += int(count)
    return sorted(groups.values(), key=lambda group: (-group["points"], group["reason"]))[:MOST_REASONS]


def _incomplete(found: Explored, objectives: Numbers, names: Sequence[str], possible: Any) -> list[dict[str, Any]]:
    """Points that lack an objective which others have, though nothing stands in its way but the table."""
    priced = joined(found.points, "unpriced") == 0
    groups = []
    for place, name in enumerate(names):
        count = int((possible & priced & np.isnan(objectives[:, place])).sum())
        if count:
            reason = f"the energy table has no {name} for anything there"
            groups.append({"reason": reason, "points": count, "example": reason})
    return groups


def _notes(found: Explored, axes: Mapping[str, Sequence[str]], mapping: str) -> list[str]:
    notes = [*found.notes, *_kept_tiles(found, axes, mapping)]
    for key in axes:
        without = [on for on, points in found.points.items() if key not in points.axes]
        if without:
            notes.append(f"{', '.join(without)} does not have {key}: it is taken once for all values")
    missing = list(dict.fromkeys(name for one in found.points.values() for name in one.missing))
    for what, ending in (("area", " AREA"), ("static energy", " STATIC"), ("energy", "")):
        lacking = [name for name in missing if name.partition(" (")[0].endswith(ending)]
        missing = [name for name in missing if name not in lacking]
        if lacking:
            notes.append(f"no {what} in the table, so in no figure: {', '.join(_shortened(lacking, ending))}")
    recalled = list(dict.fromkeys(name for one in found.points.values() for name in one.recalled))
    if recalled:
        notes.append(f"recalled, verified by nobody: {', '.join(recalled)}")
    notes.append("area: the engines that work, and one global buffer for all of them")
    return notes


def _kept_tiles(found: Explored, axes: Mapping[str, Sequence[str]], mapping: str) -> list[str]:
    """A tile that a description gives holds at all its points, so that a larger engine may stay idle."""
    if "" not in axes.get(MAPPING, (mapping,)):
        return []
    tiled = {
        f"{on} ({name})": None
        for on, description in found.descriptions.items()
        for name, engine in description["engines"].items()
        if engine["tile"] or engine["convolution_tile"]
    }
    if not tiled or any("tile" in key for key in axes):
        return []
    return [f"the description's tiles hold at every point of {', '.join(tiled)}; --mapping best chooses them anew"]


def _shortened(names: list[str], ending: str) -> list[str]:
    """Names without the ending that all of them share."""
    return [name.replace(ending, "", 1) if ending else name for name in names]
