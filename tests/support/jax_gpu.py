"""A GPU for traces that JAX wrote on a processor."""

from __future__ import annotations

import gzip
import json
from pathlib import Path


def with_gpu(trace: Path, kernels: dict[str, tuple[str, float]]) -> None:
    """Put a GPU into a trace that JAX wrote on a processor, in the form of the one recorded on an H200.

    Every call of an executable launches the next of these kernels, which takes so many µs.
    """
    document = json.loads(gzip.decompress(trace.read_bytes()))
    events = document["traceEvents"]
    calls = [one for one in events if one.get("name", "").endswith("ExecuteHelperOnSingleDevice")]
    events += [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "pid": 1, "tid": 14, "name": "thread_name", "args": {"name": "Stream #14(Compute)"}},
    ]
    for number, call in enumerate(sorted(calls, key=lambda one: one["ts"])):
        name, lasts = list(kernels.values())[number % len(kernels)]
        call["args"] = {"correlation_id": str(number + 1), "device_id": "0"}
        events.append({"ph": "X", "pid": 1, "tid": 14, "ts": call["ts"] + 1.5, "dur": lasts, "name": name,
                       "args": {"correlation_id": str(number + 1), "hlo_module": "jit_x"}})  # fmt: skip
    trace.write_bytes(gzip.compress(json.dumps(document).encode()))
