"""A GPU as driver and framework describe it: facts of the machine record.

Two sources: PyTorch (`read_device`, in a child process) and NVML (`read_nvml_device`, anywhere, without PyTorch).
PyTorch numbers devices as the program sees them, NVML as they are plugged in. So NVML is asked for the card by the
identity that PyTorch gives.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from typing import Any

import msgspec

from sonda.probes.energy.nvml import decode_text, error_line
from sonda.record.errors import SondaError

SPEED = ("name", "capability", "memory_bytes", "sm_mhz", "memory_mhz", "memory_bits", "power_limit_w")
"""Items of the fingerprint: what determines a device's speed, as far as NVML alone shows it."""
PAUSES_S = (0.5,) * 4


class GpuDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU. Zero or '' where it is not known; `missing` says why."""

    name: str
    index: int = 0
    """As the program counts them: `cuda:<index>`."""
    capability: str = ""
    """Compute capability, `9.0`."""
    sms: int = 0
    memory_bytes: int = 0
    l2_bytes: int = 0
    sm_mhz: float = 0.0
    """Highest clock of the SMs."""
    memory_mhz: float = 0.0
    """Highest clock of the memory."""
    memory_bits: int = 0
    """Width of the memory's bus."""
    power_limit_w: float = 0.0
    driver: str = ""
    library: str = ""
    """`torch 2.11.0`; '' where PyTorch was not asked."""
    cuda: str = ""
    """The CUDA version PyTorch was built for."""
    mig: bool = False
    """Whether it is a part of a card, or may be."""
    missing: dict[str, str] = {}

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that name what determines its speed."""
        speed = {name: getattr(self, name) for name in SPEED}
        return hashlib.sha256(json.dumps(speed, sort_keys=True).encode()).hexdigest()[:16]


def read_device(torch: Any, index: int, nvml: Any = None) -> GpuDevice:
    """The device `cuda:<index>` as PyTorch sees it, with NVML's figures of the same card where NVML answers.

    Raises SondaError where there is no such device.
    """
    check_device(torch, index)
    own = torch.cuda.get_device_properties(index)
    missing: dict[str, str] = {}
    facts: dict[str, Any] = {
        "name": str(own.name),
        "index": index,
        "capability": f"{own.major}.{own.minor}",
        "sms": int(own.multi_processor_count),
        "memory_bytes": int(own.total_memory),
        "l2_bytes": int(getattr(own, "L2_cache_size", 0) or 0),
        "memory_bits": int(getattr(own, "memory_bus_width", 0) or 0),
        # kHz
        "sm_mhz": float(getattr(own, "clock_rate", 0) or 0) / 1e3,
        "memory_mhz": float(getattr(own, "memory_clock_rate", 0) or 0) / 1e3,
        "library": f"torch {str(torch.__version__).partition('+')[0]}",
        "cuda": str(torch.version.cuda),
    }
    try:
        library = nvml if nvml is not None else _open_nvml()
        handle = library.nvmlDeviceGetHandleByUUID(_nvml_uuid(own))
        facts |= {name: value for name, value in _nvml_facts(library, handle, missing).items() if value}
    except Exception as error:
        missing["nvml"] = error_line(error)
    for name in ("l2_bytes", "sm_mhz", "memory_mhz", "memory_bits", "power_limit_w", "driver"):
        if not facts.get(name):
            missing.setdefault(name, "neither PyTorch nor NVML says it")
    return GpuDevice(**facts, missing={name: missing[name] for name in sorted(missing)})


def check_device(torch: Any, index: int) -> None:
    """Raises SondaError where PyTorch cannot compute on `cuda:<index>`."""
    if not torch.version.cuda:
        raise SondaError("this PyTorch was built without CUDA", "install a CUDA build of PyTorch")
    if not torch.cuda.is_available():
        raise SondaError("PyTorch finds no GPU", "check the driver with nvidia-smi, and CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    if not 0 <= index < count:
        raise SondaError(f"there is no cuda:{index}", f"use cuda:0{f' to cuda:{count - 1}' if count > 1 else ''}")


def read_nvml_device(index: int, nvml: Any = None) -> GpuDevice | None:
    """The device `cuda:<index>` by NVML alone, in 50 ms and without PyTorch; None where NVML does not suffice.

    It suffices where all of its devices are alike and none is divided: then it does not matter which one is meant.
    """
    try:
        library = nvml if nvml is not None else _open_nvml()
        count = library.nvmlDeviceGetCount()
        if not count or (index >= count and not _hides_devices()):
            return None
        devices = []
        for number in range(count):
            missing: dict[str, str] = {}
            facts = _nvml_facts(library, library.nvmlDeviceGetHandleByIndex(number), missing)
            devices.append(GpuDevice(**{**facts, "index": index, "missing": missing}))
    except Exception:
        return None
    first = devices[0]
    return first if not first.mig and all(device == first for device in devices) else None


def read_gpu_names() -> list[str]:
    """The names of this machine's GPUs; none where there is no driver to ask."""
    try:
        library = _open_nvml()
        handles = [library.nvmlDeviceGetHandleByIndex(number) for number in range(library.nvmlDeviceGetCount())]
        return [decode_text(library.nvmlDeviceGetName(handle)) for handle in handles]
    except Exception:
        return []


