"""`tf-models:NAME` in TensorFlow, with a package that stands in for the real one: its factories, and two models."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter_ns as now
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.harness.announcer import AnnouncedObserver
from sonda.frameworks.harness.settings import Driving
from sonda.frameworks.reconstruction.assembly import assemble
from sonda.record.errors import SondaError
from sonda.workloads.model_garden import ModelGarden

tf = pytest.importorskip("tensorflow")

from sonda.frameworks.tensorflow.drive.steps import drive_opaque  # noqa: E402
from sonda.workloads.in_tensorflow.model_garden import build  # noqa: E402


class Task:
    """As the package's tasks are: it builds its model, makes its optimizer and steps by itself."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def build_model(self) -> Any:
        if self.config.model.input_size is None:
            words = tf.keras.Input((None,), dtype=tf.int32, name="words")
            found = tf.keras.layers.Embedding(5, 4)(words)
            return tf.keras.Model({"words": words}, tf.keras.layers.Dense(self.config.model.num_classes)(found))
        image = tf.keras.Input(self.config.model.input_size)
        pooled = tf.keras.layers.GlobalAveragePooling2D()(image)
        return tf.keras.Model(image, tf.keras.layers.Dense(self.config.model.num_classes)(pooled))

    def create_optimizer(self, config: Any, runtime: Any) -> Any:
        return tf.keras.optimizers.SGD(config)

    def train_step(self, inputs: Any, model: Any, optimizer: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.keras.losses.sparse_categorical_crossentropy(inputs[1], model(inputs[0]), from_logits=True)
            loss = tf.reduce_mean(losses)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def experiment(size: list[int] | None, classes: int, **losses: Any) -> Any:
    task = SimpleNamespace(model=SimpleNamespace(input_size=size, num_classes=classes), **losses)
    return SimpleNamespace(task=task, trainer=SimpleNamespace(optimizer_config=0.1), runtime=None)


@pytest.fixture(autouse=True)
def garden(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "small_images": lambda: experiment([32, 32, 3], 7, losses=SimpleNamespace(one_hot=True)),
        "text": {"guess": lambda: experiment(None, 0)},
    }
    factory = ModuleType("official.core.exp_factory")
    factory._REGISTERED_CONFIGS = known  # type: ignore[attr-defined]

    def found(name: str) -> Any:
        family, _, one = name.partition("/")
        entry: Any = known[family]
        return (entry[one] if one else entry)()

    factory.get_exp_config = found  # type: ignore[attr-defined]
    tasks = ModuleType("official.core.task_factory")
    tasks.get_task = Task  # type: ignore[attr-defined]
    for module in (factory, tasks, ModuleType("official.vision.registry_imports"),
                   ModuleType("official.nlp.configs.experiment_configs")):  # fmt: skip
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_images_have_the_experiments_size_or_the_one_that_is_asked_for() -> None:
    """7 outputs of 3 channels with their biases are 28 numbers."""
    task = build(ModelGarden(experiment="small_images", batch=2), False, 0, False)
    assert task.first.shape == (2, 32, 32, 3) and task.parameters == 28
    asked = build(ModelGarden(experiment="small_images", batch=2, image=16), False, 0, False)
    assert asked.first.shape == (2, 16, 16, 3)
    assert tuple(asked.function()(*asked.arguments()).shape) == (2, 7)
    again = build(ModelGarden(experiment="small_images", batch=2, image=16), False, 0, False)
    assert np.array_equal(again.first.numpy(), asked.first.numpy())


def test_text_is_named_whole_numbers_and_open_classes_are_two() -> None:
    task = build(ModelGarden(experiment="text/guess", batch=2, length=6), False, 0, False)
    assert task.first["words"].shape == (2, 6) and task.first["words"].dtype == tf.int32
    assert tuple(task.function()(*task.arguments()).shape) == (2, 6, 2)


def test_training_runs_the_tasks_own_step(tmp_path: Path) -> None:
    task = build(ModelGarden(experiment="small_images", batch=4), True, 0, False)
    before = [weight.numpy() for weight in task.model.trainable_weights]
    recorder = Recorder(str(tmp_path))
    observer = AnnouncedObserver(recorder, None, task.root)
    observer.open({"tensorflow": tf.__version__}, 1)
    begin = now()
    assert drive_opaque(task, observer, Driving(True, 3, 1, 1.0)) == 3
    observer.finish(1)
    recorder.close()
    assert not np.array_equal(before[0], task.model.trainable_weights[0].numpy())
    assembly = assemble(tmp_path, begin, now())
    names = assembly.spans.words("name").decoded()
    timed = np.flatnonzero(assembly.spans.where(kind="phase", pass_="timed"))
    assert [names[row] for row in timed] == ["fused"] * 3
    assert assembly.spans.where(kind="compile").sum() == 1
    assert assembly.notes[0].startswith("28 parameters; tracing and the first run took")


def test_what_cannot_be_is_one_line() -> None:
    with pytest.raises(SondaError, match="tf-models-official has no 'small_image'; did you mean 'small_images'"):
        build(ModelGarden(experiment="small_image"), False, 0, False)
    with pytest.raises(SondaError, match=r"tf-models:text/guess does not classify images.*leave out --train"):
        build(ModelGarden(experiment="text/guess"), True, 0, False)
