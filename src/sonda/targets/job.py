"""A job: everything that one measured process needs to know."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from sonda.record.errors import SondaError, nearest
from sonda.targets.adapters.registry import check_framework
from sonda.targets.target import parse_whole

PRECISIONS = ("float32", "tf32", "bfloat16", "float16", "mixed_bfloat16", "mixed_float16", "float64")
"""`bfloat16` and `float16`: weights, data and arithmetic. `mixed_`: weights in float32, arithmetic in the short one
where the framework holds that to be safe (`torch.autocast`, Keras' policy), the loss scaled where it is float16."""
SHORT_PRECISIONS = {
    "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64", "mixed_bf16": "mixed_bfloat16",
    "mixed_fp16": "mixed_float16",
}  # fmt: skip
JOB, OUTCOME = "job.json", "outcome.json"
"""In the directory of the process: the job itself, and what became of it."""
BINDINGS = ("none", "compact", "spread")
CORES = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
LEAST_VALUES = {
    "steps": 1, "warmup": 0, "epochs": 0, "images": 0, "seed": 0,
    "workers": 0, "threads": 1, "inter_op_threads": 1, "gpu_private_threads": 0, "prefetch": 0,
}  # fmt: skip
"""The least that a setting may be."""


class Job(msgspec.Struct, kw_only=True, frozen=True):
    """What to run, how, and for how long. `options` are the workload's own parameters, as text."""

    workload: str
    options: dict[str, str] = {}
    framework: str = "torch"
    on: str = "cpu"
    train: bool = False
    steps: int | None = None
    """Timed steps; None: as many as fit into `seconds`, from 6 to 20, on a GPU to 100."""
    warmup: int = 3
    seconds: float = 10.0
    epochs: int = 0
    """A whole training of so many epochs on `data` instead of timed steps; 0: timed steps."""
    split: str = "0.85/0.02/0.13"
    """Of a whole training: shares for training, validation and test."""
    images: int = 0
    """Of a whole training: images of each class at most; 0: all, of drawn ones 1,000."""
    transfer: str = "batch"
    """Of a whole training: images go to the device batch by batch, or all of them up-front."""
    checkpoint: str = ""
    """Of a whole training: directory of its checkpoints; '': in the store."""
    seed: int = 0
    threads: int | None = None
    """Of one operation (intra-op)."""
    inter_op_threads: int | None = None
    """That run operations side by side; None: as the framework has it."""
    bind: str = "none"
    """Cores of the threads: none (the system moves them), compact (cores side by side first), spread (as far apart as
    can be), or a list such as 0,2,4-7."""
    gpu_private_threads: int = 0
    """Threads for one GPU alone that launch its kernels (TF_GPU_THREAD_MODE=gpu_private); 0: the common ones do."""
    precision: str = "float32"
    compile: bool = False
    channels_last: bool = False
    deterministic: bool = False
    """The same bits every time, also where that is slower; shares and who takes part are then given, not measured."""
    data: str = ""
    """Images to train on: a folder that `sonda data` knows, or `drawn`; '': numbers that are in memory already."""
    workers: int = 0
    """Processes, or threads where the framework has those, that load data."""
    prefetch: int | None = None
    """Batches that are loaded ahead; None: as the framework has it, 0: none."""
    cache: bool = False
    """Decoded samples are kept in memory, all of them from before the first step."""
    pin: bool | None = None
    """Batches in memory that a GPU can fetch from; None: on a GPU."""
    mapping: str = ""
    """Of a simulated accelerator: '' (its description's tiles, else a rule), stonne or best."""
    set: str = ""
    """Changes of a simulated accelerator's description: `dense.multipliers=512 memory.buffer_KiB=1024`."""
    probe: str = ""
    """Probes that are asked for beside those that are always on, by name, separated by commas: pmu, callgrind."""
    redact: bool = False
    """Keep no host name."""

    def settings_record(self) -> dict[str, Any]:
        """The settings that change how the workload runs, for `run.json`.

        Those in `KEPT_WHERE_GIVEN` are there only where they differ from their defaults.
        """
        given = {name: getattr(self, name) for name in KEPT_WHERE_GIVEN if getattr(self, name) != DEFAULTS[name]}
        return {
            "train": self.train,
            "precision": self.precision,
            "compile": self.compile,
            "channels_last": self.channels_last,
            "workers": self.workers,
            **given,
        }


def make_job(configuration: Mapping[str, Any]) -> Job:
    """The job of a configuration: `workload`, settings of a run by name, and the workload's own options.

    Raises SondaError for a value of the wrong type or out of range.
    """
    settings: dict[str, Any] = {"workload": configuration.get("workload", "")}
    options: dict[str, str] = {}
    for key, value in configuration.items():
        name = key.replace("-", "_")
        if name in RUN_OPTIONS:
            settings[name] = value
        elif name != "workload":
            options[key] = option_text(value)
    try:
        return check_job(msgspec.convert({**settings, "options": options}, Job))
    except msgspec.ValidationError as error:
        # `Expected `int`, got `str` - at `$.steps``
        problem, _, field = str(error).replace("`", "").partition(" - at $.")
        raise SondaError(
            f"{field} cannot be {option_text(configuration.get(field, ''))}", problem[:1].lower() + problem[1:]
        ) from None


def option_text(value: object) -> str:
    """A value as the command line writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_options(words: Sequence[str], options: Mapping[str, str]) -> dict[str, str]:
    """The workload's own options among the words of a command line: `--key value`, `--key=value`, or a bare `--key`."""
    parsed = dict(options)
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--") or len(word) < 3:
            raise SondaError(f"{word!r} is not an option", "write the workload's options as --name value")
        key, equals, value = word[2:].partition("=")
        if not equals:
            value = waiting.pop(0) if waiting and not waiting[0].startswith("--") else "true"
        parsed[key] = value
    return parsed


def parse_whole_option(name: str, text: str) -> int:
    """A whole number as the text of an option gives it. Raises SondaError for other text, also for a range."""
    number = parse_whole(text)
    if number is None:
        raise SondaError(f"--{name} {text!r} is not a whole number", "a range such as 10:30 is for a command after --")
    return number


def with_options(job: Job, words: Sequence[str]) -> Job:
    """The job with further options, written as on the command line: `--threads 2`, `--channels-last`."""
    settings = {name.replace("-", "_"): value for name, value in parse_options(words, {}).items()}
    run_options = {name: value for name, value in settings.items() if name in RUN_OPTIONS}
    options = {**job.options, **{name: value for name, value in settings.items() if name not in RUN_OPTIONS}}
    return msgspec.convert({**msgspec.structs.asdict(job), **run_options, "options": options}, Job, strict=False)


def check_job(job: Job) -> Job:
    """The job with its precision written in full. Raises SondaError for settings that cannot be."""
    precision = SHORT_PRECISIONS.get(job.precision, job.precision)
    if precision not in PRECISIONS:
        raise SondaError(f"unknown precision {job.precision!r}", nearest(job.precision, PRECISIONS))
    check_framework(job)
    for name, least in LEAST_VALUES.items():
        value = getattr(job, name)
        if value is not None and value < least:
            raise SondaError(f"--{name.replace('_', '-')} {value} is too small", f"give {least} or more")
    if job.bind not in BINDINGS and not CORES.fullmatch(job.bind):
        raise SondaError(f"--bind {job.bind!r} says no cores", nearest(job.bind, BINDINGS, "Or a list: 0,2,4-7"))
    if not 0 < job.seconds < 1e6:
        raise SondaError(f"--seconds {job.seconds:g} is not a time", "give more than 0")
    if job.epochs:
        from sonda.targets.training.supervisor import check_training

        check_training(job)
    else:
        idle = [name for name in EPOCHS_ONLY if getattr(job, name) != DEFAULTS[name]]
        if idle:
            raise SondaError(f"--{idle[0]} is for a whole training", "add --epochs N, or leave it out")
    return msgspec.structs.replace(job, precision=precision)


RUN_OPTIONS = tuple(name for name in Job.__struct_fields__ if name not in ("workload", "options"))
"""Options that every workload has; all others are the workload's own."""

DEFAULTS: dict[str, Any] = msgspec.structs.asdict(Job(workload=""))
KEPT_WHERE_GIVEN = (
    "epochs", "split", "images", "transfer", "inter_op_threads", "bind", "gpu_private_threads", "deterministic", "data",
    "prefetch", "cache", "pin",
)  # fmt: skip
"""Settings that a run keeps only where they were given."""
EPOCHS_ONLY = ("split", "images", "transfer", "checkpoint")
"""Settings that mean nothing without epochs."""


@dataclass(frozen=True)
class ProbeWord:
    """One word of `--probe`: `pmu:children+branch-misses` has the name `pmu` and two options."""

    text: str
    name: str
    written: str = ""
    """What stands behind the colon."""

    @property
    def options(self) -> list[str]:
        return [option for option in self.written.split("+") if option]


def split_probes(probes: str | Sequence[str]) -> list[ProbeWord]:
    """The words of `--probe`, which may also be joined by commas."""
    words = [word.strip() for word in (probes.split(",") if isinstance(probes, str) else probes)]
    return [ProbeWord(word, *word.split(":", 1)) for word in words if word]
