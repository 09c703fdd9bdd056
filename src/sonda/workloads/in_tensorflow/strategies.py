"""A built-in network under a strategy of TensorFlow's: replicas that share every batch, and what they exchange.

The step is what anybody would write around `Strategy.run`: every replica takes the gradient of its share, gradients are
summed where the strategy keeps its weights, and each copy of a weight is moved. A replica with n of N samples weighs
its loss by n/N, so that the sum is the gradient of the whole batch, however unequal shares are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sonda.workloads.description import Description
from sonda.workloads.in_tensorflow.learner import evaluated
from sonda.workloads.in_tensorflow.network import NetworkInTensorflow

COMMUNICATE = "communicate"
"""The scope of what replicas exchange; the others are those of `NetworkInTensorflow.learn`."""


class _Shared:
    """What every shared network has, for whoever drives it."""

    network: NetworkInTensorflow

    @property
    def weights(self) -> dict[str, Any]:
        return self.network.weights

    @property
    def dtype(self) -> str:
        return self.network.dtype

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by PyTorch's names and in its layout; all processes of a strategy must ask for them."""
        return self.network.arrays()


class Mirroring(_Shared):
    """A network whose step is one graph of all replicas of this process: mirrored, multiworker, centralstorage."""

    def __init__(self, strategy: Any, description: Description, seed: int, precision: str) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.network = NetworkInTensorflow(description, True, seed, precision, False)
        self._learn = tf.function(self._step)
        self._judge = tf.function(self._judged)

    def replicas(self) -> int:
        """Of this process."""
        return len(self.strategy.extended.worker_devices)

    def ready(self, parts: Sequence[tuple[Any, Any]], whole: int) -> Any:
        """Shares of a batch of `whole` samples as `learn` takes them: inputs and targets of each replica here."""
        given = iter(parts)
        mine = {place: next(given) for place in self._places()}
        spread = self.strategy.experimental_distribute_values_from_function
        inputs, targets = (
            spread(lambda context, row=row: mine[context.replica_id_in_sync_group][row]) for row in range(2)
        )
        return inputs, targets, tf.constant(whole, self.network.kind)

    def _places(self) -> Iterable[int]:
        """Numbers of this process' replicas among all."""
        resolver = self.strategy.cluster_resolver
        task = resolver.task_id if resolver is not None and resolver.task_type == "worker" else 0
        return range(task * self.replicas(), (task + 1) * self.replicas())

    def learn(self, batch: Any) -> Any:
        """One step of training; the losses of this process' replicas, of which `total` makes one."""
        return self.strategy.experimental_local_results(self._learn(*batch))

    def _step(self, inputs: Any, targets: Any, whole: Any) -> Any:
        return self.strategy.run(self._replica, args=(inputs, targets, whole))

    def _replica(self, inputs: Any, targets: Any, whole: Any) -> Any:
        loss, gradients = gradients_of(self.network, inputs, targets, whole)
        tf.distribute.get_replica_context().merge_call(self._together, args=tuple(gradients))
        return loss

    def _together(self, strategy: Any, *gradients: Any) -> None:
        """What replicas do as one: add their gradients up, then move every copy of the weights."""
        network = self.network
        weights = list(network.trained.values())
        with tf.name_scope(COMMUNICATE):
            summed = strategy.extended.batch_reduce_to(
                tf.distribute.ReduceOp.SUM, list(zip(gradients, weights, strict=True))
            )
        with tf.name_scope("optimizer"):
            for weight, slope in zip(weights, summed, strict=True):
                strategy.extended.update(weight, _moved, args=(slope, network.rate / network.scale), group=True)

    def judge(self, batch: Any) -> tuple[float, int]:
        """Sum of the losses of this process' shares, and right answers in them."""
        found = self._judge(*batch)
        losses, rights = (self.strategy.experimental_local_results(one) for one in found)
        return sum(float(loss) for loss in losses), sum(int(right) for right in rights)

    def _judged(self, inputs: Any, targets: Any, _whole: Any) -> Any:
        return self.strategy.run(self._judged_replica, args=(inputs, targets))

    def _judged_replica(self, inputs: Any, targets: Any) -> tuple[Any, Any]:
        loss, right = evaluated(self.network, inputs, targets)
        # A replica without a sample has no mean.
        return tf.math.multiply_no_nan(loss, tf.cast(tf.shape(targets)[0], loss.dtype)), right

    def settle(self) -> None:
        """Every replica gets the mean of what each had for itself; all processes of a strategy must ask for it."""
        for name, weight in self.network.weights.items():
            if name not in self.network.trained:
                weight.assign(weight.read_value())

    def total(self, losses: Any) -> float:
        """The loss of the whole batch; all processes of a strategy must ask for it."""
        return self._reduced("SUM", losses)

    def mean(self, value: float) -> float:
        """Of the numbers that all processes give, which all must."""
        return self._reduced("MEAN", [tf.constant(value, tf.float64)] * self.replicas())

    def _reduced(self, how: str, values: Sequence[Any]) -> float:
        known = iter(values)
        spread = self.strategy.experimental_distribute_values_from_function(lambda _context: next(known))
        return float(self.strategy.reduce(how, spread, axis=None))

    def exchange(self) -> bool:
        """Nothing: the profile of a step tells what it exchanges."""
        return False


