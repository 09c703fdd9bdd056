"""NVIDIA GPUs through NVML: the total energy counter, instant and average power, clocks, temperature, throttling.

Read with nvidia-ml-py, the vendor's own binding. The counter is updated about ten times a second (H200, driver 580) and
looks at the load for a part of that time only; a read takes some 4 ms. Average power is a mean over about a second.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import perf_counter_ns
from typing import Any

from sonda.probes.energy.channels import BOARD, HIGHEST_BOARD, Channel, EnergySources, Lack

NAME = "NVML"
UPDATE_S = 0.1
"""The energy counter of an H200 changed 10 times a second; others were seen at 20 ms."""
AVERAGE_FIELD, INSTANT_FIELD = 185, 186
"""NVML_FI_DEV_POWER_AVERAGE and NVML_FI_DEV_POWER_INSTANT."""
MULTIPROCESSOR_CLOCK, MEMORY_CLOCK, TEMPERATURE = 1, 2, 0
"""NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU."""

CALLS = {
    "energy": ("J", "counter", "nvmlDeviceGetTotalEnergyConsumption"),
    "power": ("W", "power", "NVML_FI_DEV_POWER_INSTANT"),
    "average power": ("W", "state", "NVML_FI_DEV_POWER_AVERAGE"),
    "clock": ("Hz", "state", "nvmlDeviceGetClockInfo(SM)"),
    "memory clock": ("Hz", "state", "nvmlDeviceGetClockInfo(MEM)"),
    "temperature": ("°C", "state", "nvmlDeviceGetTemperature"),
    "throttle reasons": ("1", "state", "nvmlDeviceGetCurrentClocksEventReasons"),
    "utilisation": ("%", "state", "nvmlDeviceGetUtilizationRates"),
}
"""Unit, kind and call of every sensor of a GPU; the counter is read first, because its moment matters most."""


class GpuReader:
    """Reads one GPU. A sensor that the GPU refuses when it is opened is not read again."""

    def __init__(self, nvml: Any, handle: Any, device: str) -> None:
        self.device = device
        self._calls = _sensor_calls(nvml, handle)
        self._busy = math.nan
        self.refused: dict[str, str] = {}
        origins: dict[str, str] = {}
        for sensor, call in list(self._calls.items()):
            try:
                call()
            except Exception as error:
                self.refused[sensor] = error_line(error)
                del self._calls[sensor]
        if "energy" not in self._calls and "power" not in self._calls:
            origins["power"] = self._take_usage(nvml, handle)
        self.channels = [_gpu_channel(sensor, device, origins.get(sensor, "")) for sensor in self._calls]

    @property
    def load(self) -> Callable[[], float] | None:
        """A function that gives the share of the time in which the GPU worked, %; None where it does not tell it.

        It gives the value of the last `read` and asks nothing: every question to NVML takes milliseconds.
        """
        return (lambda: self._busy) if "utilisation" in self._calls else None

    def _take_usage(self, nvml: Any, handle: Any) -> str:
        """Read the power usage of cards before Volta, which have neither the counter nor the field; give its origin.

        The origin names the call, because on cards since Ampere it gives a mean over a second, no instant power.
        """
        with suppress(Exception):
            nvml.nvmlDeviceGetPowerUsage(handle)
            self._calls["power"] = lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3
        return "nvmlDeviceGetPowerUsage"

    def read(self) -> tuple[int, list[float | None]]:
        moment = 0
        values: list[float | None] = []
        for sensor, call in self._calls.items():
            before = perf_counter_ns()
            try:
                values.append(float(call()))
            except Exception:
                values.append(None)
            moment = moment or (before + perf_counter_ns()) // 2
            if sensor == "utilisation":
                self._busy = math.nan if values[-1] is None else values[-1]
        return moment, values

    def close(self) -> None:
        self._calls = {}


class NvmlSession:
    """A reader without channels that stands behind all others: closing it ends NVML's session."""

    def __init__(self, nvml: Any) -> None:
        self.channels: list[Channel] = []
        self._nvml = nvml

    def read(self) -> tuple[int, list[float | None]]:
        return perf_counter_ns(), []

    def close(self) -> None:
        with suppress(Exception):
            self._nvml.nvmlShutdown()


