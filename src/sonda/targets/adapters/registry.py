"""The frameworks that a workload can run in: their names, needs and limits, and the worker of each.

An adapter's worker is `run(job, directory, replay) -> dict`. It builds and drives the workload in this process, which
is its own, writes the collector's events to `directory`, and returns what the run should say of the workload. With
`replay` it drives for a profiler outside that replays kernels. It sets what the framework reads at import, then calls
`import_framework`. Settings that mean nothing to a framework are in `applicability.py`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonda.record.errors import MissingExtraError, SondaError, install_command, named_line, nearest
from sonda.targets.target import STRATEGIES, parse_target
from sonda.workloads.model_garden import ModelGarden, is_garden, require_garden

if TYPE_CHECKING:
    from sonda.targets.job import Job

SHARED = {"protobuf": ("protobuf", "descriptors cannot be created"), "numpy": ("numpy", "_array_api")}
"""Packages of which frameworks need different versions, and words by which a failed import names them."""


@dataclass(frozen=True)
class Adapter:
    """One framework. `package` is what is imported, `extra` the extra of Sonda that brings it."""

    package: str
    words: str
    """What its users call it."""
    extra: str
    distributions: tuple[str, ...]
    """Names under which the package may be installed."""
    least: tuple[int, ...]
    """The oldest version that works."""
    worker: str
    """`module:function` that runs a job."""
    workloads: tuple[str, ...] = ()
    """Workloads that it has; () for all."""
    devices: tuple[str, ...] = ("cpu", "cuda")
    modes: tuple[str, ...] = ()
    """Ways of using several devices."""
    without: tuple[str, ...] = ()
    """Settings and probes that it lacks, as the user writes them; asking for one is an error."""


ADAPTERS: dict[str, Adapter] = {
    "torch": Adapter(
        "torch", "PyTorch", "torch", ("torch",), (2, 6), "sonda.targets.local.worker:run_in_torch",
        devices=("cpu", "cuda", "sim"), modes=("ddp", "dp", "hybrid", "pipeline", "localsgd"),
    ),
    "tensorflow": Adapter(
        "tensorflow", "TensorFlow", "tensorflow", ("tensorflow", "tensorflow-cpu"), (2, 18),
        "sonda.targets.adapters.tensorflow:run_in_tensorflow",
        workloads=("ops", "mlp", "cnn", "resnet18", "resnet34", "resnet50"), modes=STRATEGIES,
    ),
    "jax": Adapter(
        "jax", "JAX", "jax", ("jax",), (0, 5), "sonda.targets.adapters.jax:run_in_jax",
        workloads=("ops", "mlp", "cnn", "resnet18", "resnet34", "resnet50", "transformer"),
        without=("--probe callgrind",),
    ),
    "pytensor": Adapter(
        "pytensor", "PyTensor", "pytensor", ("pytensor",), (2, 30), "sonda.targets.adapters.pytensor:run_in_pytensor",
        workloads=("ops", "mlp"), devices=("cpu",),
    ),
}  # fmt: skip
FRAMEWORKS = tuple(ADAPTERS)
OPERATION_LIST = "OperationList"
"""The class of the outermost layer of the workload `ops`, as in PyTorch."""


def check_framework(job: Job) -> None:
    """Raise SondaError where a job's framework cannot run it. Nothing is imported."""
    adapter = ADAPTERS.get(job.framework)
    if adapter is None:
        raise SondaError(f"framework {job.framework!r} is not there", nearest(job.framework, FRAMEWORKS))
    words = adapter.words
    if is_garden(job.workload):
        if job.framework != ModelGarden.only:
            raise SondaError(f"{job.workload} is not there in {words}", f"add --framework {ModelGarden.only}")
        require_garden()
    elif adapter.workloads and job.workload not in adapter.workloads:
        raise SondaError(
            f"{job.workload} is not there in {words}",
            f"in {words} there is {', '.join(adapter.workloads)}; or use --framework torch",
        )
    if job.train and job.workload == "ops" and job.framework != "torch":
        raise SondaError(f"ops cannot be trained in {words}", "leave out --train, or use --framework torch")
    if not job.on:
        return  # an exploration chooses the target later
    spec = parse_target(job.on)
    if spec.mode and spec.mode not in adapter.modes:
        whose = next(name for name, candidate in ADAPTERS.items() if spec.mode in candidate.modes)
        raise SondaError(f"{words} does not run on {job.on}", f"use --framework {whose}, or one device")
    if any(device.kind not in adapter.devices for device in spec.devices):
        kinds = " and ".join("cuda:N" if kind == "cuda" else kind for kind in adapter.devices)
        raise SondaError(f"{words} runs on {kinds}, not on {job.on}", "use --framework torch")
    given = {f"--{name.replace('_', '-')}" for name in job.__struct_fields__ if getattr(job, name)}
    given |= {f"--probe {name}" for name in job.probe.split(",") if name}
    lacking = [option for option in adapter.without if option in given]
    if lacking:
        raise SondaError(f"{lacking[0]} is not there in {words}", "leave it out, or use --framework torch")


def require_framework(framework: str) -> None:
    """Raise SondaError unless the framework is installed and new enough. It is not imported."""
    adapter = ADAPTERS[framework]
    if find_spec(adapter.package) is None:
        raise MissingExtraError(adapter.words, adapter.extra)
    installed = version_of(framework)
    if installed and _version_numbers(installed) < adapter.least:
        least = ".".join(map(str, adapter.least))
        raise SondaError(
            f"{adapter.words} {installed} is too old, {least} or newer is needed",
            f"install it with: {install_command(adapter.extra, '--upgrade')}",
        )


def version_of(framework: str) -> str:
    """The installed version; '' where no distribution has one."""
    for name in ADAPTERS[framework].distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def import_framework(framework: str) -> Any:
    """Import the framework's package. Raises SondaError where it is missing, too old, or its import fails."""
    require_framework(framework)
    try:
        return importlib.import_module(ADAPTERS[framework].package)
    except Exception as error:  # whatever a package of the wrong version raises
        raise _import_failure(framework, error) from error


def run_in_framework(framework: str, job: Job, directory: Path, replay: bool) -> dict[str, Any]:
    """Run a job in a framework, in this process; returns what the run should say of the workload.

    Raises SondaError where the framework cannot be used or the workload cannot run.
    """
    require_framework(framework)
    module, _, function = ADAPTERS[framework].worker.partition(":")
    run: Callable[[Job, Path, bool], dict[str, Any]] = getattr(importlib.import_module(module), function)
    return run(job, directory, replay)


def compilation_variables(framework: str, folder: Path) -> dict[str, str]:
    """Variables by which the processes of one run share what the framework compiles, in a folder of that run."""
    if framework == "jax":
        from sonda.targets.adapters.jax import compilation_cache

        return compilation_cache(folder)
    return {}


def _import_failure(framework: str, error: Exception) -> SondaError:
    """The error of a failed import, and the package that is at fault where that can be told."""
    adapter = ADAPTERS[framework]
    text = str(error).lower()
    named = next((name for name, words in SHARED.items() if any(word in text for word in words)), "")
    with_version = f" with {named} {_installed_version(named)}" if named and _installed_version(named) else ""
    return SondaError(
        f"{adapter.words} {version_of(framework)} cannot be imported{with_version}: {named_line(error)}",
        f"install versions that fit together: {install_command(adapter.extra, '--upgrade')}"
        + (f" {named}, or use an environment of its own" if named else ""),
    )


def _installed_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _version_numbers(version: str) -> tuple[int, ...]:
    """`2.21.0rc1` as (2, 21, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
