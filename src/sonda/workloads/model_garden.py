"""`tf-models:NAME`: an experiment of TensorFlow's Model Garden, where its package is installed.

NAME is one that the package's own factory knows: `resnet_imagenet`, `bert/sentence_prediction`. The model is built as
the experiment says, with weights of its own making and inputs that are drawn; nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

from sonda.record.errors import SondaError
from sonda.workloads.description import Description, option, whole

PREFIX = "tf-models:"
PACKAGE = "official"
"""What the distribution tf-models-official is imported as."""


@dataclass(frozen=True)
class ModelGarden(Description):
    """One experiment of the package, in inference, or in training where it classifies images."""

    experiment: str = ""
    batch: int = option(8, whole(), "samples in a step")
    image: int = option(0, whole(0), "side of square images in pixels; 0: the experiment's own")
    length: int = option(128, whole(), "tokens of a sequence, where the model reads text")
    only: ClassVar[str] = "tensorflow"
    """The framework that it is there in."""

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.experiment}"

    def check(self) -> None:
        if not self.experiment:
            raise SondaError("tf-models: names no experiment", "write tf-models:resnet_imagenet")


def is_garden(name: str) -> bool:
    return name.startswith(PREFIX)


def require_garden() -> None:
    """Raise SondaError unless the package is installed; asked without importing it."""
    if find_spec(PACKAGE) is None:
        raise SondaError(
            "the models of tf-models: are in tf-models-official, which is not installed",
            "install it in an environment of its own, and Sonda from its clone: pip install --use-pep517 "
            "tf-models-official (version 2.20 needs TensorFlow 2.20)",
        )
