"""An events file as a collector writes it: a training of known length, with invented times.

Every step fetches a batch, clears gradients, runs a model of one root and `layers - 1` modules inside it, a loss, the
backward of every layer, and the optimizer; each phase carries what the operating system counted.
"""

from __future__ import annotations

import random
from pathlib import Path

from sonda.frameworks.collector.recorder import Recorder


def write_events(directory: Path, steps: int, layers: int) -> tuple[int, int, int]:
    """Write `2 * layers` layer spans per step; returns begin and end of the run and the sum of all layers' ns."""
    chance = random.Random(0)
    recorder = Recorder(str(directory))
    define = recorder.define
    phase = {name: define(kind="phase", name=name) for name in ("forward", "loss", "backward", "optimizer")}
    fetch = define(kind="phase", name="data")
    update = define(kind="phase", name="optimizer", step=True)
    loader, iterator, optimizer, made = (
        define(kind="value", quantity=name, source="counted") for name in ("loader", "iterator", "optimizer", "made")
    )
    counted = [define(kind="value", quantity=quantity, source=source) for quantity, source in (
        ("page_faults", "counted"), ("context_switches", "counted"), ("cpu_time", "counted"),
        ("resident_memory", "measured"))]  # fmt: skip
    shape = define(kind="value", quantity="shape", source="counted")
    training = define(kind="value", quantity="training", source="counted")
    paths = ["", *(f"stage{number // 10}.block{number % 10}" for number in range(1, layers))]
    forward = [
        define(kind="layer", name="Block", path=path, root=1, root_name="Net", direction="forward") for path in paths
    ]
    backward = [
        define(kind="layer", name="Block", path=path, root=1, root_name="Net", direction="backward") for path in paths
    ]
    recorder.state(process=1, rank=0, versions={"torch": "invented"}, threads=1)
    stream = recorder.stream()
    push = stream.push
    begin = clock = 10**15
    total = 0

    def end(code: int) -> None:
        push(
            (counted[0], chance.randrange(9), counted[1], 0, counted[2], chance.randrange(10**7), counted[3], 2 * 10**8)
        )
        push((code + 1, clock))
        recorder.flush_if_due(stream)

    for _ in range(steps):
        push((fetch, clock, loader, 0, iterator, 0))
        clock += chance.randrange(1000, 50_000)
        end(fetch)
        push((phase["optimizer"], clock))
        clock += chance.randrange(1000, 50_000)
        end(phase["optimizer"])
        push((phase["forward"], clock, forward[0], clock))
        opened = clock
        for code in forward[1:]:
            length = chance.randrange(1000, 100_000)
            push((code, clock, code + 1, clock + length))
            clock += length + 700
            total += length
        push((forward[0] + 1, clock, shape, 1, training, 1))
        total += clock - opened
        end(phase["forward"])
        push((phase["loss"], clock))
        clock += 9_000
        end(phase["loss"])
        push((phase["backward"], clock))
        for code in reversed(backward):
            length = chance.randrange(1000, 200_000)
            push((code, clock, code + 1, clock + length))
            clock += length
            total += length
        end(phase["backward"])
        push((update, clock, optimizer, 0, made, 0))
        clock += 80_000
        end(update)
    recorder.state(threads=1, span_ns=1000.0, phase_ns=5000.0, notes=[], finished=True)
    recorder.close()
    return begin, clock, total
