"""Four training steps whose requests to valgrind are answered by an emulator of ours: `python emulated.py DIRECTORY N`.

Every part that is asked for has 1,000 instructions. N is the step to be modelled, or `fail` for a program that fails in
the middle of its third. Says what was asked, one word a line.
"""

import ctypes
import os
import sys
from pathlib import Path

import uncompiled  # noqa: F401

import torch  # isort: skip
from torch import nn  # isort: skip

from sonda.frameworks.collector.callgrind import (
    DUMP_STATS_AT,
    START_INSTRUMENTATION,
    STOP_INSTRUMENTATION,
    StepModeller,
)
from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.sampling.schedule import Schedule
from sonda.frameworks.torch.observe.observer import TorchObserver
from sonda.frameworks.torch.observe.process import state_versions

directory, wanted = Path(sys.argv[1]), sys.argv[2]
WORDS = {START_INSTRUMENTATION: "start", STOP_INSTRUMENTATION: "stop"}


class Emulator:
    def __init__(self):
        self.written = 0

    def running(self):
        return True

    def request(self, number, argument=0):
        print(WORDS[number], flush=True)
        return 0

    def call(self, address, default):
        request, name = ctypes.c_ulong.from_address(address).value, ctypes.c_ulong.from_address(address + 8).value
        assert request == DUMP_STATS_AT
        self.written += 1
        text = f"desc: Trigger: Client Request: {ctypes.string_at(name).decode()}\nevents: Ir Dr\ntotals: 1000 10\n"
        (directory / f"callgrind.{os.getpid()}.{self.written}").write_text(text)
        return default


torch.manual_seed(0)
torch.set_num_threads(1)
recorder = Recorder(str(directory))
observer = TorchObserver(recorder, torch, Schedule(count=False))
state_versions(recorder, torch)
observer.install()
step = 2 if wanted == "fail" else int(wanted)
StepModeller(observer, {"start": max(0, step - 1), "step": step}, Emulator()).begin(announced=False)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(4):
    print("step", flush=True)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(4, 8)), torch.tensor([0, 1, 2, 0]))
    loss.backward()
    if wanted == "fail" and number == 2:
        raise RuntimeError("no more")
    optimizer.step()
print("end", flush=True)
