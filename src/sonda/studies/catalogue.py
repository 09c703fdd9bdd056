"""Studies by name: which ship with Sonda, what one would measure, and carrying one out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from sonda.analysis.comparison.scaling import ScalingCurve
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import Summary
from sonda.record.errors import SondaError, nearest
from sonda.record.progress import Say
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.studies.engine.applicability import why_not
from sonda.studies.engine.corun_point import missing_partitions
from sonda.studies.engine.measurement import measuring
from sonda.studies.engine.multi_node import (
    check_over_nodes,
    is_only_over_nodes,
    measure_elsewhere_and_over_nodes,
    measure_over_nodes,
    queue_needed,
)
from sonda.studies.engine.plan import StudyPoint, count_points, plan_points
from sonda.studies.engine.progress_line import ProgressLine
from sonda.studies.engine.remote import is_all_simulated, study_as_measured, study_on_known_nodes
from sonda.studies.engine.runner import Outcome, StudyResult, load_study_result, run_study
from sonda.studies.executors.choice import executor_for
from sonda.studies.figures.labels import label, topic
from sonda.studies.figures.registry import TableFigure
from sonda.studies.file.check_protocol import STATISTICS
from sonda.studies.file.loader import load_study, published_studies
from sonda.studies.file.study import ENERGY_INTERLEAVED, VARIANT, Study
from sonda.studies.results.operations import operation_points
from sonda.studies.results.optimisations import brought_everywhere, optimisations, optimisations_document
from sonda.studies.results.outliers import find_outliers
from sonda.studies.results.recordings import provenance
from sonda.studies.results.remedies import remedies
from sonda.studies.results.table import study_table
from sonda.targets.instruments.energy import parse_energy_probes


def list_studies() -> list[dict[str, Any]]:
    """Name, question, scales and size of every study that ships with Sonda."""
    studies = [load_study(name) for name in published_studies()]
    return [
        {
            "name": study.name,
            "question": study.question,
            "scales": sorted(study.scales),
            "runs": count_points(study),
            "source": study.source,
        }
        for study in studies
    ]


def load_scaled(reference: str, scale: str, repeat: int | None, energy_probe: str = "", data: str = "") -> Study:
    """The study at a scale, with other repetitions, data, or probes of its energy runs where they are given."""
    study = load_study(reference)
    if scale:
        study = study.at_scale(scale)
    if data:
        study = study.with_data(data)
    if repeat is not None:
        if repeat < 1:
            raise SondaError(f"--repeat {repeat} is too small", "give 1 or more")
        study = study.at_most({"repeat": repeat})
    if energy_probe:
        if study.protocol != ENERGY_INTERLEAVED:
            raise SondaError(f"study {study.name} has no energy runs", f'they need protocol = "{ENERGY_INTERLEAVED}"')
        if parse_energy_probes(energy_probe) is None:
            raise SondaError(f"--energy-probe {energy_probe} reads no energy", "name energy or energy-model:cpu=A..B")
        study = dataclasses.replace(study, energy_probe=energy_probe)
    return study


def load_plan(reference: str, scale: str, repeat: int | None, energy_probe: str = "", data: str = "") -> dict[str, Any]:
    """What a study would measure, in order."""
    study = load_scaled(reference, scale, repeat, energy_probe, data)
    points = plan_points(study)
    without = {point.identity: why for point in points if (why := why_not(study, point.configuration))}
    targets = dict.fromkeys(
        f"{point.configuration.get(VARIANT, point.configuration)}: {without[point.identity]}"
        for point in points
        if point.identity in without
    )
    return {
        "study": study.name,
        "scale": study.scale,
        "question": study.question,
        "lacks": [*missing_partitions(point.configuration for point in points), *queue_needed(study), *targets],
        "runs": [{"identity": point.identity, **point.record()} for point in points if point.identity not in without],
    }


def carry_out(
    reference: str, scale: str, repeat: int | None, again: bool, store: Store, say: Say, energy_probe: str = "",
    data: str = "", workers: int = 0, cluster: str = "", nodes: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Run a study to its end, or go on with it; returns its table as plain values and findings.

    `workers` processes share what is simulated; `cluster` is the address of a Dask scheduler, `nodes` which of its
    nodes measure. Trainings over several nodes are jobs of their own, which `cluster` says how to start.
    """
    study = load_scaled(reference, scale, repeat, energy_probe, data)
    if workers > 1 and not cluster and not is_all_simulated(study):
        raise SondaError(
            f"{workers} measurements at once would disturb each other on this machine",
            "leave out --workers, or give --on-cluster with a worker on every node",
        )
    check_over_nodes(study, cluster, nodes)
    if nodes and not cluster:
        raise SondaError("--nodes chooses nodes of a cluster, and there is none", "add --on-cluster, or leave it out")

    line = ProgressLine(study, say)
    if not cluster and workers in (0, 1):
        earlier = [] if again else [run for _, run in load_study_result(study, store).runs]
        return _document(run_study(study, store, measuring(store, study, earlier, line.hear), line.tell, again))
    if cluster and is_only_over_nodes(study):  # nobody else has anything to do
        return _document(run_study(study, store, measure_over_nodes(study, store, cluster, say), line.tell, again))
    with executor_for(workers, cluster, not is_all_simulated(study), say) as executor:
        study = study_on_known_nodes(study, store, executor.kinds, nodes)

        def spread(points: list[StudyPoint]) -> Iterator[Outcome]:
            return measure_elsewhere_and_over_nodes(study, store, executor, points, cluster, say)

        return _document(run_study(study, store, measuring(store, study), line.tell_arrival, again, spread=spread))


