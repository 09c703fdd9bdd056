"""A job: everything that one measured process needs to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sonda.record.errors import SondaError

PRECISIONS = ("float32", "tf32", "bfloat16", "float16", "float64")
FRAMEWORKS = ("torch", "jax")
IN_JAX = ("ops",)
"""Workloads that are there in JAX."""
NOT_IN_JAX = ("train", "channels_last", "workers")
"""Settings that JAX's workloads do not have; they are always compiled."""
SHORT_PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}


class Job(msgspec.Struct, kw_only=True, frozen=True):
    """What to run, how, and for how long. `options` are the workload's own parameters, as text."""

    workload: str
    options: dict[str, str] = {}
    framework: str = "torch"
    on: str = "cpu"
    train: bool = False
    steps: int | None = None
    """Timed steps; None: as many as fit into `seconds`, between 5 and 20."""
    warmup: int = 3
    seconds: float = 10.0
    seed: int = 0
    threads: int | None = None
    precision: str = "float32"
    compile: bool = False
    channels_last: bool = False
    workers: int = 0
    mapping: str = ""
    """Of a simulated accelerator: '' (its description's tiles, else a rule), stonne or best."""
    set: str = ""
    """Changes of a simulated accelerator's description: `dense.multipliers=512 memory.buffer_KiB=1024`."""
    probe: str = ""
    """Probes that are asked for beside those that are always on, by name, separated by commas: pmu, callgrind."""
    redact: bool = False
    """Keep no host name."""

    def how(self) -> dict[str, Any]:
        """The settings that change how the workload runs, for `run.json`."""
        return {
            "train": self.train,
            "precision": self.precision,
            "compile": self.compile,
            "channels_last": self.channels_last,
            "workers": self.workers,
        }


def job_of(configuration: Mapping[str, Any]) -> Job:
    """The job of a configuration: `workload`, settings of a run by name, and the workload's own options.

    Raises SondaError when a value cannot be.
    """
    settings: dict[str, Any] = {"workload": configuration.get("workload", "")}
    options: dict[str, str] = {}
    for key, value in configuration.items():
        name = key.replace("-", "_")
        if name in RUN_OPTIONS:
            settings[name] = value
        elif name != "workload":
            options[key] = as_text(value)
    try:
        return check_job(msgspec.convert({**settings, "options": options}, Job))
    except msgspec.ValidationError as error:
        # `Expected `int`, got `str` - at `$.steps``
        what, _, where = str(error).replace("`", "").partition(" - at $.")
        raise SondaError(
            f"{where} cannot be {as_text(configuration.get(where, ''))}", what[:1].lower() + what[1:]
        ) from None


def as_text(value: object) -> str:
    """A value as the command line writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def options_of(words: Sequence[str], options: Mapping[str, str]) -> dict[str, str]:
    """The workload's own options among the words of a command line: `--key value`, `--key=value`, or a bare `--key`."""
    found = dict(options)
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--") or len(word) < 3:
            raise SondaError(f"{word!r} is not an option", "write the workload's options as --name value")
        key, equals, value = word[2:].partition("=")
        if not equals:
            value = waiting.pop(0) if waiting and not waiting[0].startswith("--") else "true"
        found[key] = value
    return found


def whole_number(name: str, text: str) -> int:
    if not text.isdigit():
        raise SondaError(f"--{name} {text!r} is not a whole number", "a range such as 10:30 is for a command after --")
    return int(text)


def with_words(job: Job, words: Sequence[str]) -> Job:
    """The job with options as a remedy writes them: `--threads 2`, `--channels-last`."""
    settings = {name.replace("-", "_"): value for name, value in options_of(words, {}).items()}
    own = {name: value for name, value in settings.items() if name in RUN_OPTIONS}
    options = {**job.options, **{name: value for name, value in settings.items() if name not in RUN_OPTIONS}}
    return msgspec.convert({**msgspec.structs.asdict(job), **own, "options": options}, Job, strict=False)


def _check_framework(job: Job) -> None:
    """Raise SondaError for what the framework asked for does not run."""
    if job.framework not in FRAMEWORKS:
        raise SondaError(f"framework {job.framework!r} is not there", f"use one of {', '.join(FRAMEWORKS)}")
    if job.framework == "torch":
        return
    if job.workload not in IN_JAX:
        raise SondaError(
            f"{job.workload} is not there in JAX", f"in JAX there is {', '.join(IN_JAX)}; or use --framework torch"
        )
    if not job.on.startswith(("cpu", "cuda")):
        raise SondaError(f"JAX runs on cpu and cuda:N, not on {job.on}", "use --framework torch")
    asked = [f"--{name.replace('_', '-')}" for name in NOT_IN_JAX if getattr(job, name)]
    asked += ["--probe callgrind"] if "callgrind" in job.probe else []
    if asked:
        raise SondaError(f"{asked[0]} is not there in JAX", "leave it out, or use --framework torch")


def check_job(job: Job) -> Job:
    """The job with its words made regular; raises SondaError for what cannot be."""
    precision = SHORT_PRECISIONS.get(job.precision, job.precision)
    if precision not in PRECISIONS:
        raise SondaError(f"unknown precision {job.precision!r}", f"use one of {', '.join(PRECISIONS)}")
    _check_framework(job)
    if precision == "tf32" and "cuda" not in job.on:
        raise SondaError(f"--precision tf32 is for a GPU, not for {job.on}", "use float32 or bfloat16")
    for name, value, least in (("steps", job.steps, 1), ("warmup", job.warmup, 0), ("workers", job.workers, 0),
                               ("threads", job.threads, 1)):  # fmt: skip
        if value is not None and value < least:
            raise SondaError(f"--{name} {value} is too small", f"give {least} or more")
    if not 0 < job.seconds < 1e6:
        raise SondaError(f"--seconds {job.seconds:g} is not a time", "give more than 0")
    return msgspec.structs.replace(job, precision=precision)


RUN_OPTIONS = tuple(name for name in Job.__struct_fields__ if name not in ("workload", "options"))
"""Options that every workload has; all others are the workload's own."""
