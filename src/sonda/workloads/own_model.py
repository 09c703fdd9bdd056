"""Your own model: `file.py:factory`.

The factory is called with the options that its signature takes, and returns a `torch.nn.Module`, or the module and its
inputs. It may also be a module's class, or a module itself. The file's directory is importable, as for a script. For a
training by epochs the file also has `data()` and may have more: see `in_torch/own_training.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonda.record.errors import SondaError
from sonda.workloads.description import choice, normalise_names, parse_option, require_torch
from sonda.workloads.input_shapes import InputShape, parse_shapes

if TYPE_CHECKING:
    from sonda.record.protocols import Task

LOSSES = {
    "squares": "the mean of the squares of all floating-point outputs",
    "mean": "the mean of all floating-point outputs",
    "mse": "mean squared error against normally distributed targets",
    "cross_entropy": "cross entropy against uniform classes, which lie in dimension 1, in the last of three dimensions",
}
"""How a training step makes a scalar of the output. An output that is a scalar already is the loss."""


@dataclass(frozen=True)
class OwnModel:
    """A model from a file that Sonda knows nothing of until it is built."""

    path: Path
    factory: str
    digest: str
    """SHA-256 of the file."""
    inputs: tuple[InputShape, ...] = ()
    """Empty where the factory is to give them."""
    loss: str = ""
    """As it was asked for; '' is `squares` in timed steps, and in a training by epochs what the file says."""
    options: Mapping[str, str] = field(default_factory=dict)
    """For the factory."""

    @property
    def name(self) -> str:
        return f"{self.path.name}:{self.factory}"

    def parameters(self) -> dict[str, Any]:
        return {
            "file": self.path.name,
            "factory": self.factory,
            "sha256": self.digest,
            "input": ",".join(map(str, self.inputs)),
            "loss": self.loss or "squares",
            **{f"option_{key}": text for key, text in self.options.items()},
        }

    def build(self, framework: str, train: bool, seed: int) -> Task:
        """Import the file, call the factory, try the shapes. Raises SondaError for whatever fails on the way."""
        require_torch(self.name, framework)
        from sonda.workloads.in_torch.own_model import build

        return build(self, train, seed)


def is_own(name: str) -> bool:
    """Whether a workload's name is that of a file with a factory."""
    return ".py:" in name


def own_model(name: str, options: Mapping[str, str]) -> OwnModel:
    """The workload `file.py:factory`; options other than `input` and `loss` are for the factory.

    Raises SondaError when there is no such file, the shapes cannot be read, or an option is given twice.
    """
    text, _, factory = name.rpartition(":")
    path = Path(text)
    if not factory.isidentifier():
        raise SondaError(f"{factory!r} cannot be the name of a factory", "write file.py:factory")
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise SondaError(f"cannot read {path}: {error.strerror}", "check the path before the colon") from None
    remaining = normalise_names(name, options)
    shapes = parse_shapes(remaining.pop("input")) if "input" in remaining else ()
    loss = parse_option(name, "loss", remaining.pop("loss"), choice(*LOSSES)) if "loss" in remaining else ""
    return OwnModel(path.resolve(), factory, digest, shapes, loss, remaining)
