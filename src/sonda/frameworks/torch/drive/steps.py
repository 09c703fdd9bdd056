"""Drives a task in PyTorch: warm-up, timed steps, and a step that is counted.

The loops are what anybody would write; they announce their steps and passes and leave the rest to the observer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol

from sonda.frameworks.harness.settings import KERNEL_STEPS, Driving, time_steps
from sonda.frameworks.torch.drive.determinism import be_deterministic
from sonda.record.protocols import Task

if TYPE_CHECKING:
    from sonda.frameworks.torch.observe.observer import TorchObserver


class Loop(Protocol):
    """One step after another."""

    part: str

    def step(self) -> None: ...

    def state(self) -> list[Any]:
        """Tensors that exist between steps: weights, gradients, the optimizer's state."""


class Announcer(Protocol):
    """Whoever is told of the phases that a program announces itself."""

    def announced(self, name: str) -> AbstractContextManager[None]: ...


class Unheard:
    """Told of phases that nobody listens to."""

    def announced(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()


def loop_of(task: Task, announcer: Announcer, how: Driving) -> Loop:
    """The task in the precision and layout that were asked for, ready to step."""
    import torch

    if how.deterministic:
        be_deterministic()
    task.model.train(how.train)
    if how.on_gpu:
        # float32 means float32: PyTorch lets convolutions use TF32 by default.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = how.precision == "tf32"
        task.model.to(how.device)
        if isinstance(task.loss, torch.nn.Module):
            task.loss.to(how.device)
    if how.whole:
        task.model.to(getattr(torch, how.whole))
    if how.channels_last:
        task.model.to(memory_format=torch.channels_last)
    if how.compile:
        task.model = torch.compile(task.model)
    return Training(task, how) if how.train else _Inference(task, how, announcer)


def drive(task: Task, observer: TorchObserver, how: Driving) -> int:
    """Run the task as asked; returns the number of timed steps."""
    plain = task.model
    loop = loop_of(task, observer, how)

    def step() -> None:
        with observer.span("step", loop.part):
            loop.step()

    if how.warmup:
        with observer.span("pass", "warmup"):
            for number in range(how.warmup):
                how.tell(number - how.warmup)
                step()
    _wait(how)
    if how.replay:
        _with_kernels(observer, step, 1, how.kernels)
        return 1
    done = time_steps(how, step)
    if observer.marks is not None:
        observer.marks.note_states()
    _wait(how)
    if how.on_gpu or how.kernels:
        _with_kernels(observer, step, KERNEL_STEPS, how.kernels)
    # A compiled model hides its operations, so they are counted on the model itself.
    task.model = plain
    with observer.counted(loop.state()):
        step()
    return done


def _with_kernels(observer: TorchObserver, step: Callable[[], None], steps: int, together: bool) -> None:
    """Steps of their own, whose kernels are recorded or, for a profiler outside, replayed.

    `together`: other ranks take them too, so they are taken where nothing can be recorded.
    """
    recorded = observer.kernel_pass
    if recorded is not None:
        recorded.begin(observer.recorder.stream())
    elif not together:
        return
    with nullcontext() if recorded is not None else observer.span("pass", "kernels"):
        for _ in range(steps):
            step()
    if recorded is not None:
        recorded.end()


def _wait(how: Driving) -> None:
    """Until a GPU has done what was asked of it: between passes, never within one."""
    if how.on_gpu:
        import torch

        torch.cuda.synchronize(how.device)


class Training:
    part = "train"

    def __init__(self, task: Task, how: Driving) -> None:
        self.task = task
        self.how = how
        self.optimizer = task.optimizer()
        self.scaler = _scaler(task, how)
        self.batches = task.batches(how.workers, how.on_gpu if how.pin is None else how.pin, how.prefetch)

    def step(self) -> None:
        inputs, target = next(self.batches)
        self.learn(adapted(inputs, self.how), adapted(target, self.how))

    def learn(self, inputs: tuple[Any, ...], target: Any) -> Any:
        """One step on a batch that is on its device already; returns the loss, which nobody has waited for."""
        self.optimizer.zero_grad()
        with autocast(self.how):
            output = self.task.model(*inputs)
            loss = self.task.loss(output, target)
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss.detach()

    def answer(self, inputs: tuple[Any, ...]) -> Any:
        """What the model, in evaluation, says to a batch that is on its device already."""
        import torch

        with torch.no_grad(), autocast(self.how):
            return self.task.model(*inputs)

    def state(self) -> list[Any]:
        weights = [*self.task.model.parameters(), *self.task.model.buffers()]
        gradients = [tensor.grad for tensor in weights if tensor.grad is not None]
        moments = [value for state in self.optimizer.state.values() for value in state.values()
                   if hasattr(value, "untyped_storage")]  # fmt: skip
        return [*weights, *gradients, *moments]


class _Inference:
    part = "test"

    def __init__(self, task: Any, how: Driving, announcer: Announcer) -> None:
        self.task = task
        self.how = how
        self.announcer = announcer
        task.inputs = adapted(task.inputs, how)

    def step(self) -> None:
        with autocast(self.how):
            self.task.infer(self.announcer.announced)

    def state(self) -> list[Any]:
        return [*self.task.model.parameters(), *self.task.model.buffers()]


def adapted(value: Any, how: Driving) -> Any:
    """A batch in the precision and layout of the model, and on its device; tensors may be nested."""
    if isinstance(value, dict):
        found = copy(value)  # of its own class
        found.update({name: adapted(item, how) for name, item in value.items()})
        return found
    if isinstance(value, (list, tuple)):
        items = [adapted(item, how) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if not hasattr(value, "is_floating_point"):
        return value
    if how.on_gpu and value.device.type == "cpu":
        value = value.to(how.device, non_blocking=True)
    import torch

    if how.whole and value.is_floating_point():
        value = value.to(getattr(torch, how.whole))
    if how.channels_last and value.dim() == 4:
        value = value.contiguous(memory_format=torch.channels_last)
    return value


def _scaler(task: Task, how: Driving) -> Any:
    """Scales the loss of a training whose gradients are float16, which would lose the small ones; None for others. A
    task whose gradients lie in several processes has one of its own."""
    if how.mixed != "float16":
        return None
    import torch

    return getattr(task, "scaler", torch.amp.GradScaler)(how.device.partition(":")[0])


def autocast(how: Driving) -> AbstractContextManager[Any]:
    """In which the model is called."""
    if not how.mixed:
        return nullcontext()
    import torch

    return torch.autocast(how.device.partition(":")[0], dtype=getattr(torch, how.mixed))
