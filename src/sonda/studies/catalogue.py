"""Studies by name: which ship with Sonda, what one would measure, and carrying one out."""

from __future__ import annotations

import dataclasses
from typing import Any

from sonda.analysis.summarise import summarise
from sonda.analysis.summary import Summary
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.studies.company import lacks
from sonda.studies.engine import Progress, StudyResult, load_study_result, run_study
from sonda.studies.file import load_study, published_studies
from sonda.studies.measure import measuring
from sonda.studies.operation_point import operation_points
from sonda.studies.out_of_line import out_of_line
from sonda.studies.plan import Point, plan, size
from sonda.studies.recorded import provenance
from sonda.studies.study import VARIANT, Configuration, Study
from sonda.studies.table import study_table
from sonda.targets.keeping import Say


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


def load_scaled(reference: str, scale: str, repeat: int | None) -> Study:
    study = load_study(reference)
    if scale:
        study = study.at_scale(scale)
    if repeat is not None:
        if repeat < 1:
            raise SondaError(f"--repeat {repeat} is too small", "give 1 or more")
        study = dataclasses.replace(study, repeat=repeat)
    return study


def load_plan(reference: str, scale: str, repeat: int | None) -> dict[str, Any]:
    """What a study would measure, in order."""
    study = load_scaled(reference, scale, repeat)
    points = plan(study)
    return {
        "study": study.name,
        "scale": study.scale,
        "question": study.question,
        "lacks": lacks(point.configuration for point in points),
        "runs": [{"identity": point.identity, **point.record()} for point in points],
    }


def carry_out(reference: str, scale: str, repeat: int | None, again: bool, store: Store, say: Say) -> dict[str, Any]:
    """Run a study to its end, or go on with it; returns its table as plain values."""
    study = load_scaled(reference, scale, repeat)

    def progress(state: Progress) -> None:
        left = "" if state.seconds_left is None else f", {_duration(state.seconds_left)} left"
        failed = f", {state.failed} failed" if state.failed else ""
        axes = _place(study, state.current) if state.current else {}
        now = " ".join(f"{key}={value}" for key, value in axes.items())
        say(f"{study.name}: {state.done} of {state.total}{failed}{left} · {now}")

    return _document(run_study(study, store, measuring(store), progress, again))


def show_study(reference: str, scale: str, repeat: int | None, store: Store) -> dict[str, Any]:
    """The table of what the store holds of a study; measures nothing."""
    return _document(load_study_result(load_scaled(reference, scale, repeat), store))


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
        "columns": [{"figure": column.key, "unit": column.unit, "of": column.path} for column in table.columns],
        "compare": list(table.compare),
        "compared": [dataclasses.asdict(one) for one in table.compared],
        "rows": table.to_rows(),
        "verdicts": [one.sentence for one in out_of_line(operations)],
        "operations": [point.to_row() for point in operations],
        "provenance": provenance(run for run, _ in read),
        "deviations": list(table.deviations),
        "notes": list(table.notes),
        "measured": result.measured,
    }


def _place(study: Study, point: Point) -> Configuration:
    return {key: value for key, value in point.configuration.items() if key == VARIANT or key in study.axes}


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
