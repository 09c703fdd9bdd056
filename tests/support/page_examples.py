"""Runs that are large: what a page must stay quick with."""

from __future__ import annotations

from dataclasses import replace

import report_examples as examples
from builders import RunBuilder
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import LayerRow, Summary


def many(count: int) -> Summary:
    """One model of equal blocks with ten layers each, every layer a little slower than the one before."""
    step = 1e9
    rows: list[LayerRow] = [examples.layer("", "Model", step, 0, 0, 1e9, 1e8, step, leaf=False)]
    for block in range(count // 10):
        rows.append(examples.layer(f"b{block}", "Block", 1e5, 0, 0, 1e6, 1e6, step, leaf=False))
        at = [10 * block + unit for unit in range(9)]
        rows += [examples.layer(f"b{block}.{n}", "Linear", 1e3 + n, 0, 1e3 + n, 1e5, 1e5, step) for n in at]
    return replace(examples.training(), parts=(replace(examples.training_part(), layers=tuple(rows)),))


def hundred_thousand() -> Summary:
    """A training of 50 steps: 40 blocks of 24 layers, forward and backward; the last layer is the slowest."""
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(50):
        rows = builder.step(part, 100.0, {"forward": 40.0, "backward": 55.0})
        for way in ("forward", "backward"):
            start = builder.rows[rows[way]]["start"]
            model = builder.add("layer", "Model", rows[way], start, 40e6, path="", direction=way)
            for block in range(40):
                at = start + 950_000 * block
                inside = builder.add("layer", "Block", model, at, 950_000, path=f"b{block}", direction=way)
                for unit in range(24):
                    path, length = f"b{block}.{unit}", 30_000 + 100 * unit + block
                    builder.add("layer", "Linear", inside, at + 35_000 * unit, length, path=path, direction=way)
    assert len(builder.rows) > 100_000
    return summarise(builder.run())
