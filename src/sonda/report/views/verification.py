"""The simulator against other simulators, in the terminal: STONNE's reference runs, SCALE-Sim's formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sonda.analysis import wording
from sonda.report.blocks import Block, Gap, Paragraph, TableBlock
from sonda.report.table import LAST, Column, build, words

SHOWN = 10
"""Differences and answers that are listed; `--json` has all."""


def stonne_blocks(report: Mapping[str, Any]) -> list[Block]:
    """How many runs of each mode are exact in every number, the first differences, and what failed in the reference."""
    same = report["exact"] == report["total"]
    blocks: list[Block] = [
        Paragraph(
            f"{report['exact']} of {report['total']} runs are exact in every number",
            "first" if same else "first bad",
            0,
            0,
        )
    ]
    modes = report["modes"]
    blocks += [
        TableBlock(
            build(
                [
                    (Column("mode", right=False), words(list(modes))),
                    (Column("runs"), words([str(mode["total"]) for mode in modes.values()])),
                    (Column("exact"), words([str(mode["exact"]) for mode in modes.values()])),
                    (Column("simulating ms"), words([f"{1e3 * mode['seconds']:.1f}" for mode in modes.values()])),
                ]
            )
        ),
        Paragraph(
            f"simulating took {report['seconds']:.3f} s of CPU time; reading and compiling "
            f"{report['preparing_seconds']:.1f} s",
            "quiet",
            hang=0,
        ),
    ]
    for difference in report["differences"][:SHOWN]:
        text = f"{difference['what']} is {difference['found']}, the reference has {difference['expected']}"
        if difference["what"] == "run":
            text = f"cannot be simulated, though the reference ended well: {difference['found']}"
        text = f"{difference['mode']} {difference['run']}: {text}"
        blocks.append(Paragraph(text, "bad"))
    blocks += _more_blocks(len(report["differences"]), "difference")
    for why in dict.fromkeys(difference["why"] for difference in report["known"]):
        alike = [difference for difference in report["known"] if difference["why"] == why]
        runs = len({(difference["mode"], difference["run"]) for difference in alike})
        first = f"{alike[0]['mode']} {alike[0]['run']}: {alike[0]['what']} is {alike[0]['found']:,}"
        text = f"known: {len(alike)} number{_s(len(alike))} of {runs} run{_s(runs)} ({why}), as {first}, "
        blocks.append(Paragraph(f"{text}the reference has {alike[0]['expected']:,}", "quiet"))
    if report["not_compared"]:
        names = ", ".join(f"{name} ({count:,} run{_s(count)})" for name, count in report["not_compared"].items())
        blocks.append(Paragraph(f"not compared: {names}", "quiet"))
    if report["failures"]:
        blocks += [
            Gap(),
            Paragraph("Where the reference itself failed", "first", hang=0),
            *(
                Paragraph(f"{failure['mode']} {failure['run']} ({failure['status']}): {failure['says']}", "", 4, 2)
                for failure in report["failures"]
            ),
        ]
    blocks += _next_blocks()
    return blocks


TERMS = {
    "last_cycles": "+ last",
    "borders": "− borders",
    "configuration": "+ configure",
    "reduction": "+ sum",
    "writeback": "+ write",
}
"""Terms that the mesh's cycles have beside SCALE-Sim's, with the titles of their columns."""


def scalesim_blocks(report: Mapping[str, Any]) -> list[Block]:
    """What is corrected, and by how much, before how many layers agree; the mesh's cycles as SCALE-Sim's and what it
    leaves out, a row for each layer; then what is not equal."""
    layers = report["layers"]
    same = report["exact"] == report["total"]
    blocks: list[Block] = [
        Paragraph(
            f"On {report['accelerator']} ({report['rows']} x {report['columns']}, output stationary) the mesh takes "
            f"{_apart(layers)} cycles than SCALE-Sim's formulas give. These are corrected for what they leave out: the "
            "last cycle of each product, the array that is not filled at borders, and time to configure, to sum and to "
            "write back. Their writes, rows + columns too many in every fold, are corrected too.",
            "",
            0,
            0,
        ),
        Paragraph(
            f"So corrected, {report['exact']} of {report['total']} layers agree in every number.",
            "first" if same else "first bad",
            0,
            0,
        ),
    ]
    columns: list[tuple[Column, Any]] = [(Column("layer", right=False), words([layer["layer"] for layer in layers]))]
    columns += [(Column(letter), words([f"{layer[letter]:,}" for layer in layers])) for letter in ("M", "N", "K")]
    if any(layer["times"] > 1 for layer in layers):
        columns.append((Column("times"), words([f"{layer['times']:,}" for layer in layers])))
    columns.append((Column("SCALE-Sim", keep=LAST), words([f"{layer['scalesim_cycles']:,}" for layer in layers])))
    columns += [(Column(title), words([f"{layer[name]:,}" for layer in layers])) for name, title in TERMS.items()]
    columns.append((Column("= mesh cycles", keep=LAST), words([f"{layer['cycles']:,}" for layer in layers])))
    blocks += [
        TableBlock(build(columns)),
    ]
    if report["elsewhere"]:
        count = report["elsewhere"]
        blocks.append(
            Paragraph(
                f"{count:,} operation{_s(count)} run{'s' if count == 1 else ''} on no mesh, so not compared", hang=0
            )
        )
    for layer in layers:
        for name, pair in layer["differences"].items():
            text = f"{layer['layer']}: {name}: the mesh has {pair['found']:,}, SCALE-Sim's formula {pair['expected']:,}"
            blocks.append(Paragraph(text, "bad"))
    blocks += _next_blocks()
    return blocks


def _apart(layers: Sequence[Mapping[str, Any]]) -> str:
    """`1.8 % fewer to 9.0 % more`, over layers; of one layer, or alike ones, a single share."""
    shares = sorted(layer["cycles"] / layer["scalesim_cycles"] - 1 for layer in layers if layer["scalesim_cycles"])
    ends = [
        f"{wording.percent(abs(share))} {'fewer' if share < 0 else 'more'}" for share in (*shares[:1], *shares[-1:])
    ]
    return " to ".join(dict.fromkeys(ends)) or "more"


def _next_blocks() -> list[Block]:
    return [Gap(), Paragraph("Every number: the same command with --json", "quiet", hang=0)]


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _more_blocks(count: int, noun: str) -> list[Block]:
    blocks: list[Block] = []
    if count > SHOWN:
        blocks.append(
            Paragraph(f"and {count - SHOWN:,} more {noun}{_s(count - SHOWN)}, all with --json", "quiet", hang=0)
        )
    return blocks
