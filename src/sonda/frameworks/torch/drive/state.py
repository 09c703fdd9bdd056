"""The state of a training in PyTorch as arrays, and back: weights, statistics, optimizer state, random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

MODEL, OPTIMIZER, SCALER = "model/", "optimizer/", "scaler/"
RANDOM, RANDOM_ON_GPU = "random", "random-cuda"
SHORT = ":bfloat16"
"""Suffix of an array of bfloat16, which NumPy does not have; the array holds its bits as int16."""


def training_arrays(model: Any, optimizer: Any = None, scaler: Any = None) -> dict[str, np.ndarray]:
    """Everything that the next epoch depends on, as arrays by name.

    Without an optimizer these are the model's own tensors under their own names. `scaler` is the loss scaler of a
    training in float16. Random states are those of this process and of the model's GPU. Arrays may share memory with
    the tensors, so the next step changes them.
    """
    import torch

    if optimizer is None:
        return dict(_array(name, tensor) for name, tensor in model.state_dict().items())
    arrays = dict(_array(MODEL + name, tensor) for name, tensor in model.state_dict().items())
    for number, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
            arrays |= dict([_array(f"{OPTIMIZER}{number}/{name}", tensor)])
    for name, value in scaler.state_dict().items() if scaler is not None else ():
        arrays[SCALER + name] = np.array(value)
    arrays[RANDOM] = torch.get_rng_state().numpy()
    device = _gpu(model)
    if device is not None:
        arrays[RANDOM_ON_GPU] = torch.cuda.get_rng_state(device).numpy()
    return arrays


def restore_training(arrays: Mapping[str, np.ndarray], model: Any, optimizer: Any, scaler: Any = None) -> None:
    """Restore the state that `training_arrays` gave. Raises ValueError where it belongs to another model."""
    import torch

    load_model({name[len(MODEL) :]: value for name, value in arrays.items() if name.startswith(MODEL)}, model)
    states: dict[int, dict[str, Any]] = {}
    for name, value in arrays.items():
        if name.startswith(OPTIMIZER):
            number, _, array_name = name[len(OPTIMIZER) :].partition("/")
            key, tensor = _tensor(array_name, value)
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
    """Copy arrays into a model's tensors of the same names. Raises ValueError where names or shapes differ."""
    import torch

    tensors = dict(_tensor(name, value) for name, value in arrays.items())
    own = model.state_dict()
    if set(tensors) != set(own):
        name = sorted(set(tensors) ^ set(own))[0]
        raise ValueError(f"{name} is in one of model and file only")
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != tensors[name].shape:
                raise ValueError(
                    f"{name} is {tuple(tensor.shape)} in the model, {tuple(tensors[name].shape)} in the file"
                )
            tensor.copy_(tensors[name])


def _gpu(model: Any) -> Any:
    """The GPU that holds a model; None for a model in the processor's memory."""
    device = next((tensor.device for tensor in model.parameters()), None)
    return device if device is not None and device.type == "cuda" else None


def _array(name: str, tensor: Any) -> tuple[str, np.ndarray]:
    """A tensor as an array, with its stored name."""
    import torch

    plain = tensor.detach().cpu().contiguous()
    if plain.dtype == torch.bfloat16:
        return name + SHORT, plain.view(torch.int16).numpy()
    return name, plain.numpy()


def _tensor(name: str, value: np.ndarray) -> tuple[str, Any]:
    """The inverse of `_array`: the name and the tensor of a stored array."""
    import torch

    tensor = torch.from_numpy(np.array(value))
    if name.endswith(SHORT):
        return name[: -len(SHORT)], tensor.view(torch.bfloat16)
    return name, tensor
