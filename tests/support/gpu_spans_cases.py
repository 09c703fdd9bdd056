"""Helpers of `test_gpu_spans.py` that other tests use too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sonda.frameworks.collector.recorder import Recorder


class FakeDevice:
    """`torch.cuda` with a clock that is moved by hand; marks are passed when it says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reached = True
        self.capturing = False
        self.made = 0

    def Event(self, enable_timing: bool) -> Any:  # noqa: N802
        assert enable_timing
        self.made += 1
        device, event = self, SimpleNamespace(time=0.0)
        event.record = lambda: setattr(event, "time", device.now)
        event.query = lambda: device.reached
        event.elapsed_time = lambda other: (other.time - event.time) / 1e6
        return event

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def current_device(self) -> int:
        return 0

    def get_device_name(self, device: int) -> str:
        return f"a card {device}"

    def max_memory_allocated(self, device: int) -> int:
        return 1000

    def max_memory_reserved(self, device: int) -> int:
        return 2000


def fake_torch(device: FakeDevice) -> Any:
    allowed = SimpleNamespace(allow_tf32=True)
    return SimpleNamespace(cuda=device, backends=SimpleNamespace(cuda=SimpleNamespace(matmul=allowed), cudnn=allowed))


def facts(recorder: Recorder) -> list[dict[str, Any]]:
    return [fact for fact in recorder._pending if "id" not in fact]
