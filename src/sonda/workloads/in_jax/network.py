"""A built-in network in JAX: the functions that a program would jit, their arguments, and a step that calls them."""

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
from sonda.workloads.in_jax.layers import PRODUCT_PRECISION, Arrays, Cache, Forward, cross_entropy, mean_squared_error
from sonda.workloads.in_jax.optimizers import AdamW, Sgd
from sonda.workloads.networks.cost import LayerCost, network_costs
from sonda.workloads.networks.examples import batch_numbers, images_channels_last, synthetic_examples
from sonda.workloads.networks.layers import Gpt, classes_by_path, walk_layers
from sonda.workloads.networks.network import require_network
from sonda.workloads.networks.transformer import Transformer
from sonda.workloads.networks.weights import channels_last, initial_weights

LOSS_SCALE = 1024.0
"""Under mixed float16 the loss is multiplied by this, so that small gradients do not become 0."""
OPTIMIZERS: dict[str, Callable[[float], Any]] = {"sgd": Sgd, "adamw": AdamW}
Batches = Iterator[tuple[np.ndarray, np.ndarray]]


class Runner(Protocol):
    """Runs the compiled functions of a task, and is told of phases."""

    def call(self, name: str, *arguments: Any) -> Any:
        """Run the function of this name, and wait for its result."""

    def phase(self, name: str) -> AbstractContextManager[None]: ...


