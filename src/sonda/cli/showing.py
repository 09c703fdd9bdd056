"""Showing a kept run on the screen or as JSON, whatever kind of run it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonda.cli.face import put, write_json

if TYPE_CHECKING:
    from sonda.record.run import Run
    from sonda.record.store import Store


def show_runs(shown: list[tuple[Run, Any]], store: Store, rows: int, json: bool, to: Any = None) -> None:
    """Summaries of runs: one in full, several side by side. A program's own output keeps stdout to itself."""
    if json:
        from sonda.report.document import summaries_document, to_document

        documents = [summary for _, summary in shown]
        write_json(to_document(documents[0]) if len(documents) == 1 else summaries_document(documents))
        return
    from sonda.report.screen import width_of
    from sonda.report.terminal import render_side_by_side, render_summary

    to = to or sys.stdout
    if len(shown) == 1:
        run, summary = shown[0]
        short, width = store.short(run.id), width_of(to)
        text = render_summary(summary, width, rows, short=short, color=to.isatty())
    else:
        names = [store.short(run.id) for run, _ in shown]
        summaries = [summary for _, summary in shown]
        text = render_side_by_side(summaries, width=width_of(to), layers=rows, saved=names, color=to.isatty())
    put(text, to)


def show_imported(run: Run, store: Store, rows: int, json: bool) -> None:
    from sonda.analysis.trace_summary import summarise_trace
    from sonda.report.imported import render_trace, trace_document

    found = summarise_trace(run)
    write_json(trace_document(found)) if json else put(render_trace(found, rows=rows, short=store.short(run.id)))


def show_exploration(run: Run, store: Store, rows: int, json: bool) -> None:
    from sonda.analysis.exploration import explored
    from sonda.analysis.summarise import summarise
    from sonda.report.exploration import exploration_document, render_exploration

    found = explored(run, summarise(run).title)
    if json:
        write_json(exploration_document(found, run.points))
    else:
        put(render_exploration(found, rows=rows, short=store.short(run.id)))


def show_corun(run: Run, store: Store, json: bool) -> None:
    from sonda.analysis.interference import interference
    from sonda.report.corun import corun_document, render_corun

    found = interference(run)
    if json:
        write_json(corun_document(found))
    else:
        put(render_corun(found, short=store.short(run.id)))


def show_serving(run: Run, store: Store, json: bool) -> None:
    from sonda.analysis.serving import served
    from sonda.analysis.summarise import summarise
    from sonda.report.serving import render_serving, serving_document

    found = served(run, summarise(run).title)
    if json:
        write_json(serving_document(found))
    else:
        put(render_serving(found, short=store.short(run.id)))


def show_energy(run: Run, store: Store, json: bool, to: Any = None) -> None:
    """A run of `sonda energy`. A program's own output keeps stdout to itself."""
    from sonda.analysis.summarise import summarise
    from sonda.report.energy import render_energy
    from sonda.report.energy_document import energy_document

    found = summarise(run).energy
    if found is None:
        return
    if json:
        write_json(energy_document(found))
    else:
        from sonda.report.screen import width_of

        to = to or sys.stdout
        put(render_energy(found, width_of(to), short=store.short(run.id), color=to.isatty()), to)