def sm_clock_reader(uuid: str, nvml: Any = None) -> Callable[[], float]:
    """A function that reads the SM clock now, Hz; NaN where NVML does not answer."""
    try:
        library = nvml if nvml is not None else _open_nvml()
        handle = library.nvmlDeviceGetHandleByUUID(uuid)
    except Exception:
        return lambda: float("nan")

    def read() -> float:
        try:
            return 1e6 * float(library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM))
        except Exception:
            return float("nan")

    return read


def describe_other_load(
    uuid: str, nvml: Any = None, own: int | None = None, sleep: Callable[[float], None] = time.sleep
) -> str:
    """A sentence about the load that other programs put on the device; '' where there is none, or NVML does not answer.

    NVML's load is a mean over up to a second, so that a program that just ended still shows. A device counts as loaded
    where it shows a load for two seconds.
    """
    try:
        library = nvml if nvml is not None else _open_nvml()
        handle = library.nvmlDeviceGetHandleByUUID(uuid)
        for pause in (*PAUSES_S, 0.0):
            busy = int(library.nvmlDeviceGetUtilizationRates(handle).gpu)
            if not busy:
                return ""
            sleep(pause)
        mine = os.getpid() if own is None else own
        # In a container the numbers of processes need not be ours, so the load decides and they only explain it.
        processes = [process.pid for process in library.nvmlDeviceGetComputeRunningProcesses(handle)]
        running = [pid for pid in processes if pid != mine]
    except Exception:
        return ""
    programs = f", {len(running)} other program{'s' if len(running) != 1 else ''}" if running else ""
    return f"the GPU was {busy} % busy before its ceilings were measured{programs}"


def device_uuid(torch: Any, index: int) -> str:
    """The device's identity as NVML writes it."""
    return _nvml_uuid(torch.cuda.get_device_properties(index))


def _nvml_uuid(properties: Any) -> str:
    text = str(getattr(properties, "uuid", ""))
    return text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"


def _hides_devices() -> bool:
    return "CUDA_VISIBLE_DEVICES" in os.environ


def _open_nvml() -> Any:
    import pynvml

    pynvml.nvmlInit()
    return pynvml


def _nvml_facts(library: Any, handle: Any, missing: dict[str, str]) -> dict[str, Any]:
    """Facts about a card by NVML; puts the reason into `missing` for each that NVML does not give."""

    def ask(name: str, question: Callable[[], Any], otherwise: Any = 0) -> Any:
        try:
            return question()
        except Exception as error:
            missing[name] = error_line(error)
            return otherwise

    def divided() -> bool:
        return library.nvmlDeviceGetMigMode(handle)[0] == 1

    capability = ask("capability", lambda: "{}.{}".format(*library.nvmlDeviceGetCudaComputeCapability(handle)), "")
    facts = {
        "name": ask("name", lambda: decode_text(library.nvmlDeviceGetName(handle)), ""),
        "capability": capability,
        "memory_bytes": ask("memory_bytes", lambda: int(library.nvmlDeviceGetMemoryInfo(handle).total)),
        "sm_mhz": ask("sm_mhz", lambda: float(library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_SM)), 0.0),
        "memory_mhz": ask(
            "memory_mhz", lambda: float(library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_MEM)), 0.0
        ),
        "memory_bits": ask("memory_bits", lambda: int(library.nvmlDeviceGetMemoryBusWidth(handle))),
        "power_limit_w": ask(
            "power_limit_w", lambda: library.nvmlDeviceGetPowerManagementLimit(handle) / 1e3, 0.0
        ),
        "driver": ask("driver", lambda: decode_text(library.nvmlSystemGetDriverVersion()), ""),
    }  # fmt: skip
    try:
        facts["mig"] = divided()
    except Exception:
        # A card that cannot be divided refuses the question.
        facts["mig"] = False
    return facts
