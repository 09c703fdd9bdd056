"""Synthetic images with classes, and the task of telling them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from sonda.workloads.in_torch.task import BATCHES_KEPT, Examples, TorchTask, examples_task, sgd

if TYPE_CHECKING:
    from sonda.workloads.convnet import ConvNet
    from sonda.workloads.resnet import ResNet


def classify_images(
    model: nn.Module, description: ConvNet | ResNet, train: bool, seed: int, generator: torch.Generator
) -> TorchTask:
    """Images of normally distributed values, uniform classes, cross entropy, SGD."""
    count = BATCHES_KEPT * description.batch
    inputs = torch.randn(count, description.channels, *description.image, generator=generator)
    targets = torch.randint(description.classes, (count,), generator=generator)
    return examples_task(
        model,
        Examples((inputs,), targets),
        description.batch,
        train,
        seed,
        nn.CrossEntropyLoss(),
        sgd(model, description.learning_rate),
    )
