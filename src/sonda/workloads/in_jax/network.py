"""A built-in network made ready in JAX: the functions that anybody would jit, their arguments, and a step of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sonda.frameworks.harness.settings import weights_type
from sonda.workloads.description import Description
from sonda.workloads.in_jax.layers import PRODUCTS, Arrays, Cache, Forward, cross_entropy, mean_squared_error
from sonda.workloads.in_jax.optimizers import AdamW, Sgd
from sonda.workloads.networks.cost import LayerCost, network_costs
from sonda.workloads.networks.examples import arranged, batch_numbers, examples
from sonda.workloads.networks.layers import Gpt, classes_by_path, walk
from sonda.workloads.networks.network import require_network
from sonda.workloads.networks.transformer import Transformer
from sonda.workloads.networks.weights import channels_last, initial_weights

LOSS_SCALE = 1024.0
"""Under mixed float16 the loss is multiplied by this, so that small gradients are no zeros."""
OPTIMIZERS: dict[str, Callable[[float], Any]] = {"sgd": Sgd, "adamw": AdamW}
Batches = Iterator[tuple[np.ndarray, np.ndarray]]


class Runner(Protocol):
    """Who runs a task: knows its compiled functions, and is told of phases."""

    def call(self, name: str, *arguments: Any) -> Any:
        """Run a function of the task, and wait for its result."""

    def phase(self, name: str) -> AbstractContextManager[None]: ...


class NetworkInJax:
    """Inference: `forward`, or `prefill` and `decode`. Training: `train`, a whole step as one function."""

    def __init__(
        self, description: Description, train: bool, seed: int, precision: str, device: Any,
        batches: Batches | None = None,
    ) -> None:  # fmt: skip
        """`batches`, where given, are trained on in place of the workload's own examples."""
        about = require_network(description)
        if train:
            about.check_training()
        self.description = about
        self.network = about.structure()
        self.train = train
        self.device = device
        self.precision = PRODUCTS.get(precision)
        self.narrow = getattr(jnp, precision.removeprefix("mixed_")) if precision.startswith("mixed_") else None
        self.scale = LOSS_SCALE if precision == "mixed_float16" else 1.0
        self.dtype = weights_type(precision)
        self.kind = getattr(jnp, self.dtype)
        self.samples = about.batch
        self.tokens, self.phase_tokens = about.step_tokens(train)
        known = {name: channels_last(values) for name, values in initial_weights(about, seed).items()}
        changing = {f"{path}.{name}" for path, node in walk(self.network) for name in node.buffers()}
        self.weights: Arrays = {name: self._put(values) for name, values in known.items() if name not in changing}
        self.running: Arrays = {name: self._put(values) for name, values in known.items() if name in changing}
        self.optimizer = OPTIMIZERS[about.optimizer](about.learning_rate)
        self.kept = self.optimizer.start(self.weights) if train else ()
        inputs, targets = examples(about, seed)
        self.inputs = self._put(arranged(inputs[: about.batch]))
        self.batches: Batches = batches or _in_memory(inputs, targets, about.batch, seed)
        self.losses: list[Any] = []
        """Of the steps so far, on the device."""

    def _put(self, values: np.ndarray) -> Any:
        kind = self.kind if np.issubdtype(values.dtype, np.floating) else np.int32
        return jax.device_put(values.astype(kind, copy=False), self.device)

    @property
    def costs(self) -> tuple[LayerCost, ...]:
        """Every operation of a step by formula."""
        return network_costs(self.description, self.train, jnp.dtype(self.kind).itemsize)

    @property
    def classes(self) -> dict[str, str]:
        """Of all layers by path, '' among them."""
        return classes_by_path(self.network)

    # ---- functions ------------------------------------------------------------------------------------------

    def functions(self) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Jitted, not compiled yet, each with arguments of the shapes that it will be given."""
        if self.train:
            inputs, targets = next(self.batches)
            # Shapes are all that compiling takes of it: training begins with this batch, as in every framework.
            self.batches = chain([(inputs, targets)], self.batches)
            # A step may write its results where its arguments were.
            step = jax.jit(self._named("train", self._train), donate_argnums=(0, 1, 2))
            batch = self._put(arranged(inputs)), self._put(targets)
            return {"train": (step, (self.weights, self.running, self.kept, *batch))}
        if not isinstance(self.description, Transformer):
            forward = jax.jit(self._named("forward", self._forward))
            return {"forward": (forward, (self.weights, self.running, self.inputs))}
        token, cache = self.inputs[:, :1], self._empty_cache()
        prefill = jax.jit(self._named("prefill", self._prefill))
        decode = jax.jit(self._named("decode", self._decode), donate_argnums=(2,))
        return {
            "prefill": (prefill, (self.weights, self.inputs)),
            "decode": (decode, (self.weights, token, cache, jnp.zeros((), jnp.int32))),
        }

    @staticmethod
    def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that XLA calls by this name."""

        def named(*arguments: Any) -> Any:
            return function(*arguments)

        named.__name__ = named.__qualname__ = name
        return named

    def _pass(self, weights: Arrays) -> Forward:
        return Forward(weights, self.train, self.precision, self.narrow)

    def _scores(self, forward: Forward, inputs: Any) -> Any:
        with jax.named_scope("forward"):
            if isinstance(self.network, Gpt):
                return forward.gpt(self.network, inputs)[0]
            return forward(self.network, "", inputs)

    def _forward(self, weights: Arrays, running: Arrays, inputs: Any) -> Any:
        return self._scores(self._pass({**weights, **running}), inputs)

    def _train(self, weights: Arrays, running: Arrays, kept: Any, inputs: Any, targets: Any) -> Any:
        def loss(weights: Arrays) -> tuple[Any, Arrays]:
            forward = self._pass({**weights, **running})
            scores = self._scores(forward, inputs)
            with jax.named_scope("loss"):
                kind = mean_squared_error if self.description.loss == "mse" else cross_entropy
                return self.scale * kind(scores, targets), forward.running

        (value, moved), gradients = jax.value_and_grad(loss, has_aux=True)(weights)
        with jax.named_scope("optimizer"):
            if self.scale != 1.0:
                gradients = jax.tree.map(lambda slope: slope / self.scale, gradients)
            weights, kept = self.optimizer.update(weights, gradients, kept)
        return weights, moved, kept, value / self.scale

    def _empty_cache(self) -> Cache:
        one = self.description
        assert isinstance(one, Transformer)
        shape = (one.batch, one.heads, one.context, one.width // one.heads)
        return tuple((jnp.zeros(shape, self.kind), jnp.zeros(shape, self.kind)) for _ in range(one.layers))

    def _next(self, weights: Arrays, tokens: Any, cache: Cache, first: Any) -> tuple[Any, Cache]:
        assert isinstance(self.network, Gpt)
        with jax.named_scope("forward"):
            scores, cache = self._pass(weights).gpt(self.network, tokens, cache, first)
            return scores.argmax(-1).astype(jnp.int32), cache

    def _prefill(self, weights: Arrays, prompt: Any) -> tuple[Any, Cache]:
        return self._next(weights, prompt, self._empty_cache(), 0)

    def _decode(self, weights: Arrays, token: Any, cache: Cache, first: Any) -> tuple[Any, Cache]:
        return self._next(weights, token, cache, first)

    # ---- steps ----------------------------------------------------------------------------------------------

    def step(self, runner: Runner) -> Any:
        """One step; returns the output, or the new tokens (batch x (1 + generate)), or the loss."""
        if self.train:
            return self._train_step(runner)
        if not isinstance(self.description, Transformer):
            return runner.call("forward", self.weights, self.running, self.inputs)
        token, cache = runner.call("prefill", self.weights, self.inputs)
        found = [token]
        for number in range(self.description.generate):
            first = np.int32(self.description.length + number)
            token, cache = runner.call("decode", self.weights, token, cache, first)
            found.append(token)
        return np.concatenate(found, axis=1)

    def _train_step(self, runner: Runner) -> Any:
        with runner.phase("data"):
            inputs, targets = next(self.batches)
            inputs = arranged(inputs)
            if self.device.platform == "cpu":
                batch = self._put(inputs), self._put(targets)
        if self.device.platform != "cpu":
            with runner.phase("transfer"):
                batch = self._put(inputs), self._put(targets)
        self.weights, self.running, self.kept, loss = runner.call(
            "train", self.weights, self.running, self.kept, *batch
        )
        self.losses.append(loss)
        return loss


def _in_memory(inputs: np.ndarray, targets: np.ndarray, batch: int, seed: int) -> Batches:
    for numbers in batch_numbers(len(targets), batch, seed):
        yield inputs[numbers], targets[numbers]


def build(
    description: Description, train: bool, seed: int, precision: str, device: Any, batches: Batches | None = None
) -> NetworkInJax:
    """Raises SondaError where the network cannot be trained on so few values."""
    return NetworkInJax(description, train, seed, precision, device, batches)