def _moved(weight: Any, slope: Any, rate: float) -> Any:
    return weight.assign_sub(tf.constant(rate, slope.dtype) * slope)


def gradients_of(network: NetworkInTensorflow, inputs: Any, targets: Any, whole: Any) -> tuple[Any, list[Any]]:
    """A share's part of the loss of a batch of `whole` samples, and its gradients times the network's scale."""
    with tf.GradientTape() as tape:
        with tf.name_scope("forward"):
            scores = network.infer(inputs)
        with tf.name_scope("loss"):
            part = tf.cast(tf.shape(targets)[0], network.kind) / whole
            loss = network.loss(scores, targets)
            loss = loss * tf.cast(part, loss.dtype)
            scaled = loss * network.scale
    return loss, tape.gradient(scaled, list(network.trained.values()))


class Serving(_Shared):
    """A network whose weights are on parameter servers; workers take shares, each moving the weights by itself.

    Workers do not wait for each other within a step: one may read weights that another has moved. A step ends when all
    shares of its batch are done, so that no gradient is older than a step.
    """

    def __init__(self, strategy: Any, description: Description, seed: int, precision: str, workers: int) -> None:
        self.strategy, self.workers = strategy, workers
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            self.network = NetworkInTensorflow(description, True, seed, precision, False)
        self._learn = tf.function(self._step)
        self._exchange = tf.function(self._exchanged)
        self._judge = tf.function(lambda inputs, targets: evaluated(self.network, inputs, targets))

    def replicas(self) -> int:
        return self.workers

    def ready(self, parts: Sequence[tuple[Any, Any]], whole: int) -> Any:
        count = tf.constant(whole, self.network.kind)
        return [(*part, count) for part in parts]

    def learn(self, batch: Any) -> Any:
        """Shares go with the call to whichever worker is free."""
        waiting = [self.coordinator.schedule(self._learn, args=one) for one in batch]
        self.coordinator.join()
        return waiting

    def exchange(self) -> bool:
        """What a step sends and nothing else: every worker reads all weights and writes a gradient of zeros."""
        for _ in range(self.workers):
            self.coordinator.schedule(self._exchange)
        self.coordinator.join()
        return True

    def _step(self, inputs: Any, targets: Any, whole: Any) -> Any:
        return self.strategy.run(self._worker, args=(inputs, targets, whole))

    def _worker(self, inputs: Any, targets: Any, whole: Any) -> Any:
        loss, gradients = gradients_of(self.network, inputs, targets, whole)
        with tf.name_scope("optimizer"):
            self.network.update(list(self.network.trained.values()), gradients)
        return loss

    def _exchanged(self) -> Any:
        read = tf.constant(0.0, tf.float64)
        for weight in self.network.trained.values():
            values = weight.read_value()
            # The sum keeps a graph from leaving the read out; weights minus zeros are the same to the bit.
            read += tf.cast(tf.reduce_sum(values), tf.float64)
            weight.assign_sub(tf.zeros_like(values))
        return read

    def judge(self, batch: Any) -> tuple[float, int]:
        """Sum of the losses of all shares, and right answers in them; by the coordinator, which reads the weights."""
        loss, right = 0.0, 0
        for inputs, targets, _ in batch:
            if len(targets):
                mean, hits = self._judge(inputs, targets)
                loss, right = loss + float(mean) * len(targets), right + int(hits)
        return loss, right

    def settle(self) -> None:
        """Nothing: there is one of each weight."""

    def total(self, losses: Any) -> float:
        """The loss of the whole batch, of weights as each worker met them."""
        return float(sum(float(one.fetch()) for one in losses))

    def mean(self, value: float) -> float:
        """The number: there is one coordinator."""
        return value


def cut(inputs: np.ndarray | Any, targets: Any, shares: Sequence[int], first: int = 0) -> list[tuple[Any, Any]]:
    """The rows of a batch by shares, beginning with row `first`."""
    found, at = [], first
    for share in shares:
        found.append((inputs[at : at + share], targets[at : at + share]))
        at += share
    return found
