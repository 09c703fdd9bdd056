"""Drives a task in PyTorch: warm-up, timed steps, and a step that is counted.

The loops are the usual ones. They announce their steps and passes, and leave the rest to the observer.
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
    """Runs a task step by step."""

    part: str

    def step(self) -> None: ...

    def state(self) -> list[Any]:
        """Tensors that stay alive between steps: weights, gradients, the optimizer's state."""


class PhaseListener(Protocol):
    """One that records the phases that a program announces itself."""

    def announce_phase(self, name: str) -> AbstractContextManager[None]:
        """The context of a phase of this name."""


class NoListener:
    """Records no phases."""

    def announce_phase(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()


def make_loop(task: Task, listener: PhaseListener, how: Driving) -> Loop:
    """A loop over the task, with its model on the device, in the precision and layout asked for."""
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
    return TrainingLoop(task, how) if how.train else _InferenceLoop(task, how, listener)


def drive_task(task: Task, observer: TorchObserver, how: Driving) -> int:
    """Run all passes of a task. Returns the number of timed steps."""
    plain = task.model
    loop = make_loop(task, observer, how)

    def step() -> None:
        with observer.span("step", loop.part):
            loop.step()

    if how.warmup:
        with observer.span("pass", "warmup"):
            for number in range(how.warmup):
                how.tell(number - how.warmup)
                step()
    _synchronize(how)
    if how.replay:
        _run_kernel_steps(observer, step, 1, how.kernels)
        return 1
    done = time_steps(how, step)
    if observer.marks is not None:
        observer.marks.note_states()
    _synchronize(how)
    if how.on_gpu or how.kernels:
        _run_kernel_steps(observer, step, KERNEL_STEPS, how.kernels)
    # A compiled model hides its operations, so they are counted on the model itself.
    task.model = plain
    with observer.count_operations(loop.state()):
        step()
    return done


def _run_kernel_steps(observer: TorchObserver, step: Callable[[], None], steps: int, together: bool) -> None:
    """Run steps whose kernels are recorded, or replayed by an outside profiler.

    `together`: other ranks run these steps too, so this rank runs them even where it records nothing.
    """
    kernel_pass = observer.kernel_pass
    if kernel_pass is not None:
        kernel_pass.begin(observer.recorder.stream())
    elif not together:
        return
    with nullcontext() if kernel_pass is not None else observer.span("pass", "kernels"):
        for _ in range(steps):
            step()
    if kernel_pass is not None:
        kernel_pass.end()


def _synchronize(how: Driving) -> None:
    """Wait for the GPU, if one is used. Called between passes, never within one."""
    if how.on_gpu:
        import torch

        torch.cuda.synchronize(how.device)


class TrainingLoop:
    """Training steps on the batches of a task."""

    part = "train"

    def __init__(self, task: Task, how: Driving) -> None:
        self.task = task
        self.how = how
        self.optimizer = task.optimizer()
        self.scaler = _make_scaler(task, how)
        self.batches = task.batches(how.workers, how.on_gpu if how.pin is None else how.pin, how.prefetch)

    def step(self) -> None:
        inputs, target = next(self.batches)
        self.learn(adapt_batch(inputs, self.how), adapt_batch(target, self.how))

    def learn(self, inputs: tuple[Any, ...], target: Any) -> Any:
        """One step on a batch that is on its device already. Returns the loss without waiting for it."""
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
        """The model's output, without gradients, for a batch that is on its device already."""
        import torch

        with torch.no_grad(), autocast(self.how):
            return self.task.model(*inputs)

    def state(self) -> list[Any]:
        weights = [*self.task.model.parameters(), *self.task.model.buffers()]
        gradients = [tensor.grad for tensor in weights if tensor.grad is not None]
        moments = [value for state in self.optimizer.state.values() for value in state.values()
                   if hasattr(value, "untyped_storage")]  # fmt: skip
        return [*weights, *gradients, *moments]


class _InferenceLoop:
    """Inference steps of a task."""

    part = "test"

    def __init__(self, task: Any, how: Driving, listener: PhaseListener) -> None:
        self.task = task
        self.how = how
        self.listener = listener
        task.inputs = adapt_batch(task.inputs, how)

    def step(self) -> None:
        with autocast(self.how):
            self.task.infer(self.listener.announce_phase)

    def state(self) -> list[Any]:
        return [*self.task.model.parameters(), *self.task.model.buffers()]


def adapt_batch(value: Any, how: Driving) -> Any:
    """A batch in the precision and layout of the model, and on its device. Nested tensors are adapted too."""
    if isinstance(value, dict):
        adapted = copy(value)  # keeps its class
        adapted.update({name: adapt_batch(item, how) for name, item in value.items()})
        return adapted
    if isinstance(value, (list, tuple)):
        items = [adapt_batch(item, how) for item in value]
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


def _make_scaler(task: Task, how: Driving) -> Any:
    """The loss scaler of a training in float16, whose small gradients would become 0 without it; None otherwise.

    A task whose gradients are spread over several processes makes its own.
    """
    if how.mixed != "float16":
        return None
    import torch

    return getattr(task, "scaler", torch.amp.GradScaler)(how.device.partition(":")[0])


def autocast(how: Driving) -> AbstractContextManager[Any]:
    """The context in which the model is called: autocast for mixed precision."""
    if not how.mixed:
        return nullcontext()
    import torch

    return torch.autocast(how.device.partition(":")[0], dtype=getattr(torch, how.mixed))
