"""Your own model in PyTorch: seeded inputs of the shapes asked for, a loss for any output."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.data import Dataset

from sonda.record.errors import SondaError
from sonda.workloads.in_torch.factory import explain_error, import_file, make_model, refuse_unknown_options
from sonda.workloads.in_torch.task import EndlessSampler, Examples, TorchTask, make_sgd, seed_generators
from sonda.workloads.input_shapes import FLOATS, InputShape
from sonda.workloads.networks.examples import DISTINCT_BATCHES

if TYPE_CHECKING:
    from sonda.workloads.own_model import OwnModel

RATE = 1e-3
"""Learning rate of SGD: small, because nothing is known of the model."""


class WholeBatches(Dataset):
    """Batches that cannot be gathered example by example."""

    def __init__(self, batches: list[tuple[tuple[Any, ...], Any]]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> tuple[tuple[Any, ...], Any]:
        return self.batches[index]


def build(own: OwnModel, train: bool, seed: int) -> TorchTask:
    """The task of the user's own model. Raises a one-line SondaError for a mistake in the file, factory or shapes."""
    generator = seed_generators(seed)
    # A factory may draw from any of the usual generators.
    random.seed(seed)
    np.random.seed(seed % 2**32)
    module = import_file(own.path, own.digest)
    refuse_unknown_options(own, [getattr(module, own.factory, None)])
    model, own_inputs = make_model(own, module)
    model.train(train)
    if own.inputs:
        batches = [tuple(draw_input(shape, generator) for shape in own.inputs) for _ in range(DISTINCT_BATCHES)]
    elif own_inputs is not None:
        batches = [tuple(own_inputs) if isinstance(own_inputs, (tuple, list)) else (own_inputs,)]
    else:
        raise SondaError(
            f"{own.name} needs the shapes of its inputs", "give input=8x3x224x224, or return (module, inputs)"
        )
    output = try_forward(own, model, batches[0], train)
    if train:
        require_trainable(own, model, output)
    data = [(inputs, draw_target(own, output, generator) if train else torch.zeros(())) for inputs in batches]
    samples = next((len(value) for value in batches[0] if isinstance(value, Tensor) and value.dim()), 1)
    dataset, batch_size = make_dataset(own, data, samples)
    return TorchTask(
        model,
        batches[0],
        dataset,
        EndlessSampler(len(dataset), seed),
        batch_size,
        make_loss(own.loss),
        make_sgd(model, RATE),
        samples,
    )


def draw_input(shape: InputShape, generator: torch.Generator) -> Tensor:
    """One seeded input. Raises SondaError where there is no memory for it."""
    kind = getattr(torch, shape.kind)
    try:
        if shape.kind in FLOATS:
            return torch.randn(shape.shape, generator=generator).to(kind)
        return torch.randint(shape.bound, shape.shape, generator=generator).to(kind)
    except (RuntimeError, MemoryError):
        # The shape is valid, so only its allocation can fail.
        size = math.prod(shape.shape) * (4 if shape.kind in FLOATS else 8) / 2**30
        raise SondaError(
            f"there is not enough memory for input {shape} ({size:,.1f} GiB)", "give a smaller shape"
        ) from None


def try_forward(
    own: OwnModel,
    model: nn.Module,
    inputs: tuple[Any, ...],
    train: bool,
    remedy: str = "give the shapes it takes with input=",
) -> Any:
    """The model's output for these inputs. Running statistics and random generators are restored afterwards."""
    saved = [(buffer, buffer.clone()) for buffer in model.buffers() if not is_lazy(buffer)]
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(train):
        try:
            output = model(*inputs)
        except Exception as error:
            valueless = next((name for name, weight in model.named_parameters() if weight.is_meta), None)
            if valueless is not None:
                raise SondaError(
                    f"{own.name}: {valueless} is on the meta device and has no values", "build the model with values"
                ) from error
            shapes = ", ".join(describe_value(value) for value in inputs)
            raise SondaError(
                f"{own.name}: forward fails with input {shapes}: {explain_error(error, own.path)}", remedy
            ) from error
    with torch.no_grad():
        for buffer, before in saved:
            buffer.copy_(before)
    return output


