"""Runs an unmodified program under a peer, as its user would set it up: `peer_launcher.py PEER OUTPUT PROGRAM WORD…`.

torch.profiler records the first steps of the program, or all of it where it takes fewer, with shapes and stacks, and
writes the advice of its pattern matcher. TraceML is told where steps begin and end, which it asks its user for.
"""

from __future__ import annotations

import itertools
import json
import os
import runpy
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

STEPS = 2
"""Of the optimizer. Under torch.profiler with stacks every Python call is an event, and its matcher walks through all
of them several times: five steps of a tokeniser took it minutes."""


def profile_steps(output: Path) -> Any:
    """Record from now on until so many steps are over; returns what ends it."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    recorded = profile(activities=activities, with_stack=True, record_shapes=True, profile_memory=True)
    taken = 0
    recorded.start()

    def finish() -> None:
        nonlocal taken
        if taken <= STEPS:
            taken = STEPS + 1
            recorded.stop()
            write_patterns(recorded, output)

    def count_step(*_: object) -> None:
        nonlocal taken
        taken += 1
        if taken == STEPS:
            finish()

    register_optimizer_step_post_hook(count_step)
    return finish


def write_patterns(recorded: Any, output: Path) -> None:
    """Write the names and words of the anti-patterns that are found."""
    from torch.profiler import _pattern_matcher as matcher

    try:
        matcher.report_all_anti_patterns(recorded, print_enable=False, json_report_dir=str(output))
        report = json.loads((output / "torchtidy_report.json").read_text())
        advice = {entry["name"]: entry["message"] for entries in report.values() for entry in entries}
    except ValueError:
        # The report fails on events without a line, and on names of functions that are gone: each pattern by itself.
        advice = {}
        for kind in (
            matcher.ExtraCUDACopyPattern, matcher.FP32MatMulPattern, matcher.OptimizerSingleTensorPattern,
            matcher.SynchronizedDataLoaderPattern, matcher.GradNotSetToNonePattern,
            matcher.Conv2dBiasFollowedByBatchNorm2dPattern, matcher.MatMulDimInFP16Pattern,
        ):  # fmt: skip
            with suppress(ValueError):
                pattern = kind(recorded)
                if pattern.matched_events():
                    advice[pattern.name] = pattern.description
    (output / "advice.json").write_text(json.dumps(advice))


def trace_steps() -> Any:
    """Open a step of TraceML where a loader gives a batch, or in a program without one where the step before ends;
    close it behind the optimizer. Returns what ends it."""
    import torch
    import traceml_ai
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.utils.data import dataloader

    traceml_ai.init(mode="auto")
    step, loads = ExitStack(), False
    no_input = traceml_ai.wrap_dataloader_fetch(itertools.repeat(None))
    outermost: list[torch.nn.Module] = []
    opened = ran = False

    def begin(model: torch.nn.Module) -> None:
        nonlocal opened, ran
        if not opened:
            opened, ran = True, False
            if not loads:
                next(no_input)  # without a measured wait for input it judges no step
            step.enter_context(traceml_ai.trace_step(model))

    def end(*_: object) -> None:
        nonlocal opened
        if opened and not ran:
            return  # a second optimizer of the step before
        if opened:
            opened = False
            step.close()
        if outermost and not loads:
            begin(outermost[0])

    def note_model(module: torch.nn.Module, _: object) -> None:
        nonlocal ran
        ran = True
        if not outermost:
            outermost.append(module)  # the first that is called is the one around all others

    take_next = dataloader._BaseDataLoaderIter.__next__

    def give_batch(iterator: Any) -> Any:
        nonlocal loads
        batch = take_next(iterator)
        loads = True
        if outermost:
            begin(outermost[0])
        return batch

    torch.nn.modules.module.register_module_forward_pre_hook(note_model)
    register_optimizer_step_post_hook(end)
    dataloader._BaseDataLoaderIter.__next__ = give_batch  # type: ignore[method-assign]

    def finish() -> None:
        # A step that is never finished must not count: TraceML judges none where one lacks a phase.
        with suppress(GeneratorExit):
            step.__exit__(GeneratorExit, GeneratorExit(), None)

    return finish


def main() -> None:
    peer, output, program, *words = sys.argv[1:]
    finish = profile_steps(Path(output)) if peer == "torch.profiler" else trace_steps()
    sys.argv = [program, *words]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        finish()


if __name__ == "__main__":
    main()
