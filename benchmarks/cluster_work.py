"""What the processes of the benchmarks of clusters do: found by its name, so it stands in a module of its own."""

from __future__ import annotations

from pathlib import Path

from sonda.record.store import Store
from sonda.studies.engine.measurement import measuring
from sonda.studies.engine.plan import StudyPoint
from sonda.studies.explore.parts import PartOrder, explore_part
from sonda.studies.file.study import Study


def explore_parts(orders: list[PartOrder]) -> int:
    """Explore batches one after the other and send nothing back but how many points they had."""
    return sum(explore_part(order).points for order in orders)


def measure_points(order: tuple[Path, Study, list[StudyPoint]]) -> int:
    """Measure points of a study one after the other into a store; returns how many."""
    place, study, points = order
    measure = measuring(Store(place), study)
    return len([measure(point) for point in points])
