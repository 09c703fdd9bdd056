"""Targets as the user writes them: `[MODE=]DEVICE{+DEVICE}[@key=value,…]`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from sonda.record.errors import Correction, SondaError, near, nearest

STRATEGIES = ("mirrored", "centralstorage", "multiworker", "parameterserver")
"""TensorFlow's own ways of using several devices."""
MODES = ("ddp", "dp", "hybrid", "pipeline", "localsgd", *STRATEGIES)
DEVICE = re.compile(
    r"^(?:(?P<cpu>cpu)(?:/(?:(?P<threads>\d{1,9})|(?P<share>\d{0,9}\.\d{1,9})))?"
    r"|(?P<cuda>cuda)(?::(?P<index>\d{1,9}))?|sim:(?P<sim>.*))$"
)
TIME = re.compile(r"(\d+\.?\d*|\.\d+)\s*(ms|s|)")
MOST_THREADS = 4096
LEAST_SHARE = 0.01
"""Of a processor: with less, a quota is shorter than what the kernel can keep to."""
KINDS = ("cpu", "cuda", "sim")
DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""What NVIDIA's driver, AMD's, and Windows' for Linux inside it leave in /dev."""
FORM = (
    "write cpu, cpu/8 (8 threads), cpu/0.25 (a quarter of one processor), cuda:0 or sim:NAME, several joined by '+', "
    "with a mode as in ddp=cpu/1+cpu/1"
)


@dataclass(frozen=True)
class DeviceSpec:
    """One device of a target.

    `threads` is set where the user gave a number, `index` for a GPU, `name` for a simulated accelerator. `share` limits
    a slow device to this part of one processor; such a device has one thread.
    """

    kind: str
    threads: int | None = None
    share: float | None = None
    index: int = 0
    name: str = ""


@dataclass(frozen=True)
class TargetSpec:
    """A target as written, in its parts."""

    text: str
    mode: str
    devices: tuple[DeviceSpec, ...]
    options: dict[str, str] = field(default_factory=dict)


def parse_target(text: str) -> TargetSpec:
    """Parse a target. Raises SondaError that names what is wrong with it."""
    body, at, tail = text.partition("@")
    mode = ""
    head, equals, rest = body.partition("=")
    if equals and not head.startswith("sim:"):
        mode, body = head, rest
        if mode not in MODES:
            raise SondaError(f"target {text!r}: unknown mode {mode!r}", nearest(mode, MODES))
    devices = tuple(_parse_device(text, part) for part in body.split("+"))
    if len(devices) > 1 and not mode:
        raise SondaError(f"target {text!r} joins devices without a mode", f"write for example ddp={body}")
    options = {}
    for item in tail.split(",") if at else ():
        key, _, value = item.partition("=")
        if not key:
            raise SondaError(f"target {text!r}: empty option after '@'", FORM)
        options[key] = value
    return TargetSpec(text, mode, devices, options)


def parse_whole(text: str) -> int | None:
    """A whole number from 0 on, written in digits; None for other text and for more than 18 digits."""
    return int(text) if text.isdecimal() and len(text) < 19 else None


def parse_seconds(text: str) -> float | None:
    """`100ms`, `0.5s`, `2` in s; None for other text."""
    match = TIME.fullmatch(text.strip())
    return float(match[1]) * (0.001 if match[2] == "ms" else 1.0) if match else None


def without_meeting_place(text: str) -> str:
    """The target without `at=`, the place where its nodes meet: a queue may start them elsewhere every time."""
    head, _, tail = text.partition("@")
    options = ",".join(word for word in tail.split(",") if word and not word.startswith("at="))
    return f"{head}@{options}" if options else head


def _parse_device(text: str, part: str) -> DeviceSpec:
    match = DEVICE.match(part)
    if not match:
        kind = part.partition("/")[0].partition(":")[0]
        wrong, meant = (part, "cuda:0") if kind.lower() == "gpu" else (kind, near(kind, KINDS))
        remedy = Correction(f"did you mean {meant!r}?", wrong, meant) if meant else FORM
        raise SondaError(f"target {text!r}: {part!r} is not a device", remedy)
    if match["share"]:
        share = float(match["share"])
        if not LEAST_SHARE <= share < 1:
            raise SondaError(
                f"target {text!r}: {match['share']} of a processor", f"give {LEAST_SHARE} to 0.99, or whole threads"
            )
        return DeviceSpec("cpu", 1, share)
    if match["cpu"]:
        threads = int(match["threads"]) if match["threads"] else None
        if threads is not None and not 1 <= threads <= MOST_THREADS:
            raise SondaError(f"target {text!r}: {threads} threads", f"give 1 to {MOST_THREADS}")
        return DeviceSpec("cpu", threads)
    if match["cuda"]:
        return DeviceSpec("cuda", index=int(match["index"] or 0))
    return DeviceSpec("sim", name=match["sim"])


def describe_slow_devices(devices: Iterable[DeviceSpec]) -> list[str]:
    """Notes on devices that are limited to a part of a processor."""
    shares = dict.fromkeys(device.share for device in devices if device.share is not None)
    return [f"cpu/{share:g} is held to {share:g} of one processor; roofs are those of a whole one" for share in shares]


def require_one_device(spec: TargetSpec) -> DeviceSpec:
    """The device of a target that has one. Raises SondaError for several, and for one that this machine lacks."""
    if spec.mode or len(spec.devices) > 1 or spec.options:
        raise SondaError(f"target {spec.text!r}: this needs one device", "use --on cpu, cuda:N or sim:NAME")
    device = spec.devices[0]
    if device.kind == "cuda" and not has_gpu():
        raise SondaError(
            f"target {spec.text!r}: no driver of a GPU is loaded on this machine", "use --on cpu, cpu/N or sim:NAME"
        )
    if device.kind == "sim":
        from sonda.accelerators.description.accelerator import load_accelerator

        load_accelerator(device.name)
    return device


def has_gpu() -> bool:
    """Whether the driver of a GPU is loaded; no framework is imported to find out."""
    return any(os.path.exists(path) for path in DRIVERS)


def available_threads() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))
