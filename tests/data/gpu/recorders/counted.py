"""The six operations under the probe ncu in its two rounds: `python counted.py SIDE OUT.json`, with sonda importable.

Prints what it is told before every round, and per launch its counts, the highest roof and the stalls.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from sonda.record.span import Spans

from sonda.probes.ncu import count_kernels
from sonda.probes.ncu.chips import chip_of
from sonda.probes.ncu.outliers import out_of_line_rows

program = str(Path(__file__).with_name("ops.py"))


def chosen(spans: Spans) -> list[int]:
    """Those out of line; all of them where none is, so that the second round is seen too."""
    rows = out_of_line_rows(spans)
    print("out of line:", rows)
    return rows or list(range(len(spans)))


chip = chip_of(*torch.cuda.get_device_capability())
found = count_kernels([sys.executable, program, sys.argv[1]], b"", chip, print, chosen)
for launch in found.launches:
    print(launch.name[:100], launch.ns, {key: value for key, value in launch.metrics.items() if value})
print(*found.notes, found.peaks, found.record["passes"], sep="\n")
Path(sys.argv[2]).write_text(json.dumps(asdict(found), indent=1))
