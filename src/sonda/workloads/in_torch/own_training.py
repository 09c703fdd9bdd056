"""Your own model through whole epochs: what stands beside the factory in its file, checked, and its batches.

    def data(): return {"train": loader, "validate": loader, "test": loader}    # the last two may be missing
    def optimizer(model): return torch.optim.Adam(model.parameters())           # SGD where it is missing
    def loss(output, target): ...                                               # a mean over the samples
    def accuracy(output, target): ...                                           # share of right answers, 0 to 1

A loader is anything with a length that can be walked through again and again and gives `(inputs, target)`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter_ns
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from sonda.record.errors import SondaError, nearest
from sonda.workloads.data.training_set import PARTS
from sonda.workloads.in_torch.factory import (
    call_function,
    explain_error,
    import_file,
    make_model,
    refuse_unknown_options,
)
from sonda.workloads.in_torch.own_model import (
    RATE,
    WholeBatches,
    classes_second,
    describe_value,
    make_loss,
    require_trainable,
    try_forward,
)
from sonda.workloads.in_torch.task import EndlessSampler, TorchTask, make_sgd, seed_generators

if TYPE_CHECKING:
    from sonda.workloads.own_model import OwnModel

FORM = 'return {"train": loader, "validate": loader, "test": loader}'
OPTIONAL = ("data", "optimizer")
"""Functions beside the factory that may take options."""

Mark = Callable[[str], AbstractContextManager[Any]]


class LoadedBatch(NamedTuple):
    """One batch of a loader, on the loader's device."""

    inputs: tuple[Any, ...]
    target: Any
    samples: int


class OwnTraining(NamedTuple):
    """Everything that a training of the user's own model needs."""

    task: TorchTask
    loaders: OwnLoaders
    accuracy: Callable[[Any, Any], Any]
    """Gives the share of right answers of a batch, on its device; NaN where it is unknown."""
    loss: str
    """Name of the loss; `loss()` for the file's own."""
    loading_ns: int
    """Time that `data()` took."""


