"""The state of a training in PyTorch as arrays, and back: weights, statistics, the optimizer's own, random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

MODEL, OPTIMIZER, SCALER = "model/", "optimizer/", "scaler/"
RANDOM, RANDOM_ON_GPU = "random", "random-cuda"
SHORT = ":bfloat16"
"""Ends the name of an array that NumPy has no type for; it holds the bits."""


def arrays_of(model: Any, optimizer: Any = None, scaler: Any = None) -> dict[str, np.ndarray]:
    """Everything that the next epoch depends on; without an optimizer, what the model itself holds, by its names.

    `scaler` scales the loss of a training in float16. Random numbers are those of this process and of the model's GPU.
    Arrays may lie in the memory of the tensors themselves: the next step changes them.
    """
    import torch

    if optimizer is None:
        return dict(_array(name, tensor) for name, tensor in model.state_dict().items())
    found = dict(_array(MODEL + name, tensor) for name, tensor in model.state_dict().items())
    for number, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
            found |= dict([_array(f"{OPTIMIZER}{number}/{name}", tensor)])
    for name, value in scaler.state_dict().items() if scaler is not None else ():
        found[SCALER + name] = np.array(value)
    found[RANDOM] = torch.get_rng_state().numpy()
    device = _gpu(model)
    if device is not None:
        found[RANDOM_ON_GPU] = torch.cuda.get_rng_state(device).numpy()
    return found


def restore(arrays: Mapping[str, np.ndarray], model: Any, optimizer: Any, scaler: Any = None) -> None:
    """Put back what `arrays_of` gave. Raises ValueError where it belongs to another model."""
    import torch

    load_model({name[len(MODEL) :]: value for name, value in arrays.items() if name.startswith(MODEL)}, model)
    states: dict[int, dict[str, Any]] = {}
    for name, value in arrays.items():
        if name.startswith(OPTIMIZER):
            number, _, what = name[len(OPTIMIZER) :].partition("/")
            key, tensor = _tensor(what, value)
            states.setdefault(int(number), {})[key] = tensor
    if states:
        optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
    scale = {name[len(SCALER) :]: value.item() for name, value in arrays.items() if name.startswith(SCALER)}
    if scale and scaler is not None:
        scaler.load_state_dict(scale)
    if RANDOM in arrays:
        torch.set_rng_state(torch.from_numpy(np.array(arrays[RANDOM], dtype=np.uint8)))
    device = _gpu(model)
    if RANDOM_ON_GPU in arrays and device is not None:
        torch.cuda.set_rng_state(torch.from_numpy(np.array(arrays[RANDOM_ON_GPU], dtype=np.uint8)), device)


def load_model(arrays: Mapping[str, np.ndarray], model: Any) -> None:
    """Give a model the tensors of these names, in place. Raises ValueError where names or shapes differ."""
    import torch

    given = dict(_tensor(name, value) for name, value in arrays.items())
    own = model.state_dict()
    if set(given) != set(own):
        name = sorted(set(given) ^ set(own))[0]
        raise ValueError(f"{name} is in one of model and file only")
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != given[name].shape:
                raise ValueError(
                    f"{name} is {tuple(tensor.shape)} in the model, {tuple(given[name].shape)} in the file"
                )
            tensor.copy_(given[name])


def _gpu(model: Any) -> Any:
    """The GPU that holds a model; None for one in the processor's memory."""
    device = next((tensor.device for tensor in model.parameters()), None)
    return device if device is not None and device.type == "cuda" else None


def _array(name: str, tensor: Any) -> tuple[str, np.ndarray]:
    import torch

    plain = tensor.detach().cpu().contiguous()
    if plain.dtype == torch.bfloat16:
        return name + SHORT, plain.view(torch.int16).numpy()
    return name, plain.numpy()


def _tensor(name: str, value: np.ndarray) -> tuple[str, Any]:
    import torch

    tensor = torch.from_numpy(np.array(value))
    if name.endswith(SHORT):
        return name[: -len(SHORT)], tensor.view(torch.bfloat16)
    return name, tensor
