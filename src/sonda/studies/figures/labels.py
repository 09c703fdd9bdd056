"""Where a figure stands among others of a study, and what its column is called."""

from __future__ import annotations

from sonda.analysis.figure_names import figure_words
from sonda.studies.figures.ranks import PARALLEL
from sonda.studies.figures.registry import TableFigure
from sonda.studies.figures.training import ENERGY, TRAINED

TO_ACCURACY = "_to_accuracy"


def topic(figure: TableFigure) -> str:
    """The table that a figure of a training stands in; empty for figures of a step, which share one."""
    if figure.relative:
        return "Energy" if figure.of_energy else "Against the base"
    if figure.metric in PARALLEL:
        return "Devices together"
    if figure.metric in TRAINED and figure.base == "ns" and TO_ACCURACY not in figure.metric:
        return "Time"
    if figure.metric in TRAINED and figure.base != "J":
        return "Accuracy"
    return "Energy" if figure.metric in TRAINED or (figure.metric in ENERGY and figure.metric != "energy") else ""


def label(figure: TableFigure) -> str:
    """`speed-up against processor`, `time to 80 %, s`, `rank 1 work ms`; empty where name and unit say enough."""
    if not topic(figure) or not figure.path:
        return ""
    if TO_ACCURACY in figure.metric:
        unit = f", {figure.unit}" if figure.unit else ""
        idle = " with idle" if figure.metric.endswith("_with_idle") else ""
        return f"{figure.metric.partition('_')[0]}{idle} to {figure.path} %{unit}"
    words = figure_words(figure.key, figure.unit)
    if figure.relative:
        of_base = words.replace("base's", f"that of {figure.path}")
        return of_base if of_base != words else f"{words} against {figure.path}"
    if figure.metric in PARALLEL:
        return f"rank {figure.path} {words}"
    return f"{words} of {'epoch ' if figure.metric.startswith('validation') else ''}{figure.path}"


def name(figure: TableFigure) -> str:
    """What a figure is called in a sentence: `embeddings share %`, `speed-up against processor`."""
    return label(figure) or f"{figure.path} {figure_words(figure.key, figure.unit)}".lstrip()
