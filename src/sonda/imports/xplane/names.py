"""What events of profiles are, by their names: TensorFlow's, XLA's and PjRt's sources give them, the files repeat them.

Seen in profiles of TensorFlow 2.21, JAX 0.10 and 0.11.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sonda.imports.trace.raw_events import COMPILE, OP
from sonda.record.conventions.profile_names import DRIVER, EAGER_PATH, GET_NEXT, LAUNCHING, PIPELINE_PATH

FRAME = "$"
"""How JAX begins the name of a frame of Python."""
MOMENTS = ("ThreadpoolListener::", "MemoryAllocation", "MemoryDeallocation")
"""Beginnings of names of the profiler's own marks, which take no time."""
COMPILING = (
    "tf.function-graph_building", "lower_sharding_computation", "backend_compile", "XlaCompil", "XlaCompileOp",
    "PjRtCpuClient::Compile", "PjRtCApiClient::Compile", "TfrtGpuClient::Compile", "StreamExecutorGpuClient::Compile",
    "CpuCompiler::", "GpuCompiler::", "NVPTXCompiler::", "HloPassPipeline",
)  # fmt: skip
"""Beginnings of names: tracing, lowering, compiling."""
COMPILERS = re.compile(r"tf_(?:PjRtCompiler|xla-cpu-codegen|xla-cpu-llvm|Compiler)\w*", re.IGNORECASE)
"""Threads that do nothing else."""
PIPELINE = re.compile(r"tf_data_")
"""Threads of tf.data, which prepare what steps will ask for."""
EAGER = "EagerLocalExecute: "
FUNCTION = "EagerLocalExecute: __inference_"
"""The call of a function's graph; its name goes on with the function's and a number that no other graph has."""
JITTED = re.compile(r"PjitFunction\((.*)\)")
BETWEEN = "\x1f"
"""Between name and path in the table of names."""


@dataclass(frozen=True)
class EventMeaning:
    """Of events of one name on one thread. None of `kind` is to be left out, for `reason`."""

    name: str = ""
    path: str = ""
    """Where an operation stands in the model, or in the input pipeline."""
    kind: int | None = OP
    reason: str = ""


def host_meaning(name: str, shown: str, line: str) -> EventMeaning:
    """What an event of a thread is, from its long and its short name and the thread's."""
    if name.startswith(FRAME):
        return EventMeaning(kind=None, reason="are frames of Python")
    if name.startswith(MOMENTS):
        return EventMeaning(kind=None, reason="are marks of the profiler that take no time")
    if COMPILERS.match(line) or name.startswith(COMPILING):
        return EventMeaning(name, kind=COMPILE)
    if name.startswith(GET_NEXT):
        return EventMeaning(name if name.startswith(EAGER) else shown)
    path, colon, kind = name.rpartition(":")
    operation = bool(colon) and kind == shown and not path.endswith(":")
    if PIPELINE.match(line):
        return EventMeaning(shown, f"{PIPELINE_PATH}/{path}" if operation else PIPELINE_PATH)
    if operation:
        return EventMeaning(shown, path)
    if name.startswith(EAGER) and not name.startswith(FUNCTION):
        # Without a graph nothing inside the call says when the operation itself runs.
        kind = name.removeprefix(EAGER)
        return EventMeaning(kind, f"{EAGER_PATH}/{kind}")
    return EventMeaning(shown)


def launch_name(name: str) -> str:
    """The name of a call that a device's activity may be linked to."""
    return name if DRIVER.match(name) or name.startswith(LAUNCHING) else f"{LAUNCHING}{name}"


def device_path(operation: str, module: str, instruction: str) -> str:
    """Where an activity of a device stands in the model, from `tf_op`, `hlo_module` and `hlo_op`."""
    path = operation.rpartition(":")[0] if ":" in operation else operation
    if path and path != "XlaModule":
        return path
    return "/".join(word for word in (module, instruction) if word)


def function_name(name: str) -> str:
    """`EagerLocalExecute: __inference_step_974` -> `step_974`."""
    return name.removeprefix(FUNCTION)