def show_study(
    reference: str, scale: str, repeat: int | None, store: Store, energy_probe: str = "", data: str = "",
    nodes: str = "",
) -> dict[str, Any]:  # fmt: skip
    """The table of what the store holds of a study, of these `nodes` where they are named; measures nothing.

    Plain values and findings, as those of a study that is carried out.
    """
    study = study_as_measured(load_scaled(reference, scale, repeat, energy_probe, data), store, nodes)
    return _document(load_study_result(study, store))


def add_statistics(document: dict[str, Any], words: str) -> dict[str, Any]:
    """The document with these statistics shown beside medians: `mean,minimum,maximum`. Raises SondaError."""
    wanted = [word.strip() for word in words.split(",") if word.strip()]
    unknown = next((word for word in wanted if word not in STATISTICS), None)
    if unknown is not None:
        raise SondaError(f"--statistics {unknown!r} is none", nearest(unknown, STATISTICS))
    return {**document, "statistics": wanted} if wanted else document


def _document(result: StudyResult) -> dict[str, Any]:
    summaries: dict[str, Summary] = {}

    def once(run: Run) -> Summary:
        if run.id not in summaries:
            summaries[run.id] = summarise(run)
        return summaries[run.id]

    table = study_table(result, once)
    read = [(run, summaries[run.id]) for _, run in result.runs if run.id in summaries]
    operations = operation_points(read, result.study.published)
    return {
        "study": table.study,
        "question": table.question,
        "scale": table.scale,
        "axes": list(table.axes),
        "fixed": dict(table.fixed),
        "columns": _columns(table.columns),
        "compare": list(table.compare),
        "compared": [dataclasses.asdict(row) for row in table.compared],
        "base": table.base,
        "statistics": list(table.statistics),
        "scaling": _scaling(table.scaling),
        "optimisations": optimisations_document(brought := optimisations(result, once)),
        "whole": brought_everywhere(brought),
        "remedies": remedies(result.study, table, brought, summaries),
        "rows": table.to_rows(),
        "verdicts": [outlier.finding for outlier in find_outliers(operations)],
        "operations": [point.to_row() for point in operations],
        "provenance": provenance(run for run, _ in read),
        "fitted": table.fitted,
        "deviations": list(table.deviations),
        "notes": list(table.notes),
        "measured": result.measured,
    }


def _columns(figures: Sequence[TableFigure]) -> list[dict[str, Any]]:
    """Key and unit of every column; of a training's figures also the table it stands in, and its name there."""
    topics = [topic(figure) for figure in figures]
    columns = []
    for figure, about in zip(figures, topics, strict=True):
        if figure.metric == "energy" and not figure.path and "Energy" in topics:
            about = "Energy"  # elsewhere it stands with the other figures of a simulated step
        more = {key: value for key, value in (("topic", about), ("label", label(figure))) if value}
        columns.append({"figure": figure.key, "unit": figure.unit, "of": figure.path, **more})
    return columns


def _scaling(curve: ScalingCurve | None) -> dict[str, Any] | None:
    """The curve with Amdahl's bound for every number of devices from the base's to the most, None where points are
    beyond it."""
    if curve is None:
        return None
    most = max(point.devices for point in curve.points)
    bounds = [[count, curve.bound(count)] for count in range(curve.devices, most + 1)]
    return {**dataclasses.asdict(curve), "bound": bounds}
