"""A built-in network in PyTorch: modules from its structure, with the weights and data of all frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sonda.record.protocols import Mark
from sonda.workloads.in_torch.layers import build_model
from sonda.workloads.in_torch.task import Examples, TaskKind, TorchTask, make_examples_task
from sonda.workloads.networks.examples import synthetic_examples
from sonda.workloads.networks.weights import initial_weights

if TYPE_CHECKING:
    from sonda.workloads.networks.network import Network
    from sonda.workloads.networks.transformer import Transformer

LOSSES = {"mse": nn.MSELoss, "cross_entropy": nn.CrossEntropyLoss}
OPTIMIZERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}


class NextTokenLoss(nn.CrossEntropyLoss):
    """Cross entropy over all positions of all sequences."""

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        return super().forward(scores.flatten(0, 1), targets.flatten())


class GenerationTask(TorchTask):
    """A task whose inference generates text: the prompt at once, then token by token, always the likeliest."""

    generate: int

    def infer(self, mark: Mark) -> Tensor:
        """The new tokens, batch x (1 + generate)."""
        (prompt,) = self.inputs
        with torch.no_grad():
            with mark("prefill"):
                cache = self.model.empty_cache(len(prompt))
                token = self.model(prompt, cache).argmax(-1)
            generated = [token]
            with mark("decode"):
                for _ in range(self.generate):
                    token = self.model(token, cache).argmax(-1)
                    generated.append(token)
            return torch.cat(generated, dim=1)


def build(network: Network, train: bool, seed: int) -> TorchTask:
    """The task of a network. Raises SondaError where it cannot be trained on so few values."""
    return _task(TorchTask, network, train, seed, LOSSES[network.loss]())


def build_generator(network: Transformer, train: bool, seed: int) -> GenerationTask:
    """A task whose inference generates text."""
    task = _task(GenerationTask, network, train, seed, NextTokenLoss())
    task.generate = network.generate
    return task


def _task(
    kind: type[TaskKind], network: Network, train: bool, seed: int, loss: Callable[[Tensor, Tensor], Tensor]
) -> TaskKind:
    if train:
        network.check_training()
    model = load_weights(build_model(network.structure()), network, seed)
    inputs, targets = synthetic_examples(network, seed)
    data = Examples((torch.from_numpy(inputs),), torch.from_numpy(targets))
    tokens, phase_tokens = network.step_tokens(train)

    def optimizer() -> torch.optim.Optimizer:
        return OPTIMIZERS[network.optimizer](model.parameters(), lr=network.learning_rate)

    task = make_examples_task(kind, model, data, network.batch, train, seed, loss, optimizer, tokens)
    task.phase_tokens = phase_tokens
    return task


def load_weights(model: nn.Module, network: Network, seed: int) -> nn.Module:
    """Load the weights that the network has in every framework, and return the model."""
    # PyTorch's generator is for what a model draws while it runs.
    torch.manual_seed(seed)
    weights = {name: torch.from_numpy(values) for name, values in initial_weights(network, seed).items()}
    # Not strict: PyTorch also has batch counters, and lists a shared weight twice.
    model.load_state_dict(weights, strict=False)
    return model
