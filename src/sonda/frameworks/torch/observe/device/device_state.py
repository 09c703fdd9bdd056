"""The state of a working GPU: clocks, temperature, power, and why it is slower than it could be.

NVML is asked by the device's UUID, because a program may number its devices in another order than NVML does.
"""

from __future__ import annotations

from typing import Any

MULTIPROCESSOR_CLOCK, MEMORY_CLOCK, TEMPERATURE = 1, 2, 0
"""NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU."""


def device_uuid(torch: Any, device: int) -> str:
    """The device's UUID as NVML knows it, `GPU-...`; '' where PyTorch does not give it."""
    try:
        text = str(torch.cuda.get_device_properties(device).uuid)
    except Exception:  # PyTorch before 2.4, or another maker's card
        return ""
    return text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"


class DeviceState:
    """Reads the state of one device. Opening NVML takes long and is done once; a reading takes some ms."""

    def __init__(self, torch: Any, device: int) -> None:
        self.missing = ""
        """Why nothing can be read; '' where it can."""
        self._nvml: Any = None
        self._handle: Any = None
        nvml = getattr(torch.cuda, "pynvml", None)  # where it is installed, PyTorch has imported it
        if nvml is None:
            self.missing = "nvidia-ml-py is not installed"
            return
        try:
            nvml.nvmlInit()
            self._handle = nvml.nvmlDeviceGetHandleByUUID(device_uuid(torch, device))
            self._nvml = nvml
        except Exception as error:
            self.missing = " ".join(str(error).split()) or type(error).__name__

    def read(self) -> dict:
        """Clocks in Hz, temperature in °C, power in W and the bits of NVML's throttle reasons; or why they are missing.

        What the driver refuses is left out.
        """
        nvml, handle = self._nvml, self._handle
        if nvml is None:
            return {"missing": self.missing}
        calls = {
            "clock": lambda: 1e6 * nvml.nvmlDeviceGetClockInfo(handle, MULTIPROCESSOR_CLOCK),
            "memory_clock": lambda: 1e6 * nvml.nvmlDeviceGetClockInfo(handle, MEMORY_CLOCK),
            "temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, TEMPERATURE),
            "power": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        }
        readings = {}
        for name, call in calls.items():
            try:
                readings[name] = float(call())
            except Exception:
                continue
        return readings
