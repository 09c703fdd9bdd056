"""An experiment of TensorFlow's Model Garden: its model, its own training step, random inputs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import tensorflow as tf

from sonda.record.errors import SondaError, nearest
from sonda.workloads.model_garden import ModelGarden

REGISTRIES = ("official.vision.registry_imports", "official.nlp.configs.experiment_configs")
"""Modules whose import makes experiments known."""
DATA_SEED = 1
"""Set beside the seed, so that inputs are not the same numbers as the weights."""
CLASSES = 2
"""The number of classes where the experiment leaves it open."""
IMAGE = 224
"""Side of images in pixels, where neither the experiment nor the user says one."""


class GardenInTensorflow:
    """An experiment whose step is one `tf.function`: a call of the model, or the training step of its task."""

    tokens = 0

    def __init__(self, description: ModelGarden, train: bool, seed: int, compiled: bool) -> None:
        self.description, self.train, self.compiled = description, train, compiled
        self.phase_tokens: dict[str, int] = {}
        self.samples = description.batch
        tf.random.set_seed(seed)
        factory, tasks = import_module("official.core.exp_factory"), import_module("official.core.task_factory")
        self.config = _experiment_config(factory, description)
        self.task = tasks.get_task(self.config.task)
        self.model = self.task.build_model()
        self.root = type(self.model).__name__
        self._generator = np.random.default_rng((seed, DATA_SEED))
        self.first = self._inputs()
        if train:
            self.optimizer = self.task.create_optimizer(self.config.trainer.optimizer_config, self.config.runtime)
            self.labels = self._labels()

    @property
    def parameters(self) -> int:
        """The number of values that training changes."""
        return int(sum(np.prod(weight.shape) for weight in self.model.trainable_weights))

    def _inputs(self) -> Any:
        """Random values of the shapes that the model asks for; integers are 1."""
        layout = getattr(self.model, "inputs", None)
        if not layout:
            return self._image()
        layout = self.model.input
        if isinstance(layout, dict):
            return {name: self._input(tensor) for name, tensor in layout.items()}
        return [self._input(tensor) for tensor in layout] if isinstance(layout, (list, tuple)) else self._input(layout)

    def _input(self, wanted: Any) -> Any:
        kind = tf.as_dtype(wanted.dtype)
        free = (self.description.image or IMAGE) if kind.is_floating else self.description.length
        shape = [self.samples, *(size or free for size in wanted.shape[1:])]
        values = self._generator.standard_normal(shape) if kind.is_floating else np.ones(shape)
        return tf.cast(tf.constant(values, dtype=tf.float32), kind)

    def _image(self) -> Any:
        """A random image for a model that does not say what it takes. Raises SondaError without a size of images."""
        size = getattr(getattr(self.config.task, "model", None), "input_size", None)
        if not size:
            raise SondaError(
                f"{self.description.name} does not say which inputs its model takes", "use another experiment"
            )
        side = self.description.image or IMAGE
        shape = [self.samples, *(length or side for length in list(size)[:2]), list(size)[2]]
        return tf.constant(self._generator.standard_normal(shape), dtype=tf.float32)

    def _labels(self) -> Any:
        classes = getattr(self.config.task.model, "num_classes", 0)
        if not classes or not hasattr(getattr(self.config.task, "losses", None), "one_hot"):
            raise SondaError(
                f"{self.description.name} does not classify images, and training needs labels of its own kind",
                "leave out --train",
            )
        return tf.constant(self._generator.integers(classes, size=self.samples))

    def function(self) -> Any:
        """A step as a `tf.function` that was not traced yet."""

        def infer(inputs: Any) -> Any:
            return self.model(inputs, training=False)

        def learn(inputs: Any, labels: Any) -> Any:
            return self.task.train_step((inputs, labels), self.model, self.optimizer)

        return tf.function(learn if self.train else infer, jit_compile=self.compiled)

    def arguments(self) -> tuple[Any, ...]:
        """The arguments of every step."""
        return (self.first, self.labels) if self.train else (self.first,)


def _experiment_config(factory: Any, description: ModelGarden) -> Any:
    for name in REGISTRIES:
        import_module(name)
    known = _experiment_names(factory._REGISTERED_CONFIGS)
    if description.experiment not in known:
        remedy = nearest(description.experiment, known)
        raise SondaError(f"tf-models-official has no {description.experiment!r}", remedy)
    config = factory.get_exp_config(description.experiment)
    model: Any = getattr(config.task, "model", None)
    size = getattr(model, "input_size", None)
    if description.image and size:
        model.input_size = [description.image, description.image, *list(size)[2:]]
    if getattr(model, "num_classes", None) == 0:
        # The experiment leaves it to its data. A layer without outputs would end the process.
        model.num_classes = CLASSES
    return config


def _experiment_names(registered: dict[str, Any], prefix: str = "") -> list[str]:
    """Names of all experiments; those of a family are `bert/pretraining`."""
    names = []
    for name, entry in registered.items():
        names += _experiment_names(entry, f"{prefix}{name}/") if isinstance(entry, dict) else [f"{prefix}{name}"]
    return names


def build(description: ModelGarden, train: bool, seed: int, compiled: bool) -> GardenInTensorflow:
    """Make it ready. Raises SondaError for an unknown experiment, or one that cannot be trained on random labels."""
    return GardenInTensorflow(description, train, seed, compiled)
