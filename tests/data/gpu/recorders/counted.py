"""The six operations under the probe ncu in its two rounds: `python counted.py SIDE OUT.json`, with sonda importable.

Prints what it is told before every round, and per launch its counts, the highest roof and the stalls.
"""

import json
import sys
from pathlib import Path

import msgspec
import torch

from sonda.probes.ncu.chips import find_chip
from sonda.probes.ncu.outliers import find_outlying_rows
from sonda.probes.ncu.replay import count_kernels
from sonda.record.spans import Spans

program = str(Path(__file__).with_name("ops.py"))


def chosen(spans: Spans) -> list[int]:
    """Those out of line; all of them where none is, so that the second round is seen too."""
    rows = find_outlying_rows(spans)
    print("out of line:", rows)
    return rows or list(range(len(spans)))


chip = find_chip(*torch.cuda.get_device_capability())
found = count_kernels([sys.executable, program, sys.argv[1]], b"", chip, print, chosen)
for launch in found.launches:
    print(launch.name[:100], launch.ns, {key: value for key, value in launch.metrics.items() if value})
print(*found.notes, found.facts.peaks, found.facts.passes, sep="\n")
Path(sys.argv[2]).write_text(json.dumps(msgspec.to_builtins(found), indent=1))