def open_nvml(
    load: Callable[[str], Any] = importlib.import_module, environment: Mapping[str, str] | None = None
) -> EnergySources:
    """The GPUs that the driver shows, and what cannot be read, with the reason. `load` imports the binding.

    A GPU that programs see is `cuda:N`, by CUDA's number. One that is hidden from them is `gpu:N`, by NVML's number.
    """
    environment = os.environ if environment is None else environment
    sources = EnergySources()
    try:
        nvml = load("pynvml")
    except ImportError:
        sources.lacks.append(Lack(NAME, "nvidia-ml-py is not installed", "install it with: pip install nvidia-ml-py"))
        return sources
    try:
        nvml.nvmlInit()
    except Exception as error:
        reason = f"no NVIDIA driver ({error_line(error)})"
        sources.lacks.append(Lack(NAME, reason, "install the driver of an NVIDIA GPU"))
        return sources
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        identities = [decode_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        models = [decode_text(nvml.nvmlDeviceGetName(handle)) for handle in handles]
    except Exception as error:
        sources.lacks.append(Lack(NAME, f"the driver answers: {error_line(error)}", "check it with: nvidia-smi"))
        NvmlSession(nvml).close()
        return sources
    if not handles:
        sources.lacks.append(Lack(NAME, "the driver shows no device", "give the container its GPUs"))
    names = device_names(identities, environment.get("CUDA_VISIBLE_DEVICES"))
    if len(set(models)) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        sources.lacks.append(
            Lack("order of GPUs", "models differ, and CUDA may number them in another order than NVML",
                 "set CUDA_DEVICE_ORDER=PCI_BUS_ID")
        )  # fmt: skip
    sources.identities = dict(zip(names, identities, strict=True))
    for handle, device, model in zip(handles, names, models, strict=True):
        reader = GpuReader(nvml, handle, device)
        sources.about[device] = model
        sources.readers.append(reader)
        for sensor in ("energy", "power"):
            if sensor in reader.refused:
                remedy = "use a GPU of the Volta generation or later, without MIG"
                reason = f"refused ({reader.refused[sensor]})"
                counter = (BOARD, device, sensor) if sensor == "energy" else ()
                sources.lacks.append(Lack(f"{NAME} {device} {sensor}", reason, remedy, *counter))
    sources.readers.append(NvmlSession(nvml))
    return sources


def device_names(identities: list[str], visible: str | None) -> list[str]:
    """The names of the GPUs that NVML lists by UUID, as a program has them; `visible` is CUDA_VISIBLE_DEVICES."""
    if visible is None:
        return [f"cuda:{index}" for index in range(len(identities))]
    names: dict[int, str] = {}
    for word in visible.split(","):
        index = _find_device(word.strip(), identities)
        if index is None:
            break  # CUDA shows no device behind the first that it does not know
        names[index] = f"cuda:{len(names)}"
    return [names.get(index, f"gpu:{index}") for index in range(len(identities))]


def _find_device(word: str, identities: list[str]) -> int | None:
    if word.isdigit():
        return int(word) if int(word) < len(identities) else None
    matching = [index for index, identity in enumerate(identities) if word and identity.startswith(word)]
    return matching[0] if len(matching) == 1 else None


def _gpu_channel(sensor: str, device: str, instead: str) -> Channel:
    """The channel of a sensor; `instead` is the call that it is read by, where that is not the usual one."""
    unit, kind, origin = CALLS[sensor]
    counter = kind == "counter"
    return Channel(
        sensor=sensor,
        device=device,
        unit=unit,
        kind=kind,  # type: ignore[arg-type]
        origin=instead or origin,
        covers=BOARD if counter else "",
        total=counter,
        update=UPDATE_S if kind in ("counter", "power") else 0.0,
        highest=HIGHEST_BOARD if counter else 0.0,
    )


def _sensor_calls(nvml: Any, handle: Any) -> dict[str, Callable[[], float]]:
    def field(number: int) -> float:
        value = nvml.nvmlDeviceGetFieldValues(handle, [number])[0]
        if value.nvmlReturn:
            raise OSError(f"NVML error {value.nvmlReturn}")
        return float(value.value.uiVal) / 1e3

    def reasons() -> float:
        try:
            return float(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        except Exception:
            # What drivers before 535, and bindings of their time, call it.
            return float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))

    return {
        "energy": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,
        "power": lambda: field(INSTANT_FIELD),
        "average power": lambda: field(AVERAGE_FIELD),
        "clock": lambda: nvml.nvmlDeviceGetClockInfo(handle, MULTIPROCESSOR_CLOCK) * 1e6,
        "memory clock": lambda: nvml.nvmlDeviceGetClockInfo(handle, MEMORY_CLOCK) * 1e6,
        "temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, TEMPERATURE),
        "throttle reasons": reasons,
        "utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
    }


def error_line(error: Exception) -> str:
    """The message of an error in one line; its class where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def decode_text(value: Any) -> str:
    """A name as text: older bindings give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
