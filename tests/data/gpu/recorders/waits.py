"""A trace of torch.profiler in which streams and the host wait for each other: `python waits.py DIRECTORY`.

Twice the same program: `waits.json.gz` with Kineto's events of synchronisation, `waits_plain.json.gz` without them.
"""

import sys
from pathlib import Path

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function

out = Path(sys.argv[1])
first, second = torch.cuda.Stream(), torch.cuda.Stream()
matrix = torch.randn(2048, 2048, device="cuda")
torch.cuda.synchronize()


def turns() -> None:
    """A product on one stream, its square on another that waits for it, then the host waits in three ways."""
    for number in range(2):
        with record_function(f"ProfilerStep#{number}"):
            made, squared = torch.cuda.Event(), torch.cuda.Event()
            with torch.cuda.stream(first):
                product = matrix @ matrix
                made.record()
            with torch.cuda.stream(second):
                torch.relu(matrix)
                second.wait_event(made)
                square = product @ product
                squared.record()
            squared.synchronize()
            with torch.cuda.stream(first):
                torch.sigmoid(square)
            first.synchronize()
            square.sum()
            torch.cuda.synchronize()


turns()
for name, waits in (("waits", True), ("waits_plain", False)):
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        experimental_config=_ExperimentalConfig(enable_cuda_sync_events=waits),
    ) as profiler:
        turns()
    profiler.export_chrome_trace(str(out / f"{name}.json.gz"))
