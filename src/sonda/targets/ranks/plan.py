"""The plan of a run on several devices: its target and options, checked before anything is started."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from sonda.frameworks.torch.parallel.shared_memory import reason_against
from sonda.record.errors import SondaError, nearest
from sonda.targets.job import Job
from sonda.targets.target import DeviceSpec, TargetSpec, available_threads, has_gpu, parse_whole
from sonda.workloads.own_model import is_own

OPTIONS = {
    "ddp": ("backend", "batch", "batchnorm", "evaluate", "nodes", "at", "timeout"),
    "hybrid": ("auto", "backend", "batch", "batchnorm", "evaluate", "shares", "weights", "nodes", "at", "timeout"),
    "localsgd": ("auto", "backend", "batch", "evaluate", "h", "shares", "nodes", "at", "timeout"),
    "pipeline": ("backend", "microbatches", "replicas", "nodes", "at", "timeout"),
    "dp": (),
}
"""What may stand after '@', by mode."""
BACKENDS = ("gloo", "nccl", "shared")
"""`shared` is memory that the processors of one machine share; the others are PyTorch's."""
DEFAULT_H = 8
MICROBATCHES = 4


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """How a job is shared by ranks. `threads` has one entry per rank of this node, 0 for a GPU."""

    mode: str
    devices: tuple[str, ...]
    """As the user wrote them, one per rank of a node."""
    threads: tuple[int, ...]
    backend: str
    auto: bool = False
    """Leave out ranks that do not pay."""
    shares: tuple[int, ...] = ()
    """Samples of every rank; empty: from calibration for `hybrid` and `localsgd`, equal for `ddp`."""
    equal: bool = False
    moving: bool = False
    """Shares follow the speed of ranks while they run."""
    each: bool = False
    """The batch asked for is that of every rank, not of all together."""
    shared_norms: bool = True
    equal_weights: bool = False
    """Gradients are averaged as if all ranks had as many samples, for comparison."""
    h: int = 1
    microbatches: int = 1
    replicas: int = 1
    """Pipelines side by side, each with its share of the batch; devices are those of the first, then of the second. On
    several nodes the devices of the first node come first, so that a pipeline may go on on the next."""
    everybody: bool = True
    """Validation and test are shared; else the first rank does them while the others wait."""
    servers: int = 0
    """Parameter servers of TensorFlow's, processes that hold the weights."""
    nodes: int = 1
    at: str = "localhost:0"
    """Where ranks of several nodes meet."""
    timeout: float = 300.0
    """s that a rank waits for the others."""

    @property
    def ranks(self) -> int:
        return self.nodes * len(self.devices)

    def name(self, rank: int) -> str:
        """A rank as its user thinks of it."""
        device = self.devices[rank % len(self.devices)]
        return f"{device} (rank {rank})" if self.ranks > len(set(self.devices)) else device

    def reports_for_node(self, rank: int, chosen: Sequence[int]) -> bool:
        """Whether a rank is the first of those ranks of its node that are `chosen` to train."""
        devices_per_node = len(self.devices)
        return rank == min(
            (candidate for candidate in chosen if candidate // devices_per_node == rank // devices_per_node), default=-1
        )


def make_plan(job: Job, spec: TargetSpec, here: bool = True) -> Plan:
    """Check a job for several devices and plan how it is shared. Raises SondaError for what cannot be.

    Unless it is to run `here`, GPUs that this machine does not have are no error.
    """
    text, mode = spec.text, spec.mode
    options = OPTIONS[mode]
    for option, value in spec.options.items():
        if option not in options:
            words = f"known: {', '.join(options)}" if options else f"{mode} has none"
            raise SondaError(f"target {text!r}: {mode} has no option {option!r}", words)
        if value and option == "auto":
            raise SondaError(f"target {text!r}: auto takes no value", "write @auto")
    if {"auto", "shares"} <= set(spec.options):
        raise SondaError(f"target {text!r}: auto chooses the shares", "leave out shares, or auto")
    kinds = {device.kind for device in spec.devices}
    if "sim" in kinds:
        raise SondaError(f"target {text!r}: a simulated accelerator cannot train with others", "use cpu or cuda:N")
    if here and "cuda" in kinds and not has_gpu():
        raise SondaError(
            f"target {text!r}: no driver of a GPU is loaded on this machine", "use cpu devices, as in ddp=cpu/1+cpu/1"
        )
    if mode == "dp" and kinds != {"cuda"}:
        raise SondaError(f"target {text!r}: PyTorch's DataParallel is for GPUs only", "use ddp= or hybrid=")
    if not job.train:
        raise SondaError(f"target {text!r}: several devices train together", "add --train")
    if job.compile and mode != "ddp":
        raise SondaError(f"target {text!r}: --compile is for one device or ddp", "leave out --compile")
    nodes = whole_option(spec, "nodes", 1)
    if mode in ("pipeline", "hybrid", "localsgd") and nodes * len(spec.devices) < 2:
        raise SondaError(f"target {text!r}: {mode} needs two devices or more", f"write {mode}=A+B")
    if job.epochs and is_own(job.workload):
        _refuse_file_loaders(spec)
    refuse_repeated_gpus(spec)
    _refuse_indeterminate(job, spec)
    if (nodes > 1) != ("at" in spec.options):
        raise SondaError(
            f"target {text!r}: several nodes need both nodes and at",
            "write @nodes=2,at=HOST:PORT, on every node alike, or leave out at and give --on-cluster",
        )
    return Plan(
        mode=mode,
        devices=tuple(format_device(device) for device in spec.devices),
        threads=rank_threads(spec.devices, job),
        backend=_choose_backend(spec, kinds, nodes, job.precision),
        auto="auto" in spec.options,
        equal=mode == "ddp" or spec.options.get("shares") == "equal",
        shares=_parse_shares(spec, nodes),
        moving=mode in ("hybrid", "localsgd") and "shares" not in spec.options,
        each=word_option(spec, "batch", ("all", "each")) == "each",
        shared_norms=word_option(spec, "batchnorm", ("shared", "local")) == "shared",
        equal_weights=word_option(spec, "weights", ("samples", "equal")) == "equal",
        h=whole_option(spec, "h", DEFAULT_H) if mode == "localsgd" else 1,
        microbatches=whole_option(spec, "microbatches", MICROBATCHES) if mode == "pipeline" else 1,
        replicas=_parse_replicas(spec, nodes),
        everybody=word_option(spec, "evaluate", ("all", "first")) == "all",
        nodes=nodes,
        at=_meeting_place(spec),
        timeout=float(whole_option(spec, "timeout", 300)),
    )


def _refuse_file_loaders(spec: TargetSpec) -> None:
    """Raise SondaError for modes and options that cannot share the batches of a file's own loaders."""
    if spec.mode == "pipeline":
        raise SondaError(
            f"target {spec.text!r}: a pipeline does not walk through the loaders of a file",
            "use ddp=, hybrid= or localsgd=",
        )
    if spec.options.get("batch") == "each":
        raise SondaError(
            f"target {spec.text!r}: the loaders of a file give one batch, which ranks share", "leave out batch=each"
        )


def _refuse_indeterminate(job: Job, spec: TargetSpec) -> None:
    """Raise SondaError where a deterministic job would depend on measured times, which differ from run to run."""
    if not job.deterministic:
        return
    text = f"target {spec.text!r}"
    if "auto" in spec.options:
        raise SondaError(f"{text}: --deterministic does not let auto choose by the clock", "leave out one of them")
    if spec.mode in ("hybrid", "localsgd") and "shares" not in spec.options:
        raise SondaError(f"{text}: shares that are measured are never the same", "write @shares=24:8 or @shares=equal")
    if spec.mode == "pipeline" and len({(device.kind, device.threads, device.share) for device in spec.devices}) > 1:
        raise SondaError(
            f"{text}: the cut between unlike devices is measured and may lie elsewhere next time",
            "leave out --deterministic, or use like devices",
        )


def refuse_repeated_gpus(spec: TargetSpec) -> None:
    """Raise SondaError where a GPU stands twice."""
    used = [device.index for device in spec.devices if device.kind == "cuda"]
    twice = next((index for index in used if used.count(index) > 1), None)
    if twice is not None:
        raise SondaError(f"target {spec.text!r}: cuda:{twice} stands twice", "give every rank a GPU of its own")


def format_device(device: DeviceSpec) -> str:
    """A device as its user writes it."""
    if device.kind == "cuda":
        return f"cuda:{device.index}"
    if device.share is not None:
        return f"cpu/{device.share:g}"
    return f"cpu/{device.threads}" if device.threads else "cpu"


def rank_threads(devices: tuple[DeviceSpec, ...], job: Job) -> tuple[int, ...]:
    """Threads of every rank; 0 for a GPU. Ranks without a number share the processors that the others leave.

    Each GPU leaves one processor fewer, for the program that drives it.
    """
    if job.threads:
        raise SondaError(f"--threads does not say which rank of {job.on} it means", "write cpu/N for each rank")
    named = sum(1 if device.kind == "cuda" else device.threads or 0 for device in devices)
    open_ranks = sum(device.kind == "cpu" and not device.threads for device in devices)
    left = max(1, (available_threads() - named) // max(1, open_ranks))
    return tuple(0 if device.kind == "cuda" else device.threads or left for device in devices)


def describe_crowding(plan: Plan, processors: int) -> str:
    """A sentence for ranks of this node that want more threads than it has processors; '' where they do not.

    A GPU counts as one thread, for the program that drives it.
    """
    threads_wanted = sum(threads or 1 for threads in plan.threads)
    if threads_wanted <= processors:
        return ""
    return (
        f"ranks want {threads_wanted} threads of {processors} processors: they hold each other up, and bounds are too "
        "high"
    )


def _choose_backend(spec: TargetSpec, kinds: set[str], nodes: int, precision: str) -> str:
    """The backend asked for; else nccl among GPUs, shared memory for a hybrid of processors, else gloo.

    Raises SondaError for a backend that these devices cannot use.
    """
    against = (
        reason_against(len(spec.devices)) if kinds == {"cpu"} and nodes == 1 else "shared is for processors of one node"
    )
    if precision == "mixed_float16" and spec.mode != "localsgd":
        # Every rank would scale back the gradients that all have in common.
        against = against or "with mixed_float16 gradients are scaled, which each rank does to its own"
    usual = "nccl" if kinds == {"cuda"} else "shared" if spec.mode == "hybrid" and not against else "gloo"
    backend = spec.options.get("backend", usual)
    if backend not in BACKENDS:
        raise SondaError(f"target {spec.text!r}: unknown backend {backend!r}", nearest(backend, BACKENDS))
    if backend == "shared" and (against or spec.mode == "pipeline"):
        why = against or "the stages of a pipeline send to each other"
        raise SondaError(f"target {spec.text!r}: {why}", "use @backend=gloo")
    if backend == "nccl" and kinds != {"cuda"}:
        raise SondaError(f"target {spec.text!r}: nccl is for GPUs only", "use @backend=gloo")
    return backend


def _parse_shares(spec: TargetSpec, nodes: int) -> tuple[int, ...]:
    text = spec.options.get("shares", "")
    if text in ("", "equal"):
        if "shares" in spec.options and not text:
            raise SondaError(f"target {spec.text!r}: shares has no value", "write @shares=equal or @shares=24:8")
        return ()
    if not re.fullmatch(r"[1-9]\d{0,17}(:[1-9]\d{0,17})*", text):
        raise SondaError(
            f"target {spec.text!r}: shares {text!r} are not numbers", "write @shares=24:8 or @shares=equal"
        )
    shares = tuple(map(int, text.split(":")))
    if len(shares) != nodes * len(spec.devices):
        raise SondaError(
            f"target {spec.text!r}: {len(shares)} shares for {nodes * len(spec.devices)} ranks", "give one for each"
        )
    return shares


def whole_option(spec: TargetSpec, name: str, default: int) -> int:
    """An option that is a whole number from 1 on; raises SondaError for others."""
    text = spec.options.get(name, str(default))
    number = parse_whole(text)
    if not number:
        raise SondaError(
            f"target {spec.text!r}: {name} {text!r} is not a whole number from 1 on", f"write @{name}={default}"
        )
    return number


def _parse_replicas(spec: TargetSpec, nodes: int) -> int:
    replicas, devices = whole_option(spec, "replicas", 1), nodes * len(spec.devices)
    if replicas > 1 and (devices % replicas or devices // replicas < 2):
        where = f" on {nodes} nodes" if nodes > 1 else ""
        raise SondaError(
            f"target {spec.text!r}: {devices} devices{where} are not {replicas} pipelines of two stages or more",
            f"give a device for every stage of every pipeline, such as {2 * replicas}",
        )
    return replicas


def word_option(spec: TargetSpec, name: str, words: tuple[str, ...]) -> str:
    """An option that is one of these words; the first where it is not given. Raises SondaError for others."""
    value = spec.options.get(name, words[0])
    if value not in words:
        raise SondaError(f"target {spec.text!r}: {name} cannot be {value!r}", nearest(value, words))
    return value


def _meeting_place(spec: TargetSpec) -> str:
    text = spec.options.get("at", "localhost:0")
    host, _, port = text.rpartition(":")
    number = parse_whole(port)
    if not host or number is None or number > 65535:
        raise SondaError(f"target {spec.text!r}: at {text!r} is not a host and port", "write @at=HOST:PORT")
    return text


def check_batch(plan: Plan, samples: int) -> int:
    """The batch of all ranks together, for a workload of so many samples. Raises SondaError where none can be."""
    batch = samples * plan.ranks if plan.each else samples
    if batch < plan.ranks:
        raise SondaError(
            f"a batch of {batch} cannot be shared by {plan.ranks} ranks", f"use --batch {plan.ranks} or more"
        )
    if plan.shares and sum(plan.shares) != batch:
        raise SondaError(
            f"shares {':'.join(map(str, plan.shares))} make {sum(plan.shares)} samples, not {batch}",
            "let them sum to the batch",
        )
    return batch


def check_chosen_ranks(plan: Plan, chosen: Sequence[int]) -> None:
    """Raise SondaError where a whole training would leave out all ranks of a node: it would report no epochs."""
    devices_per_node = len(plan.devices)
    for node in range(plan.nodes):
        if not any(rank // devices_per_node == node for rank in chosen):
            raise SondaError(
                f"@auto would leave out all devices of node {node + 1} of {plan.nodes}: they do not pay here",
                "train on fewer nodes, or leave out auto",
            )


def describe_plan(plan: Plan) -> dict[str, Any]:
    """Fields of a run's target: mode, backend, and the options that the mode has."""
    record: dict[str, Any] = {"mode": plan.mode, "backend": plan.backend}
    if plan.servers:
        record["servers"] = plan.servers
    if plan.mode == "localsgd":
        record["h"] = plan.h
    if plan.mode == "pipeline":
        record["microbatches"] = plan.microbatches
        if plan.replicas > 1:
            record["replicas"] = plan.replicas
    else:
        record["batch"] = "each" if plan.each else "all"
    return record
