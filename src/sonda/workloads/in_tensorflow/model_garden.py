"""An experiment of TensorFlow's Model Garden made ready: its model, its own training step, drawn inputs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import tensorflow as tf

from sonda.record.errors import SondaError, nearest
from sonda.workloads.model_garden import ModelGarden

REGISTRIES = ("official.vision.registry_imports", "official.nlp.configs.experiment_configs")
"""Modules whose import makes experiments known."""
SEED = 1
"""Set beside the seed, so that inputs are not the numbers of the weights."""
CLASSES = 2
"""Where the experiment leaves their number open."""
IMAGE = 224
"""Side of images in pixels, where neither the experiment nor the user says one."""


class GardenInTensorflow:
    """A step is one `tf.function`: the model's call, or the training step that the experiment's task has itself."""

    tokens = 0

    def __init__(self, description: ModelGarden, train: bool, seed: int, compiled: bool) -> None:
        self.description, self.train, self.compiled = description, train, compiled
        self.phase_tokens: dict[str, int] = {}
        self.samples = description.batch
        tf.random.set_seed(seed)
        factory, tasks = import_module("official.core.exp_factory"), import_module("official.core.task_factory")
        self.config = _experiment(factory, description)
        self.task = tasks.get_task(self.config.task)
        self.model = self.task.build_model()
        self.root = type(self.model).__name__
        self._drawn = np.random.default_rng((seed, SEED))
        self.first = self._inputs()
        if train:
            self.optimizer = self.task.create_optimizer(self.config.trainer.optimizer_config, self.config.runtime)
            self.labels = self._labels()

    @property
    def parameters(self) -> int:
        """Numbers that training changes."""
        return int(sum(np.prod(weight.shape) for weight in self.model.trainable_weights))

    def _inputs(self) -> Any:
        """Drawn values of the shapes that the model asks for; whole numbers are 1."""
        given = getattr(self.model, "inputs", None)
        if not given:
            return self._image()
        given = self.model.input
        if isinstance(given, dict):
            return {name: self._input(one) for name, one in given.items()}
        return [self._input(one) for one in given] if isinstance(given, (list, tuple)) else self._input(given)

    def _input(self, wanted: Any) -> Any:
        kind = tf.as_dtype(wanted.dtype)
        free = (self.description.image or IMAGE) if kind.is_floating else self.description.length
        shape = [self.samples, *(size or free for size in wanted.shape[1:])]
        values = self._drawn.standard_normal(shape) if kind.is_floating else np.ones(shape)
        return tf.cast(tf.constant(values, dtype=tf.float32), kind)

    def _image(self) -> Any:
        """Of a model that does not say what it takes: an image, where the experiment has a size for it."""
        size = getattr(getattr(self.config.task, "model", None), "input_size", None)
        if not size:
            raise SondaError(
                f"{self.description.name} does not say which inputs its model takes", "use another experiment"
            )
        side = self.description.image or IMAGE
        shape = [self.samples, *(one or side for one in list(size)[:2]), list(size)[2]]
        return tf.constant(self._drawn.standard_normal(shape), dtype=tf.float32)

    def _labels(self) -> Any:
        classes = getattr(self.config.task.model, "num_classes", 0)
        if not classes or not hasattr(getattr(self.config.task, "losses", None), "one_hot"):
            raise SondaError(
                f"{self.description.name} does not classify images, and training needs labels of its own kind",
                "leave out --train",
            )
        return tf.constant(self._drawn.integers(classes, size=self.samples))

    def function(self) -> Any:
        """A step that was not traced yet."""

        def infer(inputs: Any) -> Any:
            return self.model(inputs, training=False)

        def learn(inputs: Any, labels: Any) -> Any:
            return self.task.train_step((inputs, labels), self.model, self.optimizer)

        return tf.function(learn if self.train else infer, jit_compile=self.compiled)

    def arguments(self) -> tuple[Any, ...]:
        """What every step is given."""
        return (self.first, self.labels) if self.train else (self.first,)


def _experiment(factory: Any, description: ModelGarden) -> Any:
    for name in REGISTRIES:
        import_module(name)
    known = _names(factory._REGISTERED_CONFIGS)
    if description.experiment not in known:
        remedy = nearest(description.experiment, known)
        raise SondaError(f"tf-models-official has no {description.experiment!r}", remedy)
    config = factory.get_exp_config(description.experiment)
    model: Any = getattr(config.task, "model", None)
    size = getattr(model, "input_size", None)
    if description.image and size:
        model.input_size = [description.image, description.image, *list(size)[2:]]
    if getattr(model, "num_classes", None) == 0:
        # Left to whoever has data: a layer without outputs would end the process.
        model.num_classes = CLASSES
    return config


def _names(registered: dict[str, Any], before: str = "") -> list[str]:
    """Names of all experiments; those of a family are `bert/pretraining`."""
    found = []
    for name, one in registered.items():
        found += _names(one, f"{before}{name}/") if isinstance(one, dict) else [f"{before}{name}"]
    return found


def build(description: ModelGarden, train: bool, seed: int, compiled: bool) -> GardenInTensorflow:
    """Raises SondaError for an experiment that is not there, or that cannot be trained on drawn labels."""
    return GardenInTensorflow(description, train, seed, compiled)
