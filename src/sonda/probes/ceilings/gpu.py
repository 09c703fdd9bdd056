"""GPU ceilings: the measured peaks of a GPU beside its theoretical ones, kept as a dated record beside the runs.

In a run they stand under `machine.ceilings.devices`, in the shape that the processor's have for a number of threads:

    {"devices": {"cuda:0": {"flops": {"float32": 6.0e13, "tf32": ...},   FLOP/s by precision
                            "dram_bandwidth": 4.3e12, "dram_stream": ...,       B/s, read plus written
                            "cache_bandwidth": 7.0e12,                          B/s of L2
                            "bandwidth_curve": [[bytes touched, B/s], ...], "cache_bytes": 52428800,
                            "operation_ns": 5000.0, "training_operation_ns": ...,
                            "clocks": {"float32": 1.98e9, ...},          Hz of the SMs while it was measured
                            "spread": {...}, "kernels": {...}, "missing": {...}, "disturbed": [...],
                            "measured": "2026-11-15T03:30:12+00:00", "library": "torch 2.11.0",
                            "theory": {"card": "H200 SXM", "flops": {"float32": {"value": ..., "source": ...}}, ...},
                            "device": {"name": "NVIDIA H200", "driver": "580.159.04", ...}}}}

`python -m sonda.probes.ceilings.gpu INDEX` measures, in a process of its own: about 8 s on the GPU, whose memory is
free again afterwards. With `facts` behind the index it only describes the device. Kept figures are valid for 30 days,
for one driver and one version of PyTorch. `gpu_kernels` says how they are taken.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from sonda.probes.ceilings.gpu_tables import TheoreticalCeilings, find_theory
from sonda.probes.ceilings.processor import RETRY_MINUTES, ceilings_files, is_newer, keep_better, write_ceilings
from sonda.probes.ceilings.processor_kernels import slow_cache
from sonda.probes.machine.environment import package_version
from sonda.probes.machine.gpu import (
    GpuDevice,
    describe_other_load,
    device_uuid,
    read_device,
    read_nvml_device,
    sm_clock_reader,
)
from sonda.record.errors import SondaError, first_line
from sonda.record.progress import Say

SCHEMA = 1
TIMEOUT_S = 180
KEPT_DAYS = 30
QUIET = "measure again when nothing else uses the GPU"


class GpuCeilings(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU reached, and what it could reach."""

    schema: int = SCHEMA
    measured: str
    """UTC, ISO 8601."""
    library: str
    device: GpuDevice
    theory: TheoreticalCeilings
    flops: dict[str, float]
    """FLOP/s by precision: float32, tf32, bfloat16, float16, float64, float8; float64_cores is float64 outside tensor
    cores."""
    dram_bandwidth: float
    """B/s, the best of all patterns."""
    dram_stream: float = 0.0
    """B/s, the best of copy and triad."""
    cache_bandwidth: float = 0.0
    """B/s of L2; 0 where it was not measured."""
    bandwidth_curve: list[tuple[float, float]] = []
    operation_ns: float = 0.0
    training_operation_ns: float = 0.0
    clocks: dict[str, float] = {}
    spread: dict[str, float] = {}
    kernels: dict[str, str] = {}
    missing: dict[str, str] = {}
    disturbed: list[str] = []

    def record(self) -> dict[str, Any]:
        """As a run keeps it: put it into the machine's `ceilings`."""
        entry = msgspec.to_builtins(self)
        size = self.theory.cache_bytes
        entry["cache_bytes"] = self.device.l2_bytes or (size.value if size is not None else 0)
        return {"devices": {f"cuda:{self.device.index}": {name: value for name, value in entry.items() if value}}}


Ask = Callable[[int, bool], dict[str, Any]]
"""(index, facts only) to what the child process answered."""


def load_or_measure_gpu(
    root: Path,
    device: int,
    say: Say = lambda line: None,
    ask: Ask | None = None,
    known: GpuDevice | None = None,
    again: bool = False,
) -> GpuCeilings:
    """The ceilings of `cuda:<device>`, from `<root>/machines/gpu-<fingerprint>.json` or measured and kept there.

    What other stores of this user have kept, in the user's cache, counts as well. PyTorch is not imported here.
    It measures again figures that are older than 30 days, of another driver or PyTorch, or disturbed and some minutes
    old, and all where `again` asks for it. A store that cannot be written is no error.
    Raises SondaError where there is no such GPU, or where its memory is too full.
    """
    ask = ask or _ask_child
    here = known or read_nvml_device(device)
    if here is None:
        here = msgspec.convert(ask(device, True), GpuDevice)
    version = (package_version("torch") or "").partition("+")[0]
    files = ceilings_files(root, f"gpu-{here.fingerprint}", f"torch {version}")
    kept = [ceilings for path in files if (ceilings := _read_kept(path, here)) is not None]
    old = next((ceilings for ceilings in kept if not _needs_repeat(ceilings)), kept[0] if kept else None)
    if old is not None and not again and not _needs_repeat(old):
        own = msgspec.structs.replace(old.device, index=device)
        return msgspec.structs.replace(old, device=own)
    say(f"measuring what cuda:{device}, {here.name}, can do: about 8 s, once")
    answer = ask(device, False)
    if old is not None:
        answer = keep_better({name: value for name, value in msgspec.to_builtins(old).items() if value}, answer)
    try:
        ceilings = msgspec.convert(answer, GpuCeilings)
    except msgspec.ValidationError as error:
        raise SondaError(f"the ceilings of cuda:{device} could not be measured: {error}", QUIET) from None
    for line in ceilings.disturbed:
        say(f"{line}: percent of roof will be missing")
    for path in files:
        write_ceilings(path, ceilings)
    return ceilings


