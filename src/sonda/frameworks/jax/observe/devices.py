"""The devices of a JAX program: threads of its processor, the GPUs that it used with the memory that they took, and the
precision in which they multiply float32."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

EXACT = ("highest", "float32", "F32_F32_F32")
"""Values of `jax_default_matmul_precision` with true float32. Otherwise XLA takes TF32 where a GPU has it."""


def gpus(jax: Any) -> list:
    """GPUs that JAX has in this process. Call it once JAX has computed something, and has its devices anyway."""
    with suppress(Exception):
        return [device for device in jax.local_devices() if device.platform == "gpu"]
    return []


def describe_gpus(jax: Any, devices: list) -> dict:
    """Facts about the GPUs whose memory the program used; about the first GPU where JAX does not tell."""
    described: dict = {}
    for gpu in devices:
        peak = 0
        with suppress(Exception):
            peak = int((gpu.memory_stats() or {}).get("peak_bytes_in_use", 0))
        if peak:
            described[_number(gpu)] = {"name": gpu.device_kind, "peak_allocated": peak}
    if not described:
        described = {_number(gpu): {"name": gpu.device_kind} for gpu in devices[:1]}
    if not described:
        return {}
    precision = getattr(jax.config, "jax_default_matmul_precision", None)
    exact = str(precision) in EXACT
    return {"devices": described, "tf32": {"matmul": not exact, "convolution": not exact}}


def _number(device: Any) -> str:
    """The number of a GPU, as CUDA counts those that this process sees."""
    number = getattr(device, "local_hardware_id", None)
    return str(device.id if number is None else number)


def thread_count() -> int:
    """Threads of JAX's pool on a processor."""
    text = os.environ.get("PJRT_NPROC", "")
    return int(text) if text.isdecimal() and int(text) else len(os.sched_getaffinity(0))
