"""Showing a kept run on the screen or as JSON, whatever kind of run it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sonda.cli.application import put, write_json

if TYPE_CHECKING:
    from sonda.record.run import Run
    from sonda.record.store import Store
    from sonda.report.blocks import Detail


def show_runs(
    shown: list[tuple[Run, Any]], store: Store, json: bool, rows: int | None = None, verbose: int = 0, to: Any = None
) -> None:
    """Show summaries of runs: one alone, several side by side; `rows` None are those of the detail. `to` is the stream,
    stdout unless given."""
    from sonda.report.blocks import FEW_ROWS, ROWS, at_detail
    from sonda.report.screen import render, width_of
    from sonda.report.views.compare.screen import side_by_side_blocks, side_by_side_glance
    from sonda.report.views.kinds import view_of

    if json:
        documents = [view_of(run, summary).document() for run, summary in shown]
        write_json(documents[0]) if len(documents) == 1 else write_json({"summaries": documents}, "summaries")
        return
    to = to or sys.stdout
    if len(shown) == 1:
        run, summary = shown[0]
        text = view_of(run, summary).text(width_of(to), rows, store.short(run.id), to.isatty(), detail_of(verbose))
    else:
        names = [store.short(run.id) for run, _ in shown]
        summaries = [summary for _, summary in shown]
        if verbose:
            tables = side_by_side_blocks(summaries, layers=ROWS if rows is None else rows, saved=names)
            blocks = at_detail(tables, detail_of(verbose))
        else:
            blocks = side_by_side_glance(summaries, rows=FEW_ROWS if rows is None else rows, saved=names)
        text = render(blocks, width_of(to), to.isatty())
    put(text, to)


def detail_of(verbose: int) -> Detail:
    """The detail that so many -v ask for."""
    from sonda.report.blocks import Detail

    return Detail(min(verbose, Detail.ALL))


def show_run(run: Run, store: Store, json: bool, rows: int | None = None, verbose: int = 0, to: Any = None) -> None:
    """Show one run in the way of its kind: an exploration, a trace, traffic, energy, … or steps.

    `to` is the stream, stdout unless given: stderr after a program, whose own output has stdout.
    """
    from sonda.report.views.kinds import view_of

    view = view_of(run)
    if json:
        write_json(view.document())
        return
    from sonda.report.screen import width_of

    to = to or sys.stdout
    put(view.text(width_of(to), rows, store.short(run.id), to.isatty(), detail_of(verbose)), to)