class OwnLoaders:
    """The loaders of a file, walked through again and again.

    The random numbers of a loader depend only on the seed, the part and the epoch, not on earlier walks or the model.
    So a training that was interrupted continues with the same batches, and all ranks get the same batches.
    """

    def __init__(self, own: OwnModel, loaders: Mapping[str, Any], seed: int) -> None:
        self.own, self.loaders, self.seed = own, dict(loaders), seed
        self.lengths = {part: self._length(part) for part in PARTS}
        self.mark: Mark = lambda name: nullcontext()
        """Announces a phase for loaders that are not PyTorch's."""

    def steps(self, part: str) -> int:
        """Number of batches of a walk; 0 where there is no such part."""
        return self.lengths[part]

    def samples(self, part: str) -> int:
        """Number of samples of a part; the number of its batches where its dataset has no length."""
        dataset: Any = getattr(self.loaders.get(part), "dataset", None)
        return len(dataset) if hasattr(dataset, "__len__") else self.lengths[part]

    def walk(self, part: str, epoch: int) -> Iterator[LoadedBatch]:
        """Every batch of a part. Raises SondaError where their number differs from the loader's length."""
        loader_random = _LoaderRandom(self._seed(part, epoch))
        loader = self.loaders[part]
        for holder in (loader, *(getattr(loader, name, None) for name in ("sampler", "batch_sampler", "dataset"))):
            if callable(getattr(holder, "set_epoch", None)):
                holder.set_epoch(epoch)
            generator = getattr(holder, "generator", None)
            if isinstance(generator, torch.Generator):
                generator.manual_seed(loader_random.seed)
        marked = nullcontext if isinstance(loader, DataLoader) else lambda: self.mark("data")
        with self._explain_errors(part), loader_random.active():
            iterator = iter(loader)
        for step in range(self.lengths[part] + 1):
            try:
                with self._explain_errors(part), loader_random.active(), marked():
                    batch = next(iterator)
            except StopIteration:
                if step == self.lengths[part]:
                    return
                raise SondaError(
                    f"{self.own.name}: {part} has {self.lengths[part]:,} batches by its length, and gave "
                    f"{step:,} in epoch {epoch + 1}",
                    "let data() return a loader that can be walked through in every epoch",
                ) from None
            if step == self.lengths[part]:
                raise SondaError(
                    f"{self.own.name}: {part} gives more batches than its length, {step:,}", "let its length be right"
                )
            yield self._check_batch(part, batch)

    def _seed(self, part: str, epoch: int) -> int:
        return int(np.random.SeedSequence((self.seed, PARTS.index(part), epoch)).generate_state(1, np.uint64)[0] >> 1)

    def _length(self, part: str) -> int:
        loader = self.loaders.get(part)
        if loader is None:
            return 0
        where = f"{self.own.name}: {part} of data() is a {type(loader).__name__}"
        if hasattr(loader, "__next__"):
            raise SondaError(f"{where}, which can be walked through once", "return a DataLoader, or a list of batches")
        if not hasattr(loader, "__iter__"):
            doing = "wrap it in" if isinstance(loader, Dataset) else "return"
            raise SondaError(f"{where}, not a loader", f"{doing} a torch.utils.data.DataLoader")
        try:
            length = len(loader)
        except TypeError:
            raise SondaError(f"{where} without a length", "give it __len__, the number of its batches") from None
        if not length:
            raise SondaError(f"{where} without a batch", "give it one or more, or leave the part out")
        return length

    def _check_batch(self, part: str, batch: Any) -> LoadedBatch:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            size = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
            raise SondaError(
                f"{self.own.name}: {part} gives a {type(batch).__name__}{size}, not inputs and target",
                "let every batch be (inputs, target)",
            )
        inputs, target = batch
        inputs = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
        rows = [len(value) for value in inputs if isinstance(value, Tensor) and value.dim()]
        if not rows or not rows[0]:
            raise SondaError(
                f"{self.own.name}: {part} gives inputs without a sample ({', '.join(map(describe_value, inputs))})",
                "let inputs be tensors with one row per sample",
            )
        return LoadedBatch(inputs, target, rows[0])

    @contextmanager
    def _explain_errors(self, part: str) -> Iterator[None]:
        try:
            yield
        except (SondaError, StopIteration):
            raise
        except Exception as error:
            raise SondaError(
                f"{self.own.name}: {part} of data() raises {explain_error(error, self.own.path)}", "mend the data"
            ) from error


class _LoaderRandom:
    """PyTorch's random numbers for one loader. The generators of Python and NumPy are seeded for everybody."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        random.seed(seed)
        np.random.seed(seed % 2**32)
        self._state = torch.Generator().manual_seed(seed).get_state()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let PyTorch draw from this state inside of the block."""
        before = torch.get_rng_state()
        torch.set_rng_state(self._state)
        try:
            yield
        finally:
            self._state = torch.get_rng_state()
            torch.set_rng_state(before)


