"""A built-in network under a strategy of TensorFlow's: replicas that share every batch, and what they exchange.

A step is what a program would write around `Strategy.run`. Every replica computes the gradients of its share, gradients
are summed where the strategy keeps its weights, and each copy of a weight is updated. A replica with n of N samples
weighs its loss by n/N, so that the sum is the gradient of the whole batch, however unequal the shares are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sonda.workloads.description import Description
from sonda.workloads.in_tensorflow.learner import evaluate
from sonda.workloads.in_tensorflow.network import NetworkInTensorflow

COMMUNICATE = "communicate"
"""The name scope of what replicas exchange; `NetworkInTensorflow.learn` has the other scopes."""


class _StrategyNetwork:
    """What the networks of all strategies have."""

    network: NetworkInTensorflow

    @property
    def weights(self) -> dict[str, Any]:
        return self.network.weights

    @property
    def dtype(self) -> str:
        return self.network.dtype

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by PyTorch's names and in its layout. All processes of a strategy must call it."""
        return self.network.arrays()


class MirroredNetwork(_StrategyNetwork):
    """A network whose step is one graph of all replicas of this process: mirrored, multiworker, centralstorage."""

    def __init__(self, strategy: Any, description: Description, seed: int, precision: str) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.network = NetworkInTensorflow(description, True, seed, precision, False)
        self._learn = tf.function(self._step)
        self._judge = tf.function(self._evaluate_replicas)

    def replicas(self) -> int:
        """The number of replicas of this process."""
        return len(self.strategy.extended.worker_devices)

    def ready(self, parts: Sequence[tuple[Any, Any]], whole: int) -> Any:
        """Shares of a batch of `whole` samples as `learn` takes them; `parts`: inputs and targets of each replica."""
        remaining = iter(parts)
        own_parts = {number: next(remaining) for number in self._replica_numbers()}
        spread = self.strategy.experimental_distribute_values_from_function
        inputs, targets = (
            spread(lambda context, column=column: own_parts[context.replica_id_in_sync_group][column])
            for column in range(2)
        )
        return inputs, targets, tf.constant(whole, self.network.kind)

    def _replica_numbers(self) -> Iterable[int]:
        """The numbers of this process' replicas among all replicas."""
        resolver = self.strategy.cluster_resolver
        task = resolver.task_id if resolver is not None and resolver.task_type == "worker" else 0
        return range(task * self.replicas(), (task + 1) * self.replicas())

    def learn(self, batch: Any) -> Any:
        """Run one step of training; returns the losses of this process' replicas, which `total` adds up."""
        return self.strategy.experimental_local_results(self._learn(*batch))

    def _step(self, inputs: Any, targets: Any, whole: Any) -> Any:
        return self.strategy.run(self._replica, args=(inputs, targets, whole))

    def _replica(self, inputs: Any, targets: Any, whole: Any) -> Any:
        loss, gradients = share_gradients(self.network, inputs, targets, whole)
        tf.distribute.get_replica_context().merge_call(self._exchange_and_update, args=tuple(gradients))
        return loss

    def _exchange_and_update(self, strategy: Any, *gradients: Any) -> None:
        """Sum the gradients of all replicas, then update every copy of the weights."""
        network = self.network
        weights = list(network.trained.values())
        with tf.name_scope(COMMUNICATE):
            summed = strategy.extended.batch_reduce_to(
                tf.distribute.ReduceOp.SUM, list(zip(gradients, weights, strict=True))
            )
        with tf.name_scope("optimizer"):
            for weight, gradient in zip(weights, summed, strict=True):
                strategy.extended.update(
                    weight, _move_weight, args=(gradient, network.rate / network.scale), group=True
                )

    def judge(self, batch: Any) -> tuple[float, int]:
        """Sum of the losses of this process' shares, and right answers in them."""
        results = self._judge(*batch)
        losses, rights = (self.strategy.experimental_local_results(result) for result in results)
        return sum(float(loss) for loss in losses), sum(int(right) for right in rights)

    def _evaluate_replicas(self, inputs: Any, targets: Any, _whole: Any) -> Any:
        return self.strategy.run(self._evaluate_replica, args=(inputs, targets))

    def _evaluate_replica(self, inputs: Any, targets: Any) -> tuple[Any, Any]:
        loss, right = evaluate(self.network, inputs, targets)
        # A replica without a sample has no mean.
        return tf.math.multiply_no_nan(loss, tf.cast(tf.shape(targets)[0], loss.dtype)), right

    def settle(self) -> None:
        """Give every replica the mean of the statistics that each has for itself. All processes must call it."""
        for name, weight in self.network.weights.items():
            if name not in self.network.trained:
                weight.assign(weight.read_value())

    def total(self, losses: Any) -> float:
        """The loss of the whole batch. All processes of a strategy must call it."""
        return self._reduce("SUM", losses)

    def mean(self, value: float) -> float:
        """The mean of the numbers that all processes give. All processes must call it."""
        return self._reduce("MEAN", [tf.constant(value, tf.float64)] * self.replicas())

    def _reduce(self, how: str, values: Sequence[Any]) -> float:
        remaining = iter(values)
        spread = self.strategy.experimental_distribute_values_from_function(lambda _context: next(remaining))
        return float(self.strategy.reduce(how, spread, axis=None))

    def exchange(self) -> bool:
        """False, without exchanging anything: the profile of a step shows what it exchanges."""
        return False


