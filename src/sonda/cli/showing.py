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


def show_run(run: Run, store: Store, json: bool, rows: int = 10, to: Any = None) -> None:
    """One run, as its kind is shown: an exploration, a trace, traffic, energy, … or steps.

    A program's own output keeps stdout to itself: `to` is stderr then.
    """
    from sonda.report.faces import face_of

    face = face_of(run)
    if json:
        write_json(face.document())
        return
    from sonda.report.screen import width_of

    to = to or sys.stdout
    put(face.text(width_of(to), rows, store.short(run.id), to.isatty()), to)
