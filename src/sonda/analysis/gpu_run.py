"""What a run says of its GPU: which one it was, and in which precision its float32 really ran.

Since Ampere, float32 may run as TF32 on tensor cores, several times faster. A workload that Sonda drives says what it
wants (`float32` or `tf32`). A program decides for itself; where it does not say, PyTorch's defaults are assumed:
convolutions as TF32, matrix products not.
"""

from __future__ import annotations

from sonda.record.run import RunInfo

DEFAULTS = {"matmul": False, "convolution": True}
"""PyTorch's `allow_tf32` of cuBLAS and of cuDNN."""


def gpu_of(info: RunInfo) -> str:
    """The key of the run's GPU among the ceilings: `cuda:0`, `cuda` where its number is not known, '' without one."""
    if not str(info.target.get("device", "")).startswith("cuda"):
        return ""
    named = [str(info.target.get("spec", "")), *map(str, info.target.get("devices") or ()), str(info.target["device"])]
    return next((name for name in named if name.startswith("cuda:")), "cuda")


def tf32_of(info: RunInfo) -> dict[str, bool] | None:
    """Whether products (`matmul`) and convolutions may run as TF32; None where float32 means float32."""
    if not gpu_of(info):
        return None
    said = info.target.get("tf32")
    if isinstance(said, dict):
        return {name: bool(said.get(name, default)) for name, default in DEFAULTS.items()}
    return None if info.target.get("spec") else dict(DEFAULTS)


def tf32_note(info: RunInfo, precision: str) -> list[str]:
    """Which peak float32 is held against, where that is not float32's for everything."""
    tf32 = tf32_of(info)
    if precision != "float32" or not tf32 or not any(tf32.values()):
        return []
    which = {(True, True): "products and convolutions", (True, False): "products", (False, True): "convolutions"}
    said = "" if isinstance(info.target.get("tf32"), dict) else " (PyTorch's default; the program does not say)"
    return [f"float32 {which[tf32['matmul'], tf32['convolution']]} are held against the peak of TF32{said}"]