class NetworkInJax:
    """A network whose functions are `forward`, or `prefill` and `decode`; in training `train`, a whole step."""

    def __init__(
        self, description: Description, train: bool, seed: int, precision: str, device: Any,
        batches: Batches | None = None,
    ) -> None:  # fmt: skip
        """`batches`, where given, take the place of the workload's own examples in training."""
        network = require_network(description)
        if train:
            network.check_training()
        self.description = network
        self.network = network.structure()
        self.train = train
        self.device = device
        self.precision = PRODUCT_PRECISION.get(precision)
        self.narrow = getattr(jnp, precision.removeprefix("mixed_")) if precision.startswith("mixed_") else None
        self.scale = LOSS_SCALE if precision == "mixed_float16" else 1.0
        self.dtype = weights_type(precision)
        self.kind = getattr(jnp, self.dtype)
        self.samples = network.batch
        self.tokens, self.phase_tokens = network.step_tokens(train)
        initial = {name: channels_last(values) for name, values in initial_weights(network, seed).items()}
        buffers = {f"{path}.{name}" for path, layer in walk_layers(self.network) for name in layer.buffers()}
        self.weights: Arrays = {name: self.to_device(values) for name, values in initial.items() if name not in buffers}
        self.running: Arrays = {name: self.to_device(values) for name, values in initial.items() if name in buffers}
        self.optimizer = OPTIMIZERS[network.optimizer](network.learning_rate)
        self.optimizer_state = self.optimizer.start(self.weights) if train else ()
        inputs, targets = synthetic_examples(network, seed)
        self.inputs = self.to_device(images_channels_last(inputs[: network.batch]))
        self.batches: Batches = batches or _batches_in_memory(inputs, targets, network.batch, seed)
        self.losses: list[Any] = []
        """Losses of the steps so far, on the device."""

    def to_device(self, values: np.ndarray) -> Any:
        kind = self.kind if np.issubdtype(values.dtype, np.floating) else np.int32
        return jax.device_put(values.astype(kind, copy=False), self.device)

    @property
    def costs(self) -> tuple[LayerCost, ...]:
        """Every operation of a step by formula."""
        return network_costs(self.description, self.train, jnp.dtype(self.kind).itemsize)

    @property
    def classes(self) -> dict[str, str]:
        """Classes of all layers by path, that of the network ('') among them."""
        return classes_by_path(self.network)

    # ---- functions ------------------------------------------------------------------------------------------

    def functions(self) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Jitted functions by name, not compiled yet, each with arguments of the shapes of its calls."""
        if self.train:
            inputs, targets = next(self.batches)
            # Compiling takes only the shapes of this batch. Training begins with it, as in every framework.
            self.batches = chain([(inputs, targets)], self.batches)
            # JAX may write the results of a step over its arguments.
            step = jax.jit(self._with_name("train", self.train_step), donate_argnums=(0, 1, 2))
            batch = self.to_device(images_channels_last(inputs)), self.to_device(targets)
            return {"train": (step, (self.weights, self.running, self.optimizer_state, *batch))}
        if not isinstance(self.description, Transformer):
            forward = jax.jit(self._with_name("forward", self._forward))
            return {"forward": (forward, (self.weights, self.running, self.inputs))}
        token, cache = self.inputs[:, :1], self._empty_cache()
        prefill = jax.jit(self._with_name("prefill", self._prefill))
        decode = jax.jit(self._with_name("decode", self._decode), donate_argnums=(2,))
        return {
            "prefill": (prefill, (self.weights, self.inputs)),
            "decode": (decode, (self.weights, token, cache, jnp.zeros((), jnp.int32))),
        }

    @staticmethod
    def _with_name(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that has this name in XLA."""

        def named(*arguments: Any) -> Any:
            return function(*arguments)

        named.__name__ = named.__qualname__ = name
        return named

    def _make_forward(self, weights: Arrays) -> Forward:
        return Forward(weights, self.train, self.precision, self.narrow)

    def scores(self, forward: Forward, inputs: Any) -> Any:
        with jax.named_scope("forward"):
            if isinstance(self.network, Gpt):
                return forward.gpt(self.network, inputs)[0]
            return forward(self.network, "", inputs)

    def _forward(self, weights: Arrays, running: Arrays, inputs: Any) -> Any:
        return self.scores(self._make_forward({**weights, **running}), inputs)

    def train_step(self, weights: Arrays, running: Arrays, optimizer_state: Any, inputs: Any, targets: Any) -> Any:
        def loss(weights: Arrays) -> tuple[Any, Arrays]:
            forward = self._make_forward({**weights, **running})
            scores = self.scores(forward, inputs)
            with jax.named_scope("loss"):
                loss_function = mean_squared_error if self.description.loss == "mse" else cross_entropy
                return self.scale * loss_function(scores, targets), forward.running

        (value, running_after), gradients = jax.value_and_grad(loss, has_aux=True)(weights)
        with jax.named_scope("optimizer"):
            if self.scale != 1.0:
                gradients = jax.tree.map(lambda gradient: gradient / self.scale, gradients)
            weights, optimizer_state = self.optimizer.update(weights, gradients, optimizer_state)
        return weights, running_after, optimizer_state, value / self.scale

    def _empty_cache(self) -> Cache:
        transformer = self.description
        assert isinstance(transformer, Transformer)
        shape = (transformer.batch, transformer.heads, transformer.context, transformer.width // transformer.heads)
        return tuple((jnp.zeros(shape, self.kind), jnp.zeros(shape, self.kind)) for _ in range(transformer.layers))

    def _next_token(self, weights: Arrays, tokens: Any, cache: Cache, first: Any) -> tuple[Any, Cache]:
        assert isinstance(self.network, Gpt)
        with jax.named_scope("forward"):
            scores, cache = self._make_forward(weights).gpt(self.network, tokens, cache, first)
            return scores.argmax(-1).astype(jnp.int32), cache

    def _prefill(self, weights: Arrays, prompt: Any) -> tuple[Any, Cache]:
        return self._next_token(weights, prompt, self._empty_cache(), 0)

    def _decode(self, weights: Arrays, token: Any, cache: Cache, first: Any) -> tuple[Any, Cache]:
        return self._next_token(weights, token, cache, first)

    # ---- steps ----------------------------------------------------------------------------------------------

    def step(self, runner: Runner) -> Any:
        """Run one step; returns the output, or the new tokens (batch x (1 + generate)), or the loss."""
        if self.train:
            return self._run_training(runner)
        if not isinstance(self.description, Transformer):
            return runner.call("forward", self.weights, self.running, self.inputs)
        token, cache = runner.call("prefill", self.weights, self.inputs)
        tokens = [token]
        for number in range(self.description.generate):
            first = np.int32(self.description.length + number)
            token, cache = runner.call("decode", self.weights, token, cache, first)
            tokens.append(token)
        return np.concatenate(tokens, axis=1)

    def _run_training(self, runner: Runner) -> Any:
        with runner.phase("data"):
            inputs, targets = next(self.batches)
            inputs = images_channels_last(inputs)
            if self.device.platform == "cpu":
                batch = self.to_device(inputs), self.to_device(targets)
        if self.device.platform != "cpu":
            with runner.phase("transfer"):
                batch = self.to_device(inputs), self.to_device(targets)
        self.weights, self.running, self.optimizer_state, loss = runner.call(
            "train", self.weights, self.running, self.optimizer_state, *batch
        )
        self.losses.append(loss)
        return loss


def _batches_in_memory(inputs: np.ndarray, targets: np.ndarray, batch: int, seed: int) -> Batches:
    for numbers in batch_numbers(len(targets), batch, seed):
        yield inputs[numbers], targets[numbers]


def build(
    description: Description, train: bool, seed: int, precision: str, device: Any, batches: Batches | None = None
) -> NetworkInJax:
    """Make it ready. Raises SondaError where the network cannot be trained on so few values."""
    return NetworkInJax(description, train, seed, precision, device, batches)
