"""A try: steps of a program are timed, their losses kept, and the process ended once there are enough.

A step ends with that of the optimizer that stepped first. In a program without one it is a call of the module that was
called first. Steps of a GPU are timed in blocks, because the host is ahead of it.
"""

from __future__ import annotations

import atexit
import inspect
import json
import multiprocessing
import os
import sys
import threading
from time import perf_counter_ns as now
from typing import Any

from . import remedies
from .guard import Guard
from .survey import Survey

RESULT, CLAIM = "trial.json", "process"
"""Files in the directory of a try: what was seen, and the number of the process that is tried."""
CANNOT_TRY = 125
"""Exit code of a process that cannot be tried."""
BLOCKS = 8
"""In which the steps of a GPU are timed."""
MOST_WARMUP = 40
"""Steps after which compiling has had its time."""
_sessions: list = []


def guard_process(settings: dict) -> None:
    """Begin before the program's own code: from here on it is ended before it does what a try must not do."""
    session = TrialSession(settings)
    _sessions[:] = [session]
    session.guard = Guard(settings["directory"], session.refuse)
    atexit.register(session.end_early)


def begin_trial(torch: Any, _settings: dict, _counting: Any = None) -> None:
    """PyTorch is imported: apply the remedy and wait for steps.

    Where that fails the process ends: a program that cannot be stopped must not run.
    """
    try:
        _sessions[0].attach(torch)
    except Exception as error:
        sys.stderr.write(f"TrialError: Sonda cannot try this program: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(CANNOT_TRY)


class TrialSession:
    """`settings["trial"]`: `remedy` and its `value`, steps of `warmup` and timed `steps`, and whether `optimizer`s end
    steps."""

    def __init__(self, settings: dict) -> None:
        trial = settings["trial"]
        self.directory = settings["directory"]
        self.process = 0
        """The first that imports PyTorch; others, such as workers of a loader, only have the guard."""
        self.remedy, self.value = trial.get("remedy", ""), trial.get("value")
        self.warmup, self.steps, self.by_optimizer = trial["warmup"], trial["steps"], trial["optimizer"]
        self.guard: Any = None
        self.torch: Any = None
        self.survey: Any = None
        self.begin = now()
        self.first = 0
        """When the first step ended."""
        self.stepper: int = 0
        """Identity of the optimizer or module whose steps count."""
        self.seen = 0
        self.calm = 0
        """Steps since something was compiled."""
        self.graphs = 0
        self.timing = False
        self.blocks: list = []
        """ns a step and samples a step of every block."""
        self.block_begin = 0
        self.block_steps = 0
        self.block_samples = 0
        self.samples = 0
        self.losses: list = []
        self.loss: Any = None
        self.inside = threading.local()
        self.applied = 0
        """How many places the remedy has changed."""

    # ---- attaching --------------------------------------------------------------------------------------------

    def attach(self, torch: Any) -> None:
        """Replace the functions of PyTorch that a remedy or a step concerns."""
        try:
            claim = os.open(os.path.join(self.directory, CLAIM), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            os.close(claim)
        except FileExistsError:
            return
        self.process = os.getpid()
        self.torch, self.survey = torch, Survey(torch)
        self._wrap_threads(torch)
        remedies.apply_at_import(torch, self.remedy, self.value)
        self.applied += self.remedy in ("threads", "tf32")
        self._wrap_modules(torch.nn.Module)
        self._wrap_loader(torch.utils.data.DataLoader)
        for kind in {kind for kind in vars(torch.optim).values() if isinstance(kind, type)}:
            if issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer:
                self._wrap_optimizer(kind)
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(self._optimizer_stepped)
        self._wrap_backward(torch)
        for owner in (torch, torch.jit):
            owner.save = self._wrap_save(owner.save)
        torch.compile = self._wrap_compile(torch.compile)

    def _wrap_threads(self, torch: Any) -> None:
        original, survey = torch.set_num_threads, self.survey

        def set_num_threads(count: int) -> None:
            from .survey import user_place

            survey.set_threads = user_place()
            original(count)
            survey.threads = torch.get_num_threads()

        torch.set_num_threads = set_num_threads

    def _wrap_modules(self, kind: Any) -> None:
        session, survey, torch, remedy = self, self.survey, self.torch, self.remedy
        make, call, inside = kind.__init__, kind.__call__, self.inside

        def make_module(module: Any, *args: Any, **kwargs: Any) -> None:
            make(module, *args, **kwargs)
            survey.note_module(module)

        def call_module(module: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(inside, "module", False):
                return call(module, *args, **kwargs)
            if module not in survey.called:
                survey.note_call(module)
                if any(True for _ in module.parameters()):
                    remedies.prepare_model(torch, remedy, module)
                    session.applied += remedy in ("channels_last", "compile", "autocast")
            inside.module = True
            try:
                with remedies.around_call(torch, remedy, module):
                    result = call(module, *args, **kwargs)
            finally:
                inside.module = False
            survey.note_result(module, result)
            session._module_called(module, args, kwargs)
            return remedies.finish_result(torch, remedy, result)

        kind.__init__, kind.__call__ = make_module, call_module

    def _wrap_loader(self, kind: Any) -> None:
        session, make = self, kind.__init__
        signature = inspect.signature(make)

        def make_loader(loader: Any, *args: Any, **kwargs: Any) -> None:
            changed = remedies.loader_settings(signature, session.remedy, session.value, args, kwargs)
            if changed:
                session.applied += 1
                given = signature.bind_partial(loader, *args, **kwargs).arguments
                given.pop("self", None)
                args, kwargs = (), {**given, **changed}
            make(loader, *args, **kwargs)
            session.survey.note_loader(loader)

        kind.__init__ = make_loader

    def _wrap_optimizer(self, kind: Any) -> None:
        session, make = self, kind.__init__
        known = inspect.signature(make).parameters

        def make_optimizer(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            outermost = type(optimizer) is kind
            changed = remedies.optimizer_settings(known, session.remedy, kwargs) if outermost else {}
            session.applied += bool(changed)
            make(optimizer, *args, **{**kwargs, **changed})
            if outermost:
                session.survey.note_optimizer(optimizer, known)

        kind.__init__ = make_optimizer

    def _wrap_backward(self, torch: Any) -> None:
        original = torch.autograd.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            self._loss_seen(tensors)
            return original(tensors, *args, **kwargs)

        torch.autograd.backward = backward  # `Tensor.backward` calls it by this name

    def _wrap_save(self, original: Any) -> Any:
        def save(*args: Any, **kwargs: Any) -> Any:
            path = args[1] if len(args) > 1 else kwargs.get("f")
            if isinstance(path, (str, os.PathLike)) and self.guard is not None and self.guard.on:
                self.guard.refuse_writing(path)
            return original(*args, **kwargs)

        return save

    def _wrap_compile(self, original: Any) -> Any:
        def compile(*args: Any, **kwargs: Any) -> Any:
            self.survey.compiles = True
            return original(*args, **kwargs)

        return compile

    # ---- steps ------------------------------------------------------------------------------------------------

    def _module_called(self, module: Any, args: tuple, kwargs: dict) -> None:
        tensor = next(
            (one for one in (*args, *kwargs.values()) if isinstance(one, self.torch.Tensor) and one.dim()), None
        )
        if tensor is not None and (self.torch.is_grad_enabled() or not self.by_optimizer):
            self.samples += tensor.shape[0]
        if not self.by_optimizer and any(True for _ in module.parameters()):
            self._step_ended(id(module))

    def _loss_seen(self, tensors: Any) -> None:
        tensor = tensors if isinstance(tensors, self.torch.Tensor) else next(iter(tensors), None)
        if tensor is not None and tensor.numel() == 1:
            value = tensor.detach().reshape(()).float()
            self.loss = value if self.loss is None else self.loss + value

    def _optimizer_stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self.by_optimizer:
            self._step_ended(id(optimizer))

    def _step_ended(self, identity: int) -> None:
        if os.getpid() != self.process or identity != (self.stepper or identity):
            return
        self.stepper = identity
        self.first = self.first or now()
        self.seen += 1
        self.losses.append(self.loss)
        self.loss = None
        samples, self.samples = self.samples, 0
        if not self.timing:
            self._warm_up()
            return
        self.block_steps += 1
        self.block_samples += samples
        cuda = self.torch.cuda
        is_async = cuda.is_available() and cuda.is_initialized()
        if is_async and self.block_steps < max(1, self.steps // BLOCKS):
            return
        if is_async:
            cuda.synchronize()
        end = now()
        self.blocks.append({
            "ns": (end - self.block_begin) / self.block_steps, "steps": self.block_steps,
            "samples": self.block_samples / self.block_steps,
        })  # fmt: skip
        self.block_begin, self.block_steps, self.block_samples = end, 0, 0
        if sum(block["steps"] for block in self.blocks) >= self.steps:
            self.end("")

    def _warm_up(self) -> None:
        """A step of the warm-up has ended; timing begins once nothing is compiled any more."""
        graphs = 0
        dynamo = sys.modules.get("torch._dynamo.utils")
        if dynamo is not None:
            graphs = dynamo.counters["stats"]["unique_graphs"]
        self.calm = 0 if graphs != self.graphs else self.calm + 1
        self.graphs = graphs
        if self.calm >= self.warmup or self.seen >= MOST_WARMUP + self.warmup:
            cuda = self.torch.cuda
            if cuda.is_available() and cuda.is_initialized():
                cuda.synchronize()
            self.timing, self.block_begin = True, now()

    # ---- the end ----------------------------------------------------------------------------------------------

    def refuse(self, reason: str) -> None:
        """The program is about to do what a try must not do: end here, before it is done."""
        self.end(reason)

    def end_early(self) -> None:
        """The program ends by itself."""
        if os.getpid() == self.process:
            self._write("", ended=True)

    def end(self, refused: str) -> None:
        """Keep what was seen and end this process at once: nothing of the program's runs any more."""
        self.guard.on = False
        try:
            self._write(refused)
        finally:
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except Exception:
                    pass
            if os.getpid() == self.process:
                for child in multiprocessing.active_children():
                    child.kill()
            os._exit(0)

    def _write(self, refused: str, ended: bool = False) -> None:
        child = os.getpid() != self.process
        self.guard.on = False
        document = {
            "blocks": self.blocks, "losses": [], "seen": self.seen, "refused": refused, "ended": ended,
            "applied": self.applied, "first_ns": self.first - self.begin if self.first else 0,
            "warmup_ns": self.block_begin - self.first if self.timing and not self.blocks else 0,
        }  # fmt: skip
        if not child:
            document["losses"] = [None if loss is None else float(loss) for loss in self.losses]
            if self.survey is not None:
                document["survey"] = self.survey.facts()
        name = os.path.join(self.directory, f"refused-{os.getpid()}.json" if child else RESULT)
        with open(f"{name}.part", "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.replace(f"{name}.part", name)
