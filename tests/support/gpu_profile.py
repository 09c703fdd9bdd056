"""A GPU put into a profile that TensorFlow wrote on a processor, in the form of one that JAX recorded on an H200."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sonda.frameworks.collector.clock import CLOCK
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.imports.xplane.file import profile_events
from xplane_examples import PlaneMaker, space


def with_gpu(assembly: Assembly, place: Path, begin: int, rows: np.ndarray, lasts: int) -> None:
    """Put a GPU into the profile: in each of these spans a kernel of so many ns, launched by another thread.

    A profile is a list of planes, so planes can be written behind it.
    """
    path = place / assembly.kernels[0][0]
    marks = [(event.start_ns, int(event.name[len(CLOCK) :])) for _, _, event in profile_events(path)
             if event.name.startswith(CLOCK)]  # fmt: skip
    offset = min(started - said for started, said in marks)
    host, device = PlaneMaker("/host:CPU"), PlaneMaker("/device:GPU:0", own={"gpu_device_name": "Example"})
    calls, kernels = [], []
    for at, row in enumerate(rows.tolist()):
        moment = int(assembly.spans.number("start")[row] + assembly.spans.number("duration")[row] // 2) + begin + offset
        calls.append(host.event("cuLaunchKernel", moment, 10, correlation_id=at + 1))
        kernels.append(device.event(f"gemm_{at % 2}", moment + 700, lasts, correlation_id=at + 1, tf_op="a/b:MatMul"))
    host.line(99, "tf_gpu_launcher", calls)
    device.line(14, "Stream #14(Compute)", kernels)
    path.write_bytes(path.read_bytes() + space(host, device))
