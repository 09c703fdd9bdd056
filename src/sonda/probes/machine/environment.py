"""Environment: versions of what is installed, and the variables that decide how threads compute and wait."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib import metadata

from sonda.version import VERSION

PACKAGES = (
    "torch", "numpy", "tensorflow", "tensorflow-cpu", "keras", "jax", "jaxlib", "pytensor", "numba", "scipy",
    "pyarrow", "nvidia-ml-py",
)  # fmt: skip
VARIABLES = (
    "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES", "OMP_DYNAMIC", "OMP_SCHEDULE",
    "GOMP_SPINCOUNT", "GOMP_CPU_AFFINITY", "KMP_BLOCKTIME", "KMP_AFFINITY",
    "MKL_NUM_THREADS", "MKL_DYNAMIC", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER",
    "TORCH_NUM_THREADS", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "TORCHINDUCTOR_CPP_WRAPPER",
    "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS",
    "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "PYTORCH_CUDA_ALLOC_CONF", "MALLOC_ARENA_MAX",
    "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES", "LD_PRELOAD",
)  # fmt: skip
"""Environment variables that change speed or results without a trace in the program."""


def package_version(name: str) -> str | None:
    """Version of an installed distribution, without importing it; None where it is not installed."""
    try:
        # A damaged installation has a directory but no metadata: its version is then None.
        return metadata.version(name) or None
    except (metadata.PackageNotFoundError, OSError, ValueError, KeyError):
        return None


def installed_versions() -> dict[str, str]:
    """Versions of Python, Sonda and every package of `PACKAGES` that is installed; nothing is imported for it."""
    versions = {"python": platform.python_version(), "sonda": VERSION}
    for name in PACKAGES:
        version = package_version(name)
        if version:
            versions[name] = version
    return versions


def thread_variables(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of `VARIABLES` that are set."""
    environment = os.environ if environment is None else environment
    return {name: environment[name] for name in VARIABLES if environment.get(name)}


def wait_policy(environment: Mapping[str, str] | None = None) -> str:
    """`passive` where OpenMP threads sleep while they wait, else `active`: they spin, which counts as CPU time."""
    environment = os.environ if environment is None else environment
    passive = environment.get("OMP_WAIT_POLICY", "").strip().lower() == "passive"
    no_spin = (
        environment.get("GOMP_SPINCOUNT", "").strip() == "0" or environment.get("KMP_BLOCKTIME", "").strip() == "0"
    )
    return "passive" if passive or no_spin else "active"
