"""Makes PyTorch announce its phases and layers, without changing anything that it computes.

Phases: data (a DataLoader's next batch), transfer (a copy to another device), forward (an outermost module, which no
other module called), loss (an outermost module that is a loss), backward, optimizer (step, zero_grad, GradScaler),
communicate.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from time import perf_counter_ns as now
from time import thread_time_ns as thread_now
from typing import Any

from ...collector.counters.process import Counting
from ...collector.generation import continues_text, mark_generation
from ...collector.page_faults import StepFaults
from ...collector.patches import PatchingObserver
from ...collector.phases import Phases
from ...collector.recorder import Recorder, Stream
from ...collector.sampling.schedule import Schedule
from ...collector.watch import ObservedFramework, watch_process
from .backward import wrap_backward
from .communication import Communication
from .compilations import compilation_facts
from .compiled import CompiledFunctions
from .counting.counter import OperationCounter
from .counting.mode_exceptions import hide_in_forward_mode, step_aside_for_inference_mode
from .data import DataPhases
from .device.device_marks import DeviceMarks
from .device.kernel_pass import CUPTI_ATTACHED, KernelPass
from .evaluations import RunningEvaluations
from .inspection.code_places import CodePlaces
from .inspection.denormals import Denormals
from .inspection.repeated_forwards import RepeatedForwards
from .layers import LayerRecorder
from .optimizers import Optimizers
from .options import Habits
from .process import begin_in_child, measure_costs
from .values import Losses, has_graph, input_address, input_shapes, tensors_in, token_sequence


class TorchObserver(PatchingObserver):
    """Patches PyTorch in `install`; `remove` restores everything."""

    def __init__(
        self, recorder: Recorder, torch: Any, schedule: Schedule, counting: Any = None, phases: Any = None
    ) -> None:
        """`counting`: counters opened before PyTorch was imported, and so before its threads. `phases`: the phases of
        this process, where it has them already, with these counters."""
        super().__init__()
        self.recorder = recorder
        self.torch = torch
        self.schedule = schedule
        self.counting = counting
        self._owns_phases = phases is None
        self.phases = phases or Phases(recorder)
        self.layers = LayerRecorder(recorder, torch)
        self.counter = OperationCounter(torch, recorder, self.layers.codes)
        self._schedule_taken = False
        """Whether a thread uses `schedule` already; further threads get a copy."""
        self._model: Any = None
        """A weak reference to the module of the last forward."""
        self._graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        """Gives a number of at least 0 in a thread in which autograd runs a backward."""
        # As `torch.compiler.is_compiling`, in fewer calls: Dynamo replaces `is_dynamo_compiling` by True.
        self._dynamo_traces, self._jit_traces = torch.compiler.is_dynamo_compiling, torch._C._get_tracing_state
        self._compiler_flags = vars(torch.compiler)
        self._tensor_type = torch.Tensor
        self._reported_steps = 0
        """Number of steps reported to the counters."""
        self._losses = Losses(torch)
        self.optimizers = Optimizers(self)
        self.layers.inspect = self.inspect_call
        self.counter.optimized = self.optimizers.weights_of_all
        on_gpu = bool(torch.version.cuda or torch.version.hip)
        self.marks = DeviceMarks(recorder, torch) if on_gpu else None
        """Marks of phases on a GPU; None where PyTorch has no GPU support."""
        self.kernel_pass = KernelPass(recorder, torch, schedule.replay) if on_gpu else None
        self._data_phases = DataPhases(torch, recorder, self.phase, self._begin_fetch, self.current_stream, self.marks)
        self.communication = Communication(self)
        self.habits = Habits(torch, recorder)
        self.denormals = Denormals(torch, self.layers.codes)
        self.repeated_forwards = RepeatedForwards(torch, CodePlaces(torch))
        self.faults = StepFaults()
        self._compiled_functions = CompiledFunctions(self)
        self._forward_code, self._loss_code = self.phases.codes["forward"], self.phases.codes["loss"]
        self.evaluations = RunningEvaluations(recorder)
        names = ("shape", "training", "graph", "module", "sequence", "idle", "address")
        self._value_codes = {name: recorder.define(kind="value", quantity=name, source="counted") for name in names}

    # ---- installing -------------------------------------------------------------------------------------------

    def install(self) -> None:
        torch = self.torch
        from torch.optim import optimizer
        from torch.utils.data import dataloader

        self.counting = self.counting or Counting(self.recorder.directory)
        if self._owns_phases:
            self.counting.define(self.recorder)
            self.phases.open(self.counting)
        self.layers.counting = self.counting if self.counting.counts_layers else None
        self.recorder.set_detail(self.schedule.detail)
        self.replace(torch.nn.Module, "__call__", lambda original: self.layers.wrap(original, self.call_outermost))
        self.replace(torch.nn.Module, "zero_grad", self.optimizers.wrap)
        self.replace(torch.optim.Optimizer, "zero_grad", self.optimizers.wrap)
        self.replace(torch.optim.Optimizer, "__init__", self.optimizers.wrap_init)
        self.replace(torch.amp.GradScaler, "unscale_", self.optimizers.wrap)
        self.replace(torch.amp.GradScaler, "update", self.optimizers.wrap)
        self.replace(torch.amp.GradScaler, "step", self.optimizers.wrap_scaler_step)
        self.replace(torch.no_grad, "__enter__", self.optimizers.wrap_enter)
        self.replace(torch.no_grad, "__exit__", self.optimizers.wrap_exit)
        for name in ("backward", "grad"):
            self.replace(torch.autograd, name, lambda original: wrap_backward(self, original))
        self.replace(dataloader.DataLoader, "__init__", self._data_phases.wrap_init)
        self.replace(dataloader.DataLoader, "__iter__", self._data_phases.wrap_iter)
        self.replace(dataloader._BaseDataLoaderIter, "__next__", self._data_phases.wrap_next)
        self.communication.install()
        self._compiled_functions.install()
        hide_in_forward_mode(self)
        step_aside_for_inference_mode(self)
        if self.marks is not None:
            for name in ("to", "cuda", "cpu"):
                self.replace(torch.Tensor, name, self._data_phases.wrap_copy)
        if self.kernel_pass is not None:
            self.replace(torch.autograd.profiler.profile, "_prepare_trace", self.kernel_pass.wrap_prepare)
        self._undo.append(optimizer.register_optimizer_step_pre_hook(self.optimizers.step_begins).remove)
        self._undo.append(optimizer.register_optimizer_step_post_hook(self.optimizers.step_ends).remove)
        self.on = True

    def remove(self) -> None:
        self.on = False
        if self.counter.stream is not None and not self.counter.stream.phases:
            self.counter.stop(self.counter.stream)
        if self.counter.ending is not None:
            self.counter.end_inspection()
        if self.kernel_pass is not None and self.kernel_pass.active:
            self.kernel_pass.end()
        if self.marks is not None:
            self.marks.finish()
        super().remove()
        self.layers.clear()
        self.phases.close()
        if self.counting is not None:
            self.counting.close()

    def current_stream(self, engine: bool = False) -> Any:
        """This thread's stream, or None when nothing is to be recorded.

        A thread of autograd's engine, which runs the backward of a GPU, has no phases and steps of its own: what it
        calls (a repeated forward, an optimizer) is a part of the backward. `engine`: give its stream anyway.
        """
        # What runs here while a function is traced would become a part of that function.
        if not self.on or self.recorder.off or self._dynamo_traces() or self._jit_traces():
            return None
        if self._compiler_flags.get("_is_compiling_flag"):
            return None
        stream = self.recorder.mine.stream
        if stream is None or stream.schedule is None:
            stream = self.recorder.stream(engine=self._graph_task() >= 0)
            if stream.engine:
                return stream if engine and not self.schedule.over else None
            stream.schedule = self.schedule.for_thread() if self._schedule_taken else self.schedule
            self._schedule_taken = True
        return None if stream.schedule.over else stream

    # ---- phases -----------------------------------------------------------------------------------------------

    def model(self) -> Any:
        """The module of the last forward; None where there is none."""
        return self._model() if self._model is not None else None

    def open(self, stream: Stream, code: int) -> None:
        """Open a phase. Its operations are counted when this step is counted."""
        mode = None
        if self.counter.ending is stream:
            self.counter.end_inspection()
        if self.counter.stream is stream:
            self.counter.between_ends()
            self.counter.phase_begins(stream)
            mode = self.counter.mode(stream)
            if mode is not None:
                mode.__enter__()
        begin = stream.begin  # a local name: the interpreter calls a method through a slot more slowly
        begin(code, mode)
        if self.marks is not None:
            stream.push((self.marks.begin, self.marks.mark()))

    def close(self, stream: Stream, code: int) -> None:
        """Close this phase, and the phases that an exception left open inside of it."""
        while stream.phases:
            opened, mode = stream.phases[-1][:2]
            if mode is not None:
                mode.__exit__(None, None, None)
            if self.counter.stream is stream:
                self.counter.phase_ends(stream)
            if self.marks is not None:
                stream.push((self.marks.end, self.marks.mark()))
            end = stream.end
            end()
            if opened == code:
                break
        if self.counter.stream is stream:
            self._count_between(stream)

    def _count_between(self, stream: Stream) -> None:
        """Count what a training step computes outside of phases, where this thread counts it."""
        schedule = stream.schedule  # a driver that counts a step itself has none
        if self.counter.stream is stream and not stream.phases and schedule is not None and schedule.learned:
            self.counter.between_begins(stream)

    @contextmanager
    def phase(self, stream: Stream, code: int) -> Any:
        """The context of a phase."""
        self.open(stream, code)
        try:
            yield
        finally:
            self.close(stream, code)

    def announce_phase(self, name: str) -> Any:
        """The context of a phase that the program itself announces, such as prefill."""
        return self.phase(self.recorder.stream(), self.recorder.define(kind="phase", name=name))

    def span(self, kind: str, name: str) -> Any:
        """The context of any other span that the program itself announces: a step, a pass."""
        return self.recorder.span(kind, name, self.counting)

    @contextmanager
    def count_operations(self, tensors: Any) -> Any:
        """Count all operations of the block; `tensors` exist already."""
        stream = self.recorder.stream()
        self.counter.start(stream, tensors)
        try:
            yield
        finally:
            self.counter.stop(stream)

    # ---- forward ----------------------------------------------------------------------------------------------

    def call_outermost(self, call: Any, module: Any, args: tuple, kwargs: dict) -> Any:
        """Call an outermost module: as a forward, as a loss, or as a part of a phase that is open already."""
        stream = self.current_stream(engine=True)
        if stream is None:
            return call(module, *args, **kwargs)
        if stream.phases:
            self.optimizers.close_abandoned(stream)
        if stream.updating:
            self.optimizers.end_update(stream)
        code = self.layers.codes.get(id(module))
        if code is None:
            code = self.layers.define_root(module)
            if not code:
                return call(module, *args, **kwargs)
        # DataParallel calls its replicas in their own threads; the forward belongs to the module that waits for them.
        part = stream.engine or "_is_replica" in vars(module)
        if part or (stream.phases and stream.phases[-1][0] != self.optimizers.step):
            self._adopt_tensors(stream, module, args, kwargs)
            result = self._call_recorded(stream, code, call, module, args, kwargs)
            self.counter.forward_ends(stream)
            return result
        if self._losses.is_loss(code, module, args, kwargs):
            if self.counter.active:
                self.inspect_call(stream, module, code, args, kwargs)
            self.open(stream, self._loss_code)
            try:
                return self._call_recorded(stream, code, call, module, args, kwargs)
            finally:
                self.close(stream, self._loss_code)
        learns, training = self.torch.is_grad_enabled(), bool(module.training)
        if self._model is None or self._model() is not module:
            self._model = weakref.ref(module)
        shape, values = self._begin_forward(stream, code, learns, training, args, kwargs)
        schedule = stream.schedule
        if schedule.counting or schedule.kernels or schedule.detail != stream.detail or self.counter.active:
            self.follow_schedule(stream, module)
        if learns and stream.detail:
            # The backward of what made the input is no part of this module.
            self.layers.mark_all(args[0] if len(args) == 1 and not kwargs else (args, kwargs), stream, 0)
        if self.counter.active:
            self._adopt_tensors(stream, module, args, kwargs)
            self.inspect_call(stream, module, code, args, kwargs)
        calls = self.habits.notice(module, args, learns and training)
        codes = self._value_codes
        self.open(stream, self._forward_code)
        values += codes["shape"], shape, codes["training"], int(training), codes["module"], code >> 1
        again = 0 if learns or self.counter.active else self.repeated_forwards.begin(module, code, args, kwargs)
        try:
            result = self._call_recorded(stream, code, call, module, args, kwargs)
            self.repeated_forwards.end(code, again, result)
            graph = learns and (
                result.requires_grad if type(result) is self._tensor_type else has_graph(self.torch, result)
            )
            values += codes["graph"], int(graph)
            if self.counter.active:
                self.counter.forward_ends(stream)
                if graph and self.counter.stream is stream and self.counter.inspection is not None:
                    self.counter.inspection.note_result(code, result)
        finally:
            stream.push(values)
            self.close(stream, self._forward_code)
        if calls:
            self.denormals.look_at_module(module, result, calls)
        if not graph:
            stream.resting = now(), thread_now()
        schedule.end_forward(graph, now(), self.recorder.written)
        if schedule.steps != self._reported_steps or self.counter.active:
            self.follow_schedule(stream, module)
            self._count_between(stream)
        return result

    def _begin_forward(
        self, stream: Stream, code: int, learns: bool, training: bool, args: tuple, kwargs: dict
    ) -> tuple[int, tuple]:
        """Report a forward to the schedule. Returns the number of its input shape, and the values of its phase."""
        schedule = stream.schedule
        shapes = input_shapes(self.torch, args, kwargs)
        # A driver that counts a step itself may count the plain model in place of the compiled one.
        module_code = code if schedule.count else 0
        shape, new = schedule.shape_number(shapes)
        if new and schedule.count and all(shapes):
            self.recorder.state(shape=shape, dims=shapes)
        if learns:
            if schedule.backwards:
                schedule.end_step_by_hand(now(), self.recorder.written, self.optimizers.in_use())
            if training:
                schedule.begin_forward(module_code, shape, learns, training)
                stream.sequence = (0, 0, False)
                return shape, ()
        codes = self._value_codes
        values: tuple = codes["address"], input_address(self.torch, args, kwargs), *self.evaluations.forward_values()
        continues = False
        sequence = mark_generation(token_sequence(self.torch, args, kwargs))
        if sequence:
            module, last, running = stream.sequence
            continues = module == code and continues_text(last, sequence, running)
            values += codes["sequence"], sequence
        stream.sequence = (code, sequence, continues)
        if stream.resting:
            ended, spent = stream.resting
            values += codes["idle"], max(0, now() - ended - (thread_now() - spent))
        schedule.begin_forward(module_code, shape, learns, training, continues)
        return shape, values

    def _adopt_tensors(self, stream: Stream, module: Any, args: tuple, kwargs: dict) -> None:
        """Let the counter adopt the module's weights and inputs, where this thread counts."""
        if self.counter.stream is stream:
            self.counter.forward_begins(stream, module, tensors_in(self.torch, (args, kwargs)))

    def inspect_call(self, stream: Stream, module: Any, code: int, args: tuple, kwargs: dict) -> None:
        """Note a call of a module in a step that this thread counts."""
        inspection = self.counter.inspection
        if inspection is not None and self.counter.stream is stream:
            caller = stream.layers[-1] if stream.layers else 0
            inspection.note_call(module, code, args, kwargs, caller, stream.backward > 0)

    def _call_recorded(self, stream: Stream, code: int, call: Any, module: Any, args: tuple, kwargs: dict) -> Any:
        """Call a module as the outermost layer, and mark its result for backward."""
        detail = stream.detail
        stream.layers.append(code)
        if detail:
            self.layers.begin(stream, code)
        try:
            result = call(module, *args, **kwargs)
        finally:
            if detail:
                self.layers.end(stream, code)
            stream.layers.pop()
        if detail and self.torch.is_grad_enabled():
            self.layers.mark_all(result, stream, code)
        return result

    def follow_schedule(self, stream: Stream, module: Any = None, weights: Any = None) -> None:
        """Start or stop counting, kernels and detail as the schedule says, unless a phase is open.

        `module` is about to run; or a step without modules begins, with these weights.
        """
        if stream.phases:
            return
        schedule = stream.schedule
        if self.counting is not None and self._reported_steps != schedule.steps and schedule is self.schedule:
            self._reported_steps = schedule.steps
            if len(self.counting.sets) > 1:
                self.counting.note_steps(schedule.steps)
        if schedule.profile and self.kernel_pass is not None and schedule is self.schedule:
            self._follow_kernels(stream, schedule.kernels)
        if self.counter.exhausted and schedule.count:
            schedule.end_counting()
        if schedule.count and schedule.counting != (self.counter.stream is stream):
            if self.counter.stream is stream:
                # Without modules no phase but a backward comes next: what follows is the next step.
                self.counter.stop(stream, follows=self.optimizers.stepped and not schedule.bare)
            elif self.counter.is_free() and (module is not None or weights):
                tensors = [*module.parameters(), *module.buffers()] if module is not None else weights
                gradients = [tensor.grad for tensor in tensors if tensor.is_leaf and tensor.grad is not None]
                self.counter.start(stream, [*tensors, *gradients], limited=True)
                if module is None:
                    self.counter.between_begins(stream)
        if schedule.detail != stream.detail:
            self.recorder.set_detail(schedule.detail, stream)

    def _follow_kernels(self, stream: Stream, wanted: bool) -> None:
        """Begin or end the steps whose kernels are recorded. A program that has not used its GPU has no such steps."""
        kernels = self.kernel_pass
        if kernels is None or wanted == kernels.active:
            return
        if not wanted:
            kernels.end()
            if kernels.attached:
                self.schedule.notes.append(CUPTI_ATTACHED)
        elif self.torch.cuda.is_initialized():
            if self.marks is not None:
                self.marks.note_states()
            kernels.begin(stream)

    # ---- data -------------------------------------------------------------------------------------------------

    def _begin_fetch(self) -> Any:
        """Prepare for fetching data. Returns the stream, or None where fetching is no phase of its own."""
        stream = self.current_stream()
        if stream is None:
            return None
        self.optimizers.close_abandoned(stream)
        if stream.updating:
            self.optimizers.end_update(stream)
        if stream.phases:
            return None
        stream.resting = ()
        stream.schedule.end_step_by_hand(now(), self.recorder.written, self.optimizers.in_use())
        stream.schedule.begin_fetch()
        self.follow_schedule(stream)
        return stream


