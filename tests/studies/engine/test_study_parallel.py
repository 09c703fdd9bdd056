"""The published studies of training: printed figures agree with each other, scales run the same variants on less."""

from __future__ import annotations

from typing import Any

import pytest

from sonda.frameworks.torch.parallel.outlook import choose_outlook, predict_outlook
from sonda.frameworks.torch.parallel.shares import Line, equal_shares
from sonda.studies.engine.plan import ENERGY, configurations, plan_points
from sonda.studies.file.loader import load_study
from sonda.studies.file.study import Study
from sonda.targets.target import parse_target


@pytest.fixture(scope="module")
def parallel() -> Study:
    return load_study("resnet34-parallel")


def printed(study: Study, variant: str) -> dict[str, Any]:
    return {key: value for row in study.published if row.where == {"variant": variant}
            for key, value in row.figures.items()}  # fmt: skip


def test_printed_speed_ups_and_efficiencies_agree(parallel: Study) -> None:
    two = printed(parallel, "two devices")
    assert two["scaling_percent"] == pytest.approx(100 * two["speedup"] / 2)
    assert two["training_scaling_percent"] == pytest.approx(100 * two["training_speedup"] / 2)


@pytest.mark.parametrize(
    ("variant", "ratio"), [("processor", 11.96), ("one device", 1.0), ("one device, DDP", 1.01), ("two devices", 0.57)]
)
def test_printed_energies_and_edps_mean_the_same_time_with_and_without_idle(
    parallel: Study, variant: str, ratio: float
) -> None:
    """EDP is time x energy: what is left of it without the energy is the time against one GPU."""
    one, other = printed(parallel, "one device"), printed(parallel, variant)
    for idle in ("", "_with_idle"):
        energy = other[f"energy{idle}_J"] / one[f"energy{idle}_J"]
        assert other[f"relative_edp{idle}"] / energy == pytest.approx(ratio, rel=0.015)  # three printed digits


def test_the_plan_is_that_of_the_publication(parallel: Study) -> None:
    by_variant: dict[str, str] = {}
    for point in plan_points(parallel):
        name = str(point.configuration["variant"])
        by_variant[name] = by_variant.get(name, "") + ("E" if point.measures == ENERGY else "T")
    assert by_variant["processor"] == "ET"
    assert {by_variant[name] for name in ("one device", "one device, DDP", "two devices")} == {"ETTTTTETTTTTE"}
    assert by_variant["two devices, half batch"].count("T") == 5
    assert "E" in by_variant["two devices, half batch"], "its energy was left open there"


@pytest.mark.parametrize("name", ["resnet34-parallel", "hybrid", "resnet34-batch-resolution"])
def test_the_small_scale_needs_two_processors_and_no_gpu(name: str) -> None:
    study = load_study(name)
    for configuration in configurations(study.at_scale("small")):
        devices = str(configuration["on"]).partition("@")[0].rpartition("=")[2].split("+")
        assert all(device.startswith("cpu/") for device in devices)
        assert sum(float(device.removeprefix("cpu/")) for device in devices) <= 2
        assert int(configuration["epochs"]) <= 5
    assert bool(study.energy) == bool(study.at_scale("small").energy), "the same tables"
    whole = {one.get("variant") for one in configurations(study)}
    assert {one.get("variant") for one in configurations(study.at_scale("small"))} <= whole


def test_devices_that_share_a_batch_keep_it(parallel: Study) -> None:
    """A batch of 128 for each of two is one of 256; half the batch, or sharing one, is 128 as on one device."""
    batches = {}
    for one in configurations(parallel):
        on = str(one["on"])
        devices = on.partition("@")[0].count("+") + 1
        batches[str(one["variant"])] = int(one["batch"]) * (devices if "batch=each" in on else 1)
    assert batches["two devices"] == 256
    assert batches["one device"] == batches["two devices, half batch"] == batches["two devices, all shared"] == 128


def test_the_small_hybrid_has_a_fast_and_a_slow_device_and_pairs_of_them() -> None:
    by_variant = {str(one["variant"]): one for one in configurations(load_study("hybrid").at_scale("small"))}
    fast, slow = (parse_target(str(by_variant[f"{which} device"]["on"])).devices for which in ("fast", "slow"))
    pairs = {name: one for name, one in by_variant.items() if name not in ("fast device", "slow device")}
    assert len(pairs) == 6
    for one in pairs.values():
        assert parse_target(str(one["on"])).devices == fast + slow
        assert one["batch"] == by_variant["fast device"]["batch"]
    # F = 4 by the quota, so of 32 samples the slow one is to have a fifth: 6.4.
    assert (fast[0].share, slow[0].share) == (None, 0.25)
    assert "shares=26:6" in str(pairs["with weights"]["on"]) and "shares=26:6" in str(pairs["without weights"]["on"])


def test_shares_by_speed_beat_equal_shares_as_reckoned_by_hand() -> None:
    """A step of n samples takes 100 + 20 n ms on the fast device and four times that on the slow one.

    Alone the fast one takes 100 + 20 * 32 = 740 ms, the slow one 2,960: at most 1 + 1/4 times as fast together. Equal
    shares: 4 * (100 + 20 * 16) = 1,680 ms. By speed: 28 + 4 take max(660, 720), 29 + 3 max(680, 640), 30 + 2 max(700,
    560): 680 ms, which is 2.47 times as fast as equal shares and 1.09 times as fast as the fast device alone.
    """
    lines = [Line(0.1, 0.02), Line(0.4, 0.08)]
    equal = predict_outlook(lines, 32, 0.0, shares=equal_shares(2, 32))
    by_speed = predict_outlook(lines, 32, 0.0)
    assert by_speed.bound == pytest.approx(1.25)
    assert (equal.shares, equal.step) == ((16, 16), pytest.approx(1.68))
    assert (by_speed.shares, by_speed.step) == ((29, 3), pytest.approx(0.68))
    # 80 ms of communication, and it does not pay any more: auto takes the fast one alone.
    assert choose_outlook(lines, 32, 0.08).ranks == (0,) and choose_outlook(lines, 32, 0.05).ranks == (0, 1)
