"""The devices of a JAX program: threads of its processor; which GPUs it used, how much of their memory, and in which
precision they multiply float32."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

EXACT = ("highest", "float32", "F32_F32_F32")
"""Of `jax_default_matmul_precision`: float32 is float32. Otherwise XLA takes TF32 where a GPU has it."""


def gpus(jax: Any) -> list:
    """GPUs that JAX has in this process; asked once it has computed something, because it then has its devices."""
    with suppress(Exception):
        return [one for one in jax.local_devices() if one.platform == "gpu"]
    return []


def about(jax: Any, known: list) -> dict:
    """To be stated of these GPUs: those whose memory the program used; the first where JAX does not say."""
    found: dict = {}
    for one in known:
        peak = 0
        with suppress(Exception):
            peak = int((one.memory_stats() or {}).get("peak_bytes_in_use", 0))
        if peak:
            found[_number(one)] = {"name": one.device_kind, "peak_allocated": peak}
    if not found:
        found = {_number(one): {"name": one.device_kind} for one in known[:1]}
    if not found:
        return {}
    said = getattr(jax.config, "jax_default_matmul_precision", None)
    exact = str(said) in EXACT
    return {"devices": found, "tf32": {"matmul": not exact, "convolution": not exact}}


def _number(device: Any) -> str:
    """As CUDA counts those that this process sees."""
    number = getattr(device, "local_hardware_id", None)
    return str(device.id if number is None else number)


def thread_count() -> int:
    """Threads of JAX's pool on a processor."""
    text = os.environ.get("PJRT_NPROC", "")
    return int(text) if text.isdecimal() and int(text) else len(os.sched_getaffinity(0))
