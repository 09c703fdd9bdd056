"""Constructed trainings: walks of known length, accuracy and energy, written down by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from builders import RunBuilder
from sonda.record.run import Run
from sonda.record.samples import Sample

S = 1_000_000_000
"""ns in a second."""
BOARD = "GPU boards with their memory"


def trained(
    train: Sequence[float],
    validate: Sequence[float] = (),
    test: float | None = None,
    accuracies: Sequence[float] = (),
    final: float | None = None,
    ranks: int = 1,
    begin: float = 10.0,
    watts: dict[str, float] | None = None,
    used: Sequence[str] = ("cpu",),
    source: str = "measured",
    pause: float = 0.0,
    **info: Any,
) -> Run:
    """A run whose walks take these seconds, one after the other from `begin` on, with a pause after every epoch.

    `watts` are even powers by device, read every second from the run's beginning on; `used` are devices that trained.
    """
    builder = RunBuilder()
    clock = begin

    def walk(part: str, number: int, seconds: float, **metrics: float) -> None:
        nonlocal clock
        row = builder.add("part", part, builder.root, clock * S, seconds * S)
        found = {f"{name}:measured": value for name, value in metrics.items()}
        builder.add("epoch", part, row, clock * S, seconds * S, call=number, metrics=found)
        clock += seconds

    for number, seconds in enumerate(train):
        walk("train", number, seconds, loss=2.0 / (number + 1))
        if validate:
            walk("validate", number, validate[number], loss=1.0, accuracy=accuracies[number])
        clock += pause
    if test is not None:
        walk("test", len(train), test, loss=0.5, **({} if final is None else {"accuracy": final}))
    builder.rows[0]["duration"] = int(clock * S)
    builder.rows[0]["metrics"] = {"loading:measured": 3.0 * S, "initialisation:measured": 2.0 * S}
    target: dict[str, Any] = {"spec": "cpu", "device": "cpu", "threads": 1}
    if ranks > 1:
        target |= {"mode": "ddp", "ranks": [{"rank": rank, "device": "cpu"} for rank in range(ranks)]}
    samples = []
    if watts is not None:
        target["metered"] = metered(watts, used, source)
        for device, power in watts.items():
            samples += [
                Sample(at * S, "energy", power * at, "J", source, device=device) for at in range(int(clock) + 3)
            ]
    run = builder.run(**{"target": {**target, **info.pop("target", {})}, **info})
    run.samples = samples
    return run


def metered(watts: dict[str, float], used: Sequence[str], source: str) -> dict[str, Any]:
    """What a run's target says of counters that are exact at every reading."""
    counters = [
        {"sensor": "energy", "device": device, "covers": "CPU packages" if device == "cpu" else BOARD, "total": True,
         "state": "ok", "source": source, "update": 0.0, "highest": 1000.0,
         "uncertain": 0.4 if source == "estimated" else 0.0}
        for device in watts
    ]  # fmt: skip
    return {"counters": counters, "interval": 1.0, "readings": 9, "used": list(used), "missing": []}