def build_training(own: OwnModel, seed: int) -> OwnTraining:
    """Import the file and prepare its training. Raises a one-line SondaError for any mistake in the file."""
    seed_generators(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    module = import_file(own.path, own.digest)
    functions = [function for name in OPTIONAL if callable(function := getattr(module, name, None))]
    refuse_unknown_options(own, [getattr(module, own.factory, None), *functions])
    model, _ = make_model(own, module)
    model.train(True)
    begin = perf_counter_ns()
    loaders = OwnLoaders(own, _parts(own, module), seed)
    loading_ns = perf_counter_ns() - begin
    first = next(loaders.walk("train", 0))
    output = try_forward(own, model, first.inputs, True, "let the batches of data() fit the model")
    require_trainable(own, model, output)
    name, loss = _loss(own, module, output, first.target)
    task = TorchTask(
        model,
        first.inputs,
        WholeBatches([(first.inputs, first.target)]),
        EndlessSampler(1, seed),
        None,
        loss,
        _optimizer(own, module, model),
        first.samples,
    )
    return OwnTraining(task, loaders, _accuracy(own, module), name, loading_ns)


def _parts(own: OwnModel, module: ModuleType) -> Mapping[str, Any]:
    function = getattr(module, "data", None)
    if not callable(function):
        raise SondaError(f"{own.path.name} has no data() to train on by epochs", f"define data() and {FORM}")
    made = call_function(own, function, "data()")
    if not isinstance(made, Mapping):
        raise SondaError(f"{own.path.name}: data() returns a {type(made).__name__}", FORM)
    unknown = next((name for name in made if name not in PARTS), None)
    if unknown is not None:
        raise SondaError(f"{own.path.name}: data() has a part {unknown!r}", nearest(str(unknown), PARTS))
    if made.get("train") is None:
        raise SondaError(f"{own.path.name}: data() has nothing to train on", FORM)
    return made


def _optimizer(own: OwnModel, module: ModuleType, model: nn.Module) -> Callable[[], torch.optim.Optimizer]:
    function = getattr(module, "optimizer", None)
    if function is None:
        return make_sgd(model, RATE)
    if not callable(function):
        raise SondaError(
            f"{own.path.name}: optimizer is a {type(function).__name__}, not a function",
            "define optimizer(model), which returns a torch.optim.Optimizer",
        )

    def make() -> torch.optim.Optimizer:
        made = call_function(own, function, "optimizer()", model)
        if not isinstance(made, torch.optim.Optimizer):
            raise SondaError(
                f"{own.path.name}: optimizer() returns a {type(made).__name__}", "return a torch.optim.Optimizer"
            )
        known = {id(parameter) for parameter in model.parameters()}
        others = sum(id(parameter) not in known for group in made.param_groups for parameter in group["params"])
        if others:
            tensors = "a tensor" if others == 1 else f"{others} tensors"
            raise SondaError(
                f"{own.path.name}: optimizer() steps {tensors} that {'is' if others == 1 else 'are'} not the model's",
                "make it from model.parameters()",
            )
        return made

    make()
    return make


def _loss(own: OwnModel, module: ModuleType, output: Any, target: Any) -> tuple[str, Callable[[Any, Any], Tensor]]:
    """The name and function of the loss, tried on a batch: the file's own, the one asked for, or the usual one."""
    function = getattr(module, "loss", None)
    if function is not None and own.loss:
        raise SondaError(f"{own.path.name} has a loss, and --loss {own.loss} is another", "give one of them")
    name = "loss()"
    if function is None:
        name = own.loss or ("cross_entropy" if _are_classes(output, target) else "mse")
        function = make_loss(name)
    if not callable(function):
        raise SondaError(f"{own.path.name}: loss is a {type(function).__name__}", "define loss(output, target)")
    try:
        value = function(output, target)
    except Exception as error:
        raise SondaError(
            f"{own.name}: the loss of output {describe_value(output)} and target {describe_value(target)} raises "
            f"{explain_error(error, own.path)}",
            "define loss(output, target) in the file, or choose with --loss",
        ) from error
    if not isinstance(value, Tensor) or value.dim() or not value.requires_grad:
        shown = f"a tensor of {describe_value(value)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        if isinstance(value, Tensor) and not value.dim():
            shown = "a number that does not depend on a parameter"
        raise SondaError(f"{own.path.name}: loss() returns {shown}", "return one number, the mean over the samples")
    return name, function


def _accuracy(own: OwnModel, module: ModuleType) -> Callable[[Any, Any], Any]:
    function = getattr(module, "accuracy", None)
    if function is None:
        return _right_share
    if not callable(function):
        raise SondaError(f"{own.path.name}: accuracy is a {type(function).__name__}", "define accuracy(output, target)")

    return function


def _right_share(output: Any, target: Any) -> Any:
    """For classes, how often the largest score is the target's; NaN for other targets."""
    if not _are_classes(output, target):
        return math.nan
    return (classes_second(output).argmax(1) == target).double().mean()


def _are_classes(output: Any, target: Any) -> bool:
    """Whether the target holds class numbers that fit the output's scores."""
    if not isinstance(output, Tensor) or not isinstance(target, Tensor) or output.dim() < 2:
        return False
    scores = classes_second(output)
    return (
        output.is_floating_point()
        and target.dtype == torch.int64
        and target.shape == (scores.shape[0], *scores.shape[2:])
    )
