"""Energy of the epochs, steps and phases of a whole training, of its devices in use and of all; figures by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from energy_summary_cases import MS, counter, found_in, keep, phases_of, readings, rising, training
from sonda.analysis.energy.summary import Window
from sonda.analysis.summary import MODEL, READINGS
from sonda.record.spans import Spans, Words
from sonda.report.views.energy import windows_table

WALKS = (("train", 0, 1000, 200.0), ("validate", 0, 500, 50.0), ("train", 1, 1000, 200.0), ("validate", 1, 500, 50.0))
"""Part, epoch, ms and W of walks, one after the other, each of two steps."""


def walked(first: int = 0) -> tuple[Spans, list[float]]:
    """These walks and a test of 200 ms at 50 W without steps, 3.2 s in all; and the W of every 100 ms."""
    rows = [("run", "run", -1, 0, 3200, 0)]
    watts: list[float] = []
    for part, epoch, lasts, power in (*WALKS, ("test", 1, 200, 50.0)):
        begin, at = 100 * len(watts), len(rows)
        rows += [("part", part, 0, begin, lasts, 0), ("epoch", part, at, begin, lasts, first + epoch)]
        if part != "test":
            rows += [("step", "", at + 1, begin + half, lasts // 2, 0) for half in (0, lasts // 2)]
        watts += [power] * (lasts // 100)
    kind, name, parent, start, duration, call = zip(*rows, strict=True)
    numbers = {"start": np.array(start) * MS, "duration": np.array(duration) * MS}
    return Spans(
        {**numbers, "parent": np.array(parent), "call": np.array(call)},
        {"kind": Words.of(kind), "name": Words.of(name), "pass": Words.of(["timed"] * len(rows))},
    ), watts


def windows_of(tmp_path: Path, spans: Spans, watts: list[float]) -> dict[str, Window]:
    samples = rising("package-0 energy", "cpu", watts, step=100 * MS, start=0)
    energy = {"counters": [counter("package-0 energy")], "interval": 0.1, "readings": len(samples)}
    return {f"{one.kind} {one.name}": one for one in found_in(keep(tmp_path, energy, samples, spans=spans)).windows}


def test_steps_of_a_part_do_not_hold_the_walks_of_another_in_between(tmp_path: Path) -> None:
    found = windows_of(tmp_path, *walked())
    train, validate = found["step train"], found["step validate"]
    # Four steps of 0.5 s at 200 W, four of 0.25 s at 50 W.
    assert (train.count, train.time.value) == (4, 500 * MS)
    assert train.total.value == pytest.approx(100)
    assert (validate.count, validate.time.value) == (4, 250 * MS)
    assert validate.total.value == pytest.approx(12.5)
    assert validate.total.bounds == READINGS


def test_phases_solved_from_a_power_model_stay_estimates_with_its_uncertainty(tmp_path: Path) -> None:
    spans, moments, spent = training({"forward": 12 * MS, "backward": 25 * MS}, 600)
    read = readings(moments, spent, 0.05067)
    energy = {"counters": [counter("package-0 energy", update=0.001)], "interval": 0.05, "readings": 3}
    sensor = phases_of(keep(tmp_path / "sensor", energy, read, spans=spans))
    model = counter("package-0 energy", update=0.001, source="estimated", uncertain=0.4)
    guessed = [msgspec.structs.replace(one, source="estimated") for one in read]
    model_run = keep(tmp_path / "model", {**energy, "counters": [model]}, guessed, spans=spans)
    for name, phase in phases_of(model_run).items():
        if " " not in name:
            continue
        exact, guess = sensor[name].total, phase.total
        assert (exact.source, guess.source) == ("derived", "estimated")
        assert (exact.bounds, guess.bounds) == ("", MODEL)
        assert guess.value == pytest.approx(exact.value)
        # What the fit leaves open, and 40 % of the model either way.
        assert (guess.low, guess.high) == pytest.approx((0.6 * exact.low, 1.4 * exact.high))


def test_a_package_that_could_not_be_read_once_is_still_in_the_energy_of_phases(tmp_path: Path) -> None:
    """Two packages that spend the same are worth twice one, with a reading less as well."""
    spans, moments, spent = training({"forward": 12 * MS, "backward": 25 * MS}, 600)
    read = readings(moments, spent, 0.05067)
    other = [msgspec.structs.replace(one, sensor="package-1 energy") for at, one in enumerate(read) if at != 40]
    counters = [counter(f"package-{number} energy", update=0.001) for number in (0, 1)]
    energy = {"counters": counters, "interval": 0.05, "readings": 3}
    both = phases_of(keep(tmp_path / "two", energy, [*read, *other], spans=spans))
    alone = phases_of(keep(tmp_path / "one", {**energy, "counters": counters[:1]}, read, spans=spans))
    for name in ("train forward", "train backward"):
        assert both[name].total.value == pytest.approx(2 * alone[name].total.value, rel=0.02)


@pytest.mark.parametrize(("first", "numbers"), [(0, (1, 2)), (3, (4, 5))])
def test_epochs_have_the_numbers_of_the_training_also_of_one_that_was_resumed(
    tmp_path: Path, first: int, numbers: tuple[int, int]
) -> None:
    found = windows_of(tmp_path, *walked(first))
    one, two = numbers
    epochs = {name.removeprefix("epoch "): window for name, window in found.items() if window.kind == "epoch"}
    assert list(epochs) == [f"train {one}", f"validate {one}", f"train {two}", f"validate {two}", "test"]
    assert [window.total.value for window in epochs.values()] == pytest.approx([200, 25, 200, 25, 10])


def test_one_sum_is_shown_where_every_device_was_in_use(tmp_path: Path) -> None:
    found = windows_of(tmp_path, *walked())
    heads = [column.name for column in windows_table(list(found.values())).columns]
    assert heads == ["window", "times", "each, s", "energy, J"]