def observe_torch(torch: Any, settings: dict, counting: Any = None) -> None:
    """Observe PyTorch in this process until it ends. `counting` are counters that are open already."""
    watch = watch_process(settings, counting)
    observer = TorchObserver(watch.recorder, torch, watch.schedule, watch.counting, watch.phases)
    observer.install()
    watch.torch = observer
    observer.replace(torch, "set_num_threads", observer.habits.wrap_set_threads)
    observer.replace(torch, "set_default_dtype", observer.habits.wrap_precision)
    observer.replace(torch.nn.Module, "to", observer.habits.wrap_precision)
    observer.replace(torch.nn.Module, "double", observer.habits.wrap_double)
    if observer.marks is not None:
        observer.replace(torch.cuda.CUDAGraph, "replay", observer.habits.wrap_replay)

    def steps() -> int:
        """Steps of the schedule, without those that other frameworks announced."""
        others = [framework for framework in watch.observed if framework is not observed]
        return watch.schedule.steps - sum(framework.steps() for framework in others)

    observed = ObservedFramework(
        "torch",
        observer.remove,
        steps,
        observer.habits.threads,
        lambda: measure_costs(observer),
        lambda: {
            **({"habits": observer.habits.facts()} if observer.habits.noticed else {}),
            **observer.denormals.facts(),
            **observer.repeated_forwards.facts(),
            **observer.faults.facts(),
            **compilation_facts(),
        },
        lambda stream: begin_in_child(observer, watch.schedule, stream),
    )
    watch.add(observed, torch=str(torch.__version__))
    watch.recorder.state(isa=torch.backends.cpu.get_cpu_capability())
