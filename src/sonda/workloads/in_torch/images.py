"""Synthetic images with classes, and the task of telling them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from sonda.workloads.in_torch.task import TorchTask, examples_task, same_examples, sgd

if TYPE_CHECKING:
    from sonda.workloads.convnet import ConvNet
    from sonda.workloads.resnet import ResNet


def classify_images(model: nn.Module, description: ConvNet | ResNet, train: bool, seed: int) -> TorchTask:
    """Images of normally distributed values, uniform classes, cross entropy, SGD."""
    return examples_task(
        model,
        same_examples(description, seed),
        description.batch,
        train,
        seed,
        nn.CrossEntropyLoss(),
        sgd(model, description.learning_rate),
    )
