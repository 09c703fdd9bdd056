"""Studies by name: which ship with Sonda, what one would measure, and carrying one out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from sonda.analysis.scaling import ScalingCurve
from sonda.analysis.summarise import summarise
from sonda.analysis.summary import Summary
from sonda.record.errors import SondaError
from sonda.record.nearest import nearest
from sonda.record.run import Run
from sonda.record.saying import Say, time_words
from sonda.record.store import Store
from sonda.studies.applicability import why_not
from sonda.studies.check_protocol import STATISTICS
from sonda.studies.company import lacks
from sonda.studies.elsewhere import all_simulated, as_measured, on_known_nodes
from sonda.studies.engine import Outcome, Progress, StudyResult, load_study_result, run_study
from sonda.studies.executors.choice import executor_for
from sonda.studies.figure import Figure
from sonda.studies.file import load_study, published_studies
from sonda.studies.measure import measuring
from sonda.studies.operation_point import operation_points
from sonda.studies.optimisation import document, optimisations, whole
from sonda.studies.out_of_line import out_of_line
from sonda.studies.over_nodes import (
    check_over_nodes,
    elsewhere_and_over_nodes,
    needs_queue,
    only_over_nodes,
    over_nodes,
)
from sonda.studies.plan import Point, plan, size
from sonda.studies.recorded import provenance
from sonda.studies.remedy import remedies
from sonda.studies.study import ENERGY_INTERLEAVED, VARIANT, Configuration, Study
from sonda.studies.table import study_table
from sonda.studies.topic import label, topic
from sonda.targets.energy_sampling import asked


def list_studies() -> list[dict[str, Any]]:
    """Name, question, scales and size of every study that ships with Sonda."""
    studies = [load_study(name) for name in published_studies()]
    return [
        {
            "name": study.name,
            "question": study.question,
            "scales": sorted(study.scales),
            "runs": size(study),
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
        if asked(energy_probe) is None:
            raise SondaError(f"--energy-probe {energy_probe} reads no energy", "name energy or energy-model:cpu=A..B")
        study = dataclasses.replace(study, energy_probe=energy_probe)
    return study


def load_plan(reference: str, scale: str, repeat: int | None, energy_probe: str = "", data: str = "") -> dict[str, Any]:
    """What a study would measure, in order."""
    study = load_scaled(reference, scale, repeat, energy_probe, data)
    points = plan(study)
    without = {point.identity: why for point in points if (why := why_not(study, point.configuration))}
    said = dict.fromkeys(
        f"{point.configuration.get(VARIANT, point.configuration)}: {without[point.identity]}"
        for point in points
        if point.identity in without
    )
    return {
        "study": study.name,
        "scale": study.scale,
        "question": study.question,
        "lacks": [*lacks(point.configuration for point in points), *needs_queue(study), *said],
        "runs": [{"identity": point.identity, **point.record()} for point in points if point.identity not in without],
    }


def carry_out(
    reference: str, scale: str, repeat: int | None, again: bool, store: Store, say: Say, energy_probe: str = "",
    data: str = "", workers: int = 0, cluster: str = "", nodes: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Run a study to its end, or go on with it; returns its table as plain values.

    `workers` processes share what is simulated; `cluster` is the address of a Dask scheduler, `nodes` which of its
    nodes measure. Trainings over several nodes are jobs of their own, which `cluster` says how to start.
    """
    study = load_scaled(reference, scale, repeat, energy_probe, data)
    if workers > 1 and not cluster and not all_simulated(study):
        raise SondaError(
            f"{workers} measurements at once would disturb each other on this machine",
            "leave out --workers, or give --on-cluster with a worker on every node",
        )
    check_over_nodes(study, cluster, nodes)
    if nodes and not cluster:
        raise SondaError("--nodes chooses nodes of a cluster, and there is none", "add --on-cluster, or leave it out")

    def progress(state: Progress) -> None:
        left = "" if state.seconds_left is None else f", {time_words(state.seconds_left)} left"
        failed = f", {state.failed} failed" if state.failed else ""
        axes = _place(study, state.current) if state.current else {}
        now = " ".join(f"{key}={value}" for key, value in axes.items())
        say(f"{study.name}: {state.done} of {state.total}{failed}{left} · {now}")

    if not cluster and workers in (0, 1):
        earlier = [] if again else [run for _, run in load_study_result(study, store).runs]
        return _document(run_study(study, store, measuring(store, study, earlier, say), progress, again))
    if cluster and only_over_nodes(study):  # nobody else has anything to do
        return _document(run_study(study, store, over_nodes(study, store, cluster, say), progress, again))
    with executor_for(workers, cluster, not all_simulated(study), say) as executor:
        study = on_known_nodes(study, store, executor.kinds, nodes)

        def spread(points: list[Point]) -> Iterator[Outcome]:
            return elsewhere_and_over_nodes(study, store, executor, points, cluster, say)

        return _document(run_study(study, store, measuring(store, study), progress, again, spread=spread))


def show_study(
    reference: str, scale: str, repeat: int | None, store: Store, energy_probe: str = "", data: str = "",
    nodes: str = "",
) -> dict[str, Any]:  # fmt: skip
    """The table of what the store holds of a study, of these `nodes` where they are named; measures nothing."""
    study = as_measured(load_scaled(reference, scale, repeat, energy_probe, data), store, nodes)
    return _document(load_study_result(study, store))


def with_statistics(document: dict[str, Any], words: str) -> dict[str, Any]:
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
        "compared": [dataclasses.asdict(one) for one in table.compared],
        "base": table.base,
        "statistics": list(table.statistics),
        "scaling": _scaling(table.scaling),
        "optimisations": document(brought := optimisations(result, once)),
        "whole": whole(brought),
        "remedies": remedies(result.study, table, brought, summaries),
        "rows": table.to_rows(),
        "verdicts": [one.sentence for one in out_of_line(operations)],
        "operations": [point.to_row() for point in operations],
        "provenance": provenance(run for run, _ in read),
        "deviations": list(table.deviations),
        "notes": list(table.notes),
        "measured": result.measured,
    }


def _columns(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    """Key and unit of every column; of a training's figures also the table it stands in, and its name there."""
    topics = [topic(figure) for figure in figures]
    found = []
    for figure, about in zip(figures, topics, strict=True):
        if figure.metric == "energy" and not figure.path and "Energy" in topics:
            about = "Energy"  # elsewhere it stands with the other figures of a simulated step
        more = {key: value for key, value in (("topic", about), ("label", label(figure))) if value}
        found.append({"figure": figure.key, "unit": figure.unit, "of": figure.path, **more})
    return found


def _scaling(curve: ScalingCurve | None) -> dict[str, Any] | None:
    """The curve with Amdahl's bound for every number of devices from the base's to the most."""
    if curve is None:
        return None
    most = max(point.devices for point in curve.points)
    bounds = [[count, curve.bound(count)] for count in range(curve.devices, most + 1)]
    return {**dataclasses.asdict(curve), "bound": bounds}


def _place(study: Study, point: Point) -> Configuration:
    return {key: value for key, value in point.configuration.items() if key == VARIANT or key in study.axes}
