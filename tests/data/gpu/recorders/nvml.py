"""Readings of NVML while the GPU is idle, busy and idle again: `python nvml.py FILE.json`."""

import json
import sys
import threading
import time
from pathlib import Path

import pynvml
import torch

INSTANT, AVERAGE = 186, 185
"""NVML_FI_DEV_POWER_INSTANT and NVML_FI_DEV_POWER_AVERAGE."""

pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
rows, marks = [], []
done = threading.Event()


def read():
    began = time.monotonic_ns()
    fields = pynvml.nvmlDeviceGetFieldValues(card, [INSTANT, AVERAGE])
    rows.append(
        {
            "t": began,
            "energy_mJ": pynvml.nvmlDeviceGetTotalEnergyConsumption(card),
            "power_mW": pynvml.nvmlDeviceGetPowerUsage(card),
            "sm_MHz": pynvml.nvmlDeviceGetClockInfo(card, 1),
            "mem_MHz": pynvml.nvmlDeviceGetClockInfo(card, 2),
            "temperature": pynvml.nvmlDeviceGetTemperature(card, 0),
            "reasons": pynvml.nvmlDeviceGetCurrentClocksEventReasons(card),
            "util": pynvml.nvmlDeviceGetUtilizationRates(card).gpu,
            "instant": fields[0].value.uiVal,
            "average": fields[1].value.uiVal,
            "ret": [fields[0].nvmlReturn, fields[1].nvmlReturn],
            "took_ns": time.monotonic_ns() - began,
        }
    )


def keep_reading():
    while not done.is_set():
        read()
        time.sleep(0.01)


reader = threading.Thread(target=keep_reading)
reader.start()
matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
time.sleep(3)
marks.append(("busy", time.monotonic_ns()))
end = time.monotonic() + 5
while time.monotonic() < end:
    for _ in range(20):
        product = matrix @ matrix
    torch.cuda.synchronize()
marks.append(("idle", time.monotonic_ns()))
time.sleep(3)
done.set()
reader.join()
info = {
    "name": pynvml.nvmlDeviceGetName(card),
    "driver": pynvml.nvmlSystemGetDriverVersion(),
    "limit_mW": pynvml.nvmlDeviceGetPowerManagementLimit(card),
}
Path(sys.argv[1]).write_text(json.dumps({"info": info, "marks": marks, "rows": rows}))