def _move_weight(weight: Any, gradient: Any, rate: float) -> Any:
    return weight.assign_sub(tf.constant(rate, gradient.dtype) * gradient)


def share_gradients(network: NetworkInTensorflow, inputs: Any, targets: Any, whole: Any) -> tuple[Any, list[Any]]:
    """A share's part of the loss of a batch of `whole` samples, and the gradients of that part times the loss scale."""
    with tf.GradientTape() as tape:
        with tf.name_scope("forward"):
            scores = network.infer(inputs)
        with tf.name_scope("loss"):
            part = tf.cast(tf.shape(targets)[0], network.kind) / whole
            loss = network.loss(scores, targets)
            loss = loss * tf.cast(part, loss.dtype)
            scaled = loss * network.scale
    return loss, tape.gradient(scaled, list(network.trained.values()))


class ParameterServerNetwork(_StrategyNetwork):
    """A network whose weights are on parameter servers. Workers take shares, and each updates the weights by itself.

    Workers do not wait for each other within a step: one may read weights that another has just updated. A step ends
    when all shares of its batch are done, so that no gradient is older than a step.
    """

    def __init__(self, strategy: Any, description: Description, seed: int, precision: str, workers: int) -> None:
        self.strategy, self.workers = strategy, workers
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            self.network = NetworkInTensorflow(description, True, seed, precision, False)
        self._learn = tf.function(self._step)
        self._exchange = tf.function(self._exchange_step)
        self._judge = tf.function(lambda inputs, targets: evaluate(self.network, inputs, targets))

    def replicas(self) -> int:
        return self.workers

    def ready(self, parts: Sequence[tuple[Any, Any]], whole: int) -> Any:
        count = tf.constant(whole, self.network.kind)
        return [(*part, count) for part in parts]

    def learn(self, batch: Any) -> Any:
        """Run one step of training: each share goes to whichever worker is free."""
        results = [self.coordinator.schedule(self._learn, args=share) for share in batch]
        self.coordinator.join()
        return results

    def exchange(self) -> bool:
        """Send what a step sends without computing: every worker reads all weights and writes a gradient of zeros."""
        for _ in range(self.workers):
            self.coordinator.schedule(self._exchange)
        self.coordinator.join()
        return True

    def _step(self, inputs: Any, targets: Any, whole: Any) -> Any:
        return self.strategy.run(self._worker, args=(inputs, targets, whole))

    def _worker(self, inputs: Any, targets: Any, whole: Any) -> Any:
        loss, gradients = share_gradients(self.network, inputs, targets, whole)
        with tf.name_scope("optimizer"):
            self.network.update(list(self.network.trained.values()), gradients)
        return loss

    def _exchange_step(self) -> Any:
        read = tf.constant(0.0, tf.float64)
        for weight in self.network.trained.values():
            values = weight.read_value()
            # The sum keeps a graph from leaving the read out; weights minus zeros are the same to the bit.
            read += tf.cast(tf.reduce_sum(values), tf.float64)
            weight.assign_sub(tf.zeros_like(values))
        return read

    def judge(self, batch: Any) -> tuple[float, int]:
        """Sum of the losses of all shares, and right answers in them. The coordinator computes them itself."""
        loss, right = 0.0, 0
        for inputs, targets, _ in batch:
            if len(targets):
                mean, hits = self._judge(inputs, targets)
                loss, right = loss + float(mean) * len(targets), right + int(hits)
        return loss, right

    def settle(self) -> None:
        """Nothing to do: every weight exists once."""

    def total(self, losses: Any) -> float:
        """The loss of the whole batch, with the weights that each worker read."""
        return float(sum(float(loss.fetch()) for loss in losses))

    def mean(self, value: float) -> float:
        """The number itself: there is one coordinator."""
        return value


def split_batch(inputs: np.ndarray | Any, targets: Any, shares: Sequence[int], first: int = 0) -> list[tuple[Any, Any]]:
    """Split the rows of a batch into parts of these sizes, beginning with row `first`."""
    parts, begin = [], first
    for share in shares:
        parts.append((inputs[begin : begin + share], targets[begin : begin + share]))
        begin += share
    return parts