def measure_in_process(
    torch: Any, index: int, nvml: Any = None, now: Callable[[], float] = time.perf_counter
) -> GpuCeilings:
    """Measure `cuda:<index>` in this process. Raises SondaError where its memory is too full.

    `now` is the clock, in seconds, by which no group of kernels begins once the time for all is spent.
    """
    from sonda.probes.ceilings.gpu_kernels import GpuKernels, measure_groups, summarise_gpu

    device = read_device(torch, index, nvml)
    uuid = device_uuid(torch, index)
    busy = describe_other_load(uuid, nvml)
    torch.cuda.set_device(index)
    torch.manual_seed(0)
    maker = GpuKernels(torch, index, device.sms, device.l2_bytes)
    timed, missing = measure_groups(
        maker.groups(), maker.timer, sm_clock_reader(uuid, nvml), maker.release, torch.cuda.OutOfMemoryError, now
    )
    entry = summarise_gpu(timed, missing, device.l2_bytes)
    if not entry["flops"] or "dram_bandwidth" not in entry:
        reason = missing.get("dram_bandwidth") or next(iter(missing.values()), "nothing was measured")
        raise SondaError(f"the ceilings of cuda:{index} could not be measured: {reason}", QUIET)
    return msgspec.convert(
        {
            **entry,
            "measured": datetime.now(UTC).isoformat(timespec="seconds"),
            "library": device.library,
            "device": msgspec.to_builtins(device),
            "theory": msgspec.to_builtins(find_theory(device)),
            "disturbed": [busy] if busy else slow_cache(entry),
        },
        GpuCeilings,
    )


def _ask_child(index: int, facts: bool) -> dict[str, Any]:
    # -P: a file in the user's directory that is named like a module must not be imported.
    command = [sys.executable, "-P", "-m", "sonda.probes.ceilings.gpu", str(index), *(["facts"] if facts else [])]
    failed = f"cuda:{index} could not be measured"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SondaError(f"{failed}: {error}", QUIET) from None
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SondaError(f"{failed}: {last}", QUIET) from None
    if "cause" in answer:
        raise SondaError(answer["cause"], answer["remedy"])
    return answer


def _read_kept(path: Path, device: GpuDevice) -> GpuCeilings | None:
    """The kept ceilings where they are still valid; None where the file is damaged or of another device or version."""
    try:
        ceilings = msgspec.json.decode(path.read_bytes(), type=GpuCeilings)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    version = (package_version("torch") or "").partition("+")[0]
    same = ceilings.schema == SCHEMA and ceilings.device.fingerprint == device.fingerprint
    if not same or ceilings.device.driver != device.driver or ceilings.library != f"torch {version}":
        return None
    figures = [*ceilings.flops.values(), ceilings.dram_bandwidth]
    if not ceilings.flops or not all(math.isfinite(figure) and figure > 0 for figure in figures):
        return None
    return ceilings if is_newer(ceilings.measured, datetime.now(UTC) - timedelta(days=KEPT_DAYS)) else None


def _needs_repeat(ceilings: GpuCeilings) -> bool:
    return bool(ceilings.disturbed) and not is_newer(
        ceilings.measured, datetime.now(UTC) - timedelta(minutes=RETRY_MINUTES)
    )


def main(arguments: list[str]) -> int:
    """One JSON object on the last line of stdout: the ceilings, the facts, or `cause` and `remedy`."""
    index = int(arguments[0])
    try:
        import torch

        answer: Any = read_device(torch, index) if "facts" in arguments[1:] else measure_in_process(torch, index)
    except ImportError:
        answer = {"cause": "PyTorch is not installed", "remedy": "install it with: pip install torch"}
    except SondaError as error:
        answer = {"cause": error.cause, "remedy": error.remedy}
    except Exception as error:
        line = first_line(error)
        answer = {"cause": f"cuda:{index} could not be measured: {line}", "remedy": QUIET}
    sys.stdout.write("\n" + msgspec.json.encode(answer).decode() + "\n")
    return 1 if isinstance(answer, dict) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
