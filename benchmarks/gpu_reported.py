"""What `sonda run ops --json` says of a GPU, against theory and against a second way of adding up.

Two runs of the command line itself: a product of 4096 x 4096 matrices whose FLOPs Nsight Compute counts, and an
addition of 1 GiB matrices, which is held against the memory's bandwidth and whose kernels' intervals are joined again,
by another algorithm.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.bar import Bar

SIDE = 4096
COUNTED_WITHIN = 0.01
LEAST_OF_MEMORY = 0.85
ADD_SIZE = "3GiB"
"""All three matrices together."""
ACTIVITIES = ("kernel", "copy", "collective")


def reported_bars() -> list[Bar]:
    """Run the command line on cuda:0 and hold what it says against the bars."""
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory)
        dot = sonda_json(store, "--op", "dot", "--size", f"{3 * 4 * SIDE**2 >> 20}MiB", "--probe", "ncu")
        add = sonda_json(store, "--op", "add", "--size", ADD_SIZE)
        return [dot_bar(dot), add_bar(add), union_bar(add, intervals(store, add))]


def sonda_json(store: Path, *words: str) -> dict[str, Any]:
    """The document of one `sonda run ops` on the GPU. Raises SystemExit with what it said where it fails."""
    # -P: a file in this directory that is named like a module must not be imported.
    command = [sys.executable, "-P", "-m", "sonda", "run", "ops", *words, "--on", "cuda:0", "--json"]
    print(" ".join(["sonda", *command[4:]]))
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"SONDA_HOME": str(store)})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def counted_ratio(document: Mapping[str, Any], side: int) -> float | None:
    """FLOPs that were counted in the product over 2 x side^3; None where nothing was counted in it."""
    places = (document.get("device") or {}).get("counted", {}).get("places", ())
    found = next((place["counted"]["value"] for place in places if place["path"] == "dot"), None)
    return None if found is None else found / (2 * side**3)


def dot_bar(document: Mapping[str, Any], side: int = SIDE) -> Bar:
    """PASS where the counted FLOPs are 2 x side^3 within 1 %."""
    promise = f"FLOPs counted in a float32 dot of {side} x {side} / 2·{side}³"
    ratio = counted_ratio(document, side)
    if ratio is None:
        return Bar(promise, "nothing was counted: is Nsight Compute there?", "FAIL")
    near = abs(ratio - 1) <= COUNTED_WITHIN
    return Bar(promise, f"{ratio:.5f}, bar 1 ± {COUNTED_WITHIN:g}", "PASS" if near else "FAIL")


def add_bar(document: Mapping[str, Any]) -> Bar:
    """PASS where Sonda itself says that add is bound by memory, at 85 % of its measured bandwidth or more.

    That bandwidth is the best of copying, adding, updating and reading, so it is at least that of a copy.
    """
    promise = f"add of {ADD_SIZE}: share of the measured bandwidth of memory, as Sonda says it"
    layers = (layer for part in document["parts"] for layer in part["layers"])
    layer = next((one for one in layers if one["path"] == "add"), None)
    share = layer["metrics"]["roof:derived"]["value"] if layer is not None else None
    if layer is None or share is None:
        return Bar(promise, "no share was reported", "FAIL")
    good = layer["bound"] == "memory" and share >= LEAST_OF_MEMORY
    figure = f"{share:.3f}, bound by {layer['bound']}; bar {LEAST_OF_MEMORY:g}, bound by memory"
    return Bar(promise, figure, "PASS" if good else "FAIL")


def union_bar(document: Mapping[str, Any], activities: Iterable[tuple[int, int]]) -> Bar:
    """PASS where the busy time of the one device is the length that its activities cover, to the ns."""
    (device,) = document["device"]["devices"]
    covered = covered_ns(activities)
    good = covered == device["busy_ns"]
    figure = f"{covered:,} ns covered, {device['busy_ns']:,} ns reported"
    return Bar("the union of kernel intervals = the device's busy time", figure, "PASS" if good else "FAIL")


def intervals(store: Path, document: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Begin and end, ns, of every activity of the device, from the file of the run itself."""
    import pyarrow.parquet as pq

    (file,) = store.glob(f"*{document['run']}*/spans.parquet")
    rows = pq.read_table(file, columns=["kind", "start", "duration"]).to_pylist()
    return [(row["start"], row["start"] + row["duration"]) for row in rows if row["kind"] in ACTIVITIES]


def covered_ns(activities: Iterable[tuple[int, int]]) -> int:
    """Length of what intervals cover together, by counting how many are open at every moment at which one changes."""
    moments = sorted((moment, step) for begin, end in activities for moment, step in ((begin, 1), (end, -1)))
    covered = opened = since = 0
    for moment, step in moments:
        if opened:
            covered += moment - since
        opened, since = opened + step, moment
    return covered
