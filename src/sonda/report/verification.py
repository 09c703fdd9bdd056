"""The simulator against reference runs, in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sonda.report.labels import plain
from sonda.report.screen import Screen
from sonda.report.table import Column, build, words

SHOWN = 10
"""Differences and answers that are listed; `--json` has all."""


def render_verification(report: Mapping[str, Any], width: int | None = None, *, color: bool | None = None) -> str:
    """How many runs of each mode are exact in every number, the first differences, and what failed in the reference."""
    screen = Screen(width, color)
    same = report["exact"] == report["total"]
    screen.line(
        f"{report['exact']} of {report['total']} runs are exact in every number", "bold" if same else "bold red"
    )
    modes = report["modes"]
    screen.table(
        build(
            [
                (Column("mode", right=False), words(list(modes))),
                (Column("runs"), words([str(mode["total"]) for mode in modes.values()])),
                (Column("exact"), words([str(mode["exact"]) for mode in modes.values()])),
                (Column("simulating ms"), words([f"{1e3 * mode['seconds']:.1f}" for mode in modes.values()])),
            ]
        )
    )
    screen.line(
        f"simulating took {report['seconds']:.3f} s of CPU time; reading and compiling "
        f"{report['preparing_seconds']:.1f} s",
        "dim",
        2,
    )
    for one in report["differences"][:SHOWN]:
        text = f"{one['mode']} {one['run']}: {one['what']} is {one['found']}, the reference has {one['expected']}"
        screen.line(plain(text), "red", 2, 2)
    _more(screen, len(report["differences"]), "differences")
    for why in dict.fromkeys(one["why"] for one in report["known"]):
        alike = [one for one in report["known"] if one["why"] == why]
        runs = len({(one["mode"], one["run"]) for one in alike})
        first = f"{alike[0]['mode']} {alike[0]['run']}: {alike[0]['what']} is {alike[0]['found']:,}"
        text = f"known: {len(alike)} number{_s(len(alike))} of {runs} run{_s(runs)} ({why}), as {first}, "
        screen.line(plain(f"{text}the reference has {alike[0]['expected']:,}"), "dim", 2, 2)
    if report["failures"]:
        screen.line()
        screen.line("Where the reference itself failed", "bold", 2)
        for one in report["failures"]:
            screen.line(plain(f"{one['mode']} {one['run']} ({one['status']}): {one['says']}"), "", 4, 2)
    return screen.text()


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _more(screen: Screen, count: int, what: str) -> None:
    if count > SHOWN:
        screen.line(f"and {count - SHOWN:,} more {what}, all with --json", "dim", 2)
