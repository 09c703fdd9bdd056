"""SCALE-Sim itself beside Sonda's closed formulas: layers of its own ResNet-18, and products; cycles, accesses, time.

SCALE-Sim wants an older NumPy than Sonda takes (below 2.4), so it may live in an environment of its own, whose
interpreter $SONDA_SCALESIM_PYTHON names. Where it is neither there nor beside Sonda, nothing is compared, and it is
said.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bar import Bar, Interval, at_least
from benchmarks.process import cpu_times
from sonda.accelerators.formats.scalesim import ScaleSim, scale_sim

INTERPRETER = "SONDA_SCALESIM_PYTHON"
INPUTS = Path(__file__).parent.parent / "tests" / "data" / "scalesim" / "runs.json"
LAYERS = ("Conv4_s", "Conv5_s", "FC")
"""Of its ResNet-18; the others take it minutes."""
PRODUCTS = (("square", 128, 128, 128), ("odd", 37, 53, 101), ("row", 1, 300, 77))
CASES = (
    ("conv", "os", 128, 128),
    ("conv", "ws", 128, 128),
    ("conv", "is", 128, 128),
    ("gemm", "os", 16, 16),
    ("gemm", "ws", 32, 16),
    ("gemm", "is", 16, 32),
)
CALLS = 100
LIMIT = 1_000.0
"""A line of arithmetic against minutes of simulation; anything below would be a mistake of Sonda's."""
CONFIGURATION = """[general]
run_name = peer
[architecture_presets]
ArrayHeight: {rows}
ArrayWidth: {columns}
IfmapSramSzkB: 1024
FilterSramSzkB: 1024
OfmapSramSzkB: 1024
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Dataflow: {dataflow}
Bandwidth: 10
ReadRequestBuffer: 32
WriteRequestBuffer: 32
[layout]
IfmapCustomLayout: False
FilterCustomLayout: False
IfmapSRAMBankBandwidth: 10
IfmapSRAMBankNum: 10
IfmapSRAMBankPort: 2
FilterSRAMBankBandwidth: 10
FilterSRAMBankNum: 10
FilterSRAMBankPort: 2
[sparsity]
SparsitySupport: false
[run_presets]
InterfaceBandwidth: CALC
UseRamulatorTrace: False
"""
PROGRAM = """
import json, sys, time
from scalesim.scale_sim import scalesim
place, gemm = sys.argv[1], sys.argv[2] == "gemm"
run = scalesim(save_disk_space=True, verbose=False, config=place + "/peer.cfg", topology=place + "/layers.csv",
               layout=place + "/layout.csv", input_type_gemm=gemm)
began = time.process_time()
run.run_scale(top_path=place)
seconds = time.process_time() - began
found = []
for layer in run.runner.single_layer_sim_object_list:
    detail = layer.get_detail_report_items()
    found.append([int(layer.get_compute_report_items()[1]), int(detail[2]), int(detail[5]), int(detail[8])])
print(json.dumps({"seconds": seconds, "layers": found}))
"""


def run() -> list[Bar]:
    """Print cycles and times side by side; a difference ends the benchmark, the ratio of times is held to a bar."""
    interpreter = os.environ.get(INTERPRETER) or (sys.executable if find_spec("scalesim") else "")
    if not Path(interpreter).is_file():
        print(f"SCALE-Sim is not there: {INTERPRETER} {'names no file' if interpreter else 'is not set'}. To have it:")
        print("  python -m venv scalesim && scalesim/bin/pip install scalesim 'numpy<2.4'")
        print(f"  {INTERPRETER}=scalesim/bin/python python -m benchmarks scalesim")
        return []
    print(f"{'':24}{'layers':>7}{'cycles':>12}{'SCALE-Sim s':>13}{'Sonda µs':>10}{'ratio':>14}")
    ratios = []
    for kind, dataflow, rows, columns in CASES:
        layers = _layers() if kind == "conv" else list(PRODUCTS)
        theirs = _peer(interpreter, dataflow, rows, columns, kind, layers)
        sizes = [_product(kind, layer) for layer in layers]
        ours = _sonda(dataflow, rows, columns, sizes)
        mine = [[one.cycles, one.input_reads, one.filter_reads, one.output_writes] for one in ours]
        if mine != theirs["layers"]:
            raise SystemExit(f"{dataflow} {rows}x{columns}: SCALE-Sim has {theirs['layers']}, Sonda {mine}")
        times = cpu_times(partial(_sonda, dataflow, rows, columns, sizes), CALLS)
        ratio = theirs["seconds"] * 1e9 / float(np.median(times))
        ratios.append(ratio)
        name = f"{dataflow} {rows}x{columns}, {'ResNet-18' if kind == 'conv' else 'products'}"
        print(f"{name:24}{len(sizes):>7}{sum(one.cycles for one in ours):>12,}{theirs['seconds']:>13.2f}"
              f"{np.median(times) / 1e3:>10.1f}{ratio:>13,.0f}x")  # fmt: skip
    print("cycles and all accesses are equal")
    least = min(ratios)
    return [at_least("SCALE-Sim's time / Sonda's, the least", Interval(least, least, least), LIMIT, "x", 0)]


def _sonda(dataflow: str, rows: int, columns: int, sizes: list[tuple[int, int, int]]) -> list[ScaleSim]:
    return [scale_sim(dataflow, rows, columns, *size) for size in sizes]


def _layers() -> list[tuple[Any, ...]]:
    known = json.loads(INPUTS.read_text(encoding="utf-8"))["inputs"]["resnet18"]["conv"]
    return [tuple(layer) for layer in known if layer[0] in LAYERS]


def _product(kind: str, layer: tuple[Any, ...]) -> tuple[int, int, int]:
    """M, N, K of a layer as SCALE-Sim writes it: convolutions without padding."""
    if kind == "gemm":
        return layer[1], layer[2], layer[3]
    _, height, width, filter_height, filter_width, channels, filters, stride = layer
    rows, columns = (
        -(-(side - size + stride) // stride) for side, size in ((height, filter_height), (width, filter_width))
    )
    return rows * columns, filters, filter_height * filter_width * channels


def _peer(interpreter: str, dataflow: str, rows: int, columns: int, kind: str, layers: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        text = CONFIGURATION.format(dataflow=dataflow, rows=rows, columns=columns)
        (place / "peer.cfg").write_text(text, encoding="utf-8")
        lines = ["".join(f"{value}," for value in layer) for layer in layers]
        # The first line is a heading to it, whatever it says.
        (place / "layers.csv").write_text("\n".join(["layer,", *lines, ""]), encoding="utf-8")
        layout = [f"{layer[0]}," + "1," * 18 for layer in layers]
        (place / "layout.csv").write_text("\n".join(["layer,", *layout, ""]), encoding="utf-8")
        done = subprocess.run([interpreter, "-W", "ignore", "-c", PROGRAM, name, kind], capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise SystemExit(f"SCALE-Sim failed: {last}")
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found