def describe_value(value: Any) -> str:
    """A tensor's shape and type, such as `8x3x32x32`; for other values the name of their type."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    shape = "x".join(map(str, value.shape)) or "scalar"
    return shape if value.dtype is torch.float32 else f"{shape}:{str(value.dtype).removeprefix('torch.')}"


def require_trainable(own: OwnModel, model: nn.Module, output: Any) -> None:
    """Raise SondaError where the model cannot be trained, or its output does not fit the loss."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise SondaError(f"{own.name} has no parameters to train", "run it without training")
    floats = list(floating_tensors(output))
    if not any(tensor.requires_grad for tensor in floats):
        raise SondaError(f"{own.name}: no output depends on a parameter", "return what the loss is to be taken of")
    if own.loss in ("mse", "cross_entropy") and not is_scalar(output) and not isinstance(output, Tensor):
        raise SondaError(f"{own.name}: loss={own.loss} needs one tensor, not a {type(output).__name__}", "use squares")
    if own.loss == "cross_entropy" and isinstance(output, Tensor) and output.dim() == 1:
        raise SondaError(
            f"{own.name}: cross_entropy needs classes, the output is {describe_value(output)}", "use squares"
        )


def draw_target(own: OwnModel, output: Any, generator: torch.Generator) -> Tensor:
    """A seeded target that fits the output; a placeholder where the loss needs none."""
    if is_scalar(output) or own.loss in ("", "squares", "mean"):
        return torch.zeros(())
    if own.loss == "mse":
        return torch.randn(output.shape, generator=generator).to(output.dtype)
    scores = classes_second(output)
    return torch.randint(scores.shape[1], (scores.shape[0], *scores.shape[2:]), generator=generator)


def make_dataset(own: OwnModel, data: list[tuple[tuple[Any, ...], Any]], samples: int) -> tuple[Any, int | None]:
    """The dataset and its batch size. It holds whole batches, and the size is None, where tensors have no row per
    sample."""
    values = [value for inputs, _ in data for value in inputs]
    if not own.inputs or any(len(value) != samples for value in values):
        return WholeBatches(data), None
    targets = [wanted if wanted.dim() else wanted.expand(samples) for _, wanted in data]
    if any(len(wanted) != samples for wanted in targets):
        return WholeBatches(data), None
    joined = tuple(torch.cat(column) for column in zip(*(inputs for inputs, _ in data), strict=True))
    return Examples(joined, torch.cat(targets)), samples


def make_loss(name: str) -> Callable[[Any, Any], Tensor]:
    """The loss function of this name. A scalar output is its own loss."""

    def loss(output: Any, wanted: Any) -> Tensor:
        if is_scalar(output):
            return output
        if name == "mse":
            return F.mse_loss(output, wanted)
        if name == "cross_entropy":
            return F.cross_entropy(classes_second(output), wanted)
        tensors = list(floating_tensors(output))
        values = [tensor if name == "mean" else tensor.square() for tensor in tensors]
        return torch.stack([value.sum() for value in values]).sum() / sum(tensor.numel() for tensor in tensors)

    return loss


def is_scalar(output: Any) -> bool:
    return isinstance(output, Tensor) and output.dim() == 0


def classes_second(output: Tensor) -> Tensor:
    """Scores with the classes in dimension 1. Three dimensions mean samples x positions x classes."""
    return output.transpose(1, 2) if output.dim() == 3 else output


def floating_tensors(output: Any) -> Iterator[Tensor]:
    """Every floating-point tensor inside tuples, lists and mappings."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from floating_tensors(value)
    elif isinstance(output, (tuple, list)):
        for value in output:
            yield from floating_tensors(value)
