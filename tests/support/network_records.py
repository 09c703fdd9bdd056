"""What a built-in network is and computes in PyTorch, as plain values; as a script it writes what `data` keeps."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from places import DATA
from sonda.workloads.catalogue import describe

KEPT = DATA / "networks" / "torch.json"
SEED = 3
STEPS = 3
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "mlp": ("mlp", {"batch": "3", "layers": "7-6-5-4"}),
    "mlp as published": ("mlp", {}),
    "mlp relu": ("mlp", {"batch": "3", "layers": "7-5-4", "activation": "relu", "loss": "cross_entropy"}),
    "mlp tanh": ("mlp", {"batch": "3", "layers": "5-4", "activation": "tanh"}),
    "cnn": ("cnn", {"batch": "2", "image": "18x21", "channels": "1", "filters": "2-3-4", "hidden": "5"}),
    "cnn as published": ("cnn", {}),
    "resnet18": ("resnet18", {"batch": "4", "image": "65x40", "channels": "1", "learning_rate": "0.001"}),
    "resnet34": ("resnet34", {"batch": "4", "image": "40x40", "classes": "4", "learning_rate": "0.001"}),
    "resnet50": ("resnet50", {"batch": "4", "image": "64x64", "classes": "4", "learning_rate": "0.001"}),
    "lstm": ("lstm", {"batch": "2", "length": "5", "features": "3", "hidden": "4", "vocabulary": "9"}),
    "transformer": (
        "transformer", {"batch": "2", "length": "6", "generate": "4", "layers": "3", "width": "8", "vocabulary": "11"},
    ),
    "transformer of one head": ("transformer", {"batch": "1", "layers": "1", "heads": "1", "width": "16"}),
    "dlrm": ("dlrm", {"batch": "3"}),
}  # fmt: skip


def machine() -> dict[str, str]:
    """What the last bits of a result hang on."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8") if platform.system() == "Linux" else ""
    lines = dict(line.split("\t: ", 1) for line in info.splitlines() if "\t: " in line)
    model = " ".join(lines.get(key, "") for key in ("model name", "cpu family", "model\t", "stepping"))
    return {"torch": torch.__version__, "cpu": model, "vectors": torch.backends.cpu.get_cpu_capability()}


def record(case: str) -> dict[str, Any]:
    """Everything about one case: what must be equal anywhere, and `bits` that are one machine's."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _record(*CASES[case])
    finally:
        torch.set_num_threads(threads)


def _record(name: str, options: dict[str, str]) -> dict[str, Any]:
    task: Any = describe(name, options).build("torch", False, SEED)
    output = task.infer(lambda phase: nullcontext())
    learning: Any = describe(name, options).build("torch", True, SEED)
    drawn = torch.get_rng_state()
    initial = _digest(learning.model.state_dict().values())
    calls = _watched(learning.model)
    losses = _train(learning)
    return {
        "modules": [
            " ".join((path or ".", type(module).__name__, module.extra_repr())).strip()
            for path, module in learning.model.named_modules()
        ],
        "state": [f"{key} {'x'.join(map(str, values.shape))}" for key, values in learning.model.state_dict().items()],
        "parameters": _listed(key for key, _ in learning.model.named_parameters()),
        "loss": type(learning.loss).__name__,
        "optimizer": str(learning.optimizer()).replace("\n", " "),
        "initial": initial,
        "equal_at_first": initial == _digest(task.model.state_dict().values()),
        "inputs": _digest(task.inputs if name != "dlrm" else (*task.inputs[:2], *task.inputs[2])),
        "calls": _listed(calls),
        "output_norm": float(output.double().norm()),
        "losses": losses,
        "losses_float64": _train(_in_float64(describe(name, options).build("torch", True, SEED))),
        "bits": {
            "output": _digest([output]),
            "trained": _digest(learning.model.state_dict().values()),
            "generator": _digest([drawn]),
        },
    }


def _train(task: Any) -> list[float]:
    optimizer, losses = task.optimizer(), []
    precision = next(task.model.parameters()).dtype
    for inputs, target in islice(task.batches(0), STEPS):
        inputs, target = _cast(inputs, precision), _cast(target, precision)
        optimizer.zero_grad()
        loss = task.loss(task.model(*inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _in_float64(task: Any) -> Any:
    task.model.double()
    return task


def _cast(values: Any, precision: torch.dtype) -> Any:
    """The same numbers in a precision; indices stay what they are."""
    if isinstance(values, Tensor):
        return values.to(precision) if values.is_floating_point() else values
    return type(values)(_cast(value, precision) for value in values)


def _watched(model: nn.Module) -> list[str]:
    """Fills while the model runs: the path of every module as its forward begins and ends and its backward ends."""
    calls: list[str] = []
    for path, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, path=path: calls.append(f"begins {path}"))
        module.register_forward_hook(lambda *_, path=path: calls.append(f"ends {path}"))
        # Hooks of backward cannot stand before a module that works in place.
        if not getattr(module, "inplace", False) and not list(module.children()):
            for parameter in module.parameters(recurse=False):
                parameter.register_hook(lambda _, path=path: calls.append(f"gradient {path}"))
    return calls


def _listed(words: Iterable[str]) -> list[int | str]:
    """How many words there are, and a digest of them in their order."""
    found = list(words)
    return [len(found), hashlib.sha256("\n".join(found).encode()).hexdigest()]


def _digest(tensors: Iterable[Tensor]) -> str:
    total = hashlib.sha256()
    for values in tensors:
        total.update(str((values.dtype, tuple(values.shape))).encode())
        total.update(values.detach().contiguous().numpy().tobytes())
    return total.hexdigest()


if __name__ == "__main__":
    kept = {"machine": machine(), "networks": {case: record(case) for case in CASES}}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
