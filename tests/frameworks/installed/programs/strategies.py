"""Trains small networks on one device and under strategies with two replicas, and leaves their weights as files.

    python strategies.py FOLDER

`one-NAME.npz`, `mirrored-NAME.npz`, `centralstorage-NAME.npz`: weights after three steps in float64 on the same
batches, shared 5 + 3. `norms.npz`: the same network with batch norms, each half of a batch by a network of its own and
gradients added up by hand. `events/`: what is seen of a driven training.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import numpy as np
import tensorflow as tf

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.settings import Driving
from sonda.frameworks.tensorflow.drive.strategies import drive_strategy
from sonda.targets.profiles.tensorflow_events import read_profile_events
from sonda.workloads.catalogue import describe
from sonda.workloads.in_tensorflow.input_pipeline import make_batches
from sonda.workloads.in_tensorflow.network import build
from sonda.workloads.in_tensorflow.strategies import MirroredNetwork, split_batch
from sonda.workloads.networks.cost import network_costs

FOLDER = Path(sys.argv[1])
BATCH, STEPS, SEED = 8, 3, 5
UNEQUAL, HALVES = (5, 3), (4, 4)
NETWORKS = {
    "mlp": describe("mlp", {"layers": "12-8-3", "batch": str(BATCH)}),
    "cnn": describe("cnn", {"batch": str(BATCH), "image": "18x18"}),
    "resnet18": describe("resnet18", {"batch": str(BATCH), "image": "32x32", "classes": "5"}),
}
DEVICES = ["/CPU:0", "/CPU:1"]


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    # Two of them in one process would take their exchanges for each other's.
    mirrored = tf.distribute.MirroredStrategy(DEVICES)
    for name in ("mlp", "cnn"):
        keep(f"one-{name}", on_one(name))
        keep(f"mirrored-{name}", shared(name, mirrored, UNEQUAL))
        central = tf.distribute.experimental.CentralStorageStrategy(DEVICES, parameter_device="/CPU:0")
        keep(f"centralstorage-{name}", shared(name, central, UNEQUAL))
    keep("mirrored-resnet18", shared("resnet18", mirrored, HALVES, 1))
    keep("norms", by_hand("resnet18"))
    drive(mirrored)


def keep(name: str, weights: dict[str, np.ndarray]) -> None:
    np.savez(FOLDER / f"{name}.npz", **weights)


def rows(network: Any) -> Iterator[tuple[Any, Any]]:
    return make_batches(network, SEED)


def on_one(name: str) -> dict[str, np.ndarray]:
    network = build(NETWORKS[name], True, SEED, "float64")
    step, row = network.function(), rows(network)
    for _ in range(STEPS):
        step(*next(row))
    return network.arrays()


def shared(name: str, strategy: Any, shares: tuple[int, ...], steps: int = STEPS) -> dict[str, np.ndarray]:
    task = MirroredNetwork(strategy, NETWORKS[name], SEED, "float64")
    row = rows(task.network)
    for _ in range(steps):
        task.learn(task.ready(split_batch(*next(row), shares), BATCH))
    return task.arrays()


def by_hand(name: str) -> dict[str, np.ndarray]:
    """One step: two plain networks with half of the batch each; means of gradients and of statistics."""
    halves = [build(NETWORKS[name], True, SEED, "float64") for _ in HALVES]
    whole, gradients = next(rows(halves[0])), []
    for network, (inputs, targets) in zip(halves, split_batch(*whole, HALVES), strict=True):
        with tf.GradientTape() as tape:
            loss = network.loss(network.infer(inputs), targets)
        gradients.append(dict(zip(network.trained, tape.gradient(loss, list(network.trained.values())), strict=True)))
    for weight_name, weight in halves[0].trained.items():
        weight.assign_sub(halves[0].rate * (gradients[0][weight_name] + gradients[1][weight_name]) / 2)
    arrays = [network.arrays() for network in halves]
    trained = halves[0].trained
    return {key: arrays[0][key] if key in trained else (arrays[0][key] + arrays[1][key]) / 2 for key in arrays[0]}


def drive(strategy: Any) -> None:
    """A training that is observed, into files."""
    (FOLDER / "events").mkdir()
    recorder = Recorder(str(FOLDER / "events"))
    task = MirroredNetwork(strategy, NETWORKS["cnn"], SEED, "float64")
    observer = AnnouncedObserver(recorder, None, task.network.root)
    observer.open({}, 1)

    def row() -> Iterator[Any]:
        for inputs, targets in rows(task.network):
            yield split_batch(inputs, targets, HALVES)

    costs = network_costs(NETWORKS["cnn"], True, 8)
    how = Driving(True, steps=4, warmup=2, seconds=1.0)
    drive_strategy(task, row, BATCH, costs, task.network.classes, observer, tf, how, read_profile_events)
    observer.finish(1)
    recorder.close()


if __name__ == "__main__":
    main()
