"""Helpers of `test_energy_summary.py` that other tests use too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from plain_runs import run_info
from sonda.analysis.energy.run import summarise_energy
from sonda.analysis.energy.summary import EnergySummary
from sonda.record.run import Run, now, write_run
from sonda.record.samples import Sample
from sonda.record.spans import Spans, Words

S = 1_000_000_000


MS = 1_000_000


BOARD = "GPU boards with their memory"


def counter(sensor: str, device: str = "cpu", **more: Any) -> dict[str, Any]:
    covers = "CPU packages" if sensor.startswith("package") else BOARD
    about = {"sensor": sensor, "device": device, "covers": covers, "total": True, "state": "ok", "highest": 480.0}
    return {**about, "update": 0.0, **more}


def rising(sensor: str, device: str, watts: list[float], step: int = S, start: int = -2 * S) -> list[Sample]:
    """A counter that is read every second from 2 s before the program on; `watts` of each second."""
    energy = np.concatenate(([0.0], np.cumsum(watts))) * step / S
    return [Sample(start + at * step, sensor, float(value), "J", "measured", device=device)
            for at, value in enumerate(energy)]  # fmt: skip


def keep(
    root: Path, energy: dict[str, Any], samples: list[Sample], seconds: float = 4.0, spans: Spans | None = None
) -> Run:
    whole = spans or Spans(
        {"start": np.array([0]), "duration": np.array([int(seconds * S)])}, {"kind": Words.of(["run"])}
    )
    info = run_info(
        id="ab12", created=now(), status="complete", workload={"name": "train.py", "command": ["python", "train.py"]},
        target={"device": "cpu", "metered": energy, "outside": {"counts": {}}, "alone": "energy"},
    )  # fmt: skip
    return write_run(root, info, whole, samples)


def found_in(run: Run) -> EnergySummary:
    found = summarise_energy(run)
    assert found is not None
    return found


WATTS = {"forward": 150.0, "backward": 250.0, "optimizer": 80.0}


def training(lengths: dict[str, int], steps: int) -> tuple[Spans, np.ndarray, np.ndarray]:
    """A training run of phases one after the other, and the energy spent at every boundary between them."""
    rows: list[tuple[str, str, str, int, int, int]] = [
        ("run", "run", "timed", -1, 0, 0),
        ("part", "train", "timed", 0, 0, 0),
    ]
    jitter = np.random.default_rng(7)
    time, energy, moments, spent = 0, 0.0, [0], [0.0]
    for number in range(steps):
        passes, step, begin = "warmup" if number == 0 else "timed", len(rows), time
        rows.append(("step", "", passes, 1, begin, 0))
        for name, length in lengths.items():
            took = int(length * (1 + 0.05 * jitter.standard_normal()))
            rows.append(("phase", name, passes, step, time, took))
            time, energy = time + took, energy + WATTS[name] * took / S
            moments.append(time)
            spent.append(energy)
        rows[step] = ("step", "", passes, 1, begin, time - begin)
    for at in (0, 1):
        rows[at] = (*rows[at][:5], time)
    kind, name, passes_, parent, start, duration = zip(*rows, strict=True)
    spans = Spans(
        {"start": np.array(start), "duration": np.array(duration), "parent": np.array(parent)},
        {"kind": Words.of(kind), "name": Words.of(name), "pass": Words.of(passes_)},
    )
    return spans, np.array(moments), np.array(spent)


def readings(moments: np.ndarray, spent: np.ndarray, every: float, update: float = 0.001) -> list[Sample]:
    times = np.append(np.arange(0, moments[-1], every * S), moments[-1] + 2 * update * S)
    shown = np.interp(np.floor(times / (update * S)) * update * S, moments, spent)
    return [Sample(int(time), "package-0 energy", float(value), "J", "measured")
            for time, value in zip(times, shown, strict=True)]  # fmt: skip


def phases_of(run: Run) -> dict[str, Any]:
    return {one.name: one for one in found_in(run).windows}
