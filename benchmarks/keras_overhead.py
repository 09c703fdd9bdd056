"""What observing a Keras program costs: `fit` bare and observed, interleaved in one process, on one thread.

A process of its own imports TensorFlow. Times are from the end of the first to the end of the last step of an epoch,
without what `fit` does before and after. Observing happens in the thread that runs Python, so what it adds is taken
from that thread's CPU time, which other programs disturb least, and is held against the CPU time of a bare step. Epochs
are short, so that bare and observed steps lie within a fraction of a second of each other: a processor that others
share drifts by more than observing costs. The bar holds for the CNN of study 4 and for a perceptron whose step takes
some milliseconds; a step that runs operation by operation (`run_eagerly`) is shown beside them. On a machine that
others keep busy a step of the perceptron lasts longer than 8 ms, and what the operating system counts is read at its
ends, which a quiet machine's is too short for: the figure is then of another thing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from time import process_time_ns, thread_time_ns
from typing import Any

import numpy as np

from benchmarks.bar import Bar, at_most, paired_interval

LIMIT_PERCENT = 3.0
CASES = {
    "CNN, batch 32": (20, 40, False),
    "perceptron, batch 32": (20, 150, False),
    "perceptron, eagerly": (10, 40, True),
}
"""Steps of an epoch, rounds, and whether it runs eagerly."""
HELD = ("CNN, batch 32", "perceptron, batch 32")


def run() -> list[Bar]:
    """Measure, print the table, and hold the figures against the bar."""
    if find_spec("tensorflow") is None:
        print("TensorFlow is not installed: nothing is measured")
        return []
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.keras_overhead"], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"tensorflow {found['version']}, 1 thread, CPU time; interleaved rounds, 95 % bootstrap intervals")
    print(f"{'':24}{'rounds':>8}{'bare ms/step':>14}{'added µs/step':>26}{'slowdown %':>24}")
    bars = []
    for name, times in found["times"].items():
        bare, observed = np.array(times["bare"], dtype=np.float64), np.array(times["observed"], dtype=np.float64)
        steps = CASES[name][0] - 1
        more = observed[:, 0] - bare[:, 0]
        added = paired_interval(more / steps / 1e3)
        percent = paired_interval(100 * more / np.median(bare[:, 1]))
        each = float(np.median(bare[:, 1])) / steps / 1e6
        print(f"{name:24}{len(bare):8}{each:14.3f}{added.text(1):>26}{percent.text(2):>24}")
        if name in HELD:
            bars.append(at_most(f"slowdown of a Keras step, {name}", percent, LIMIT_PERCENT, " %"))
    return bars


# ---- the process that measures ----------------------------------------------------------------------------------


def measure() -> dict[str, Any]:
    """ns of CPU time of every round, of Python's thread and of the process, bare and observed, by case."""
    import keras
    import tensorflow as tf

    from sonda.frameworks.collector.watch import ProcessWatch
    from sonda.frameworks.tensorflow.observe.keras import KerasObserver
    from sonda.frameworks.tensorflow.observe.observer import TensorflowObserver

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    class Timer(keras.callbacks.Callback):
        """From the end of the first step to the end of the last."""

        begin = end = (0, 0)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.end = thread_time_ns(), process_time_ns()
            if not batch:
                self.begin = self.end

        def spent(self) -> tuple[int, int]:
            return self.end[0] - self.begin[0], self.end[1] - self.begin[1]

    with tempfile.TemporaryDirectory() as directory:
        watch = ProcessWatch({"directory": directory})
        watch.tensorflow = TensorflowObserver(watch, tf)
        observers = (watch.tensorflow, KerasObserver(watch, keras))
        times: dict[str, dict[str, list[tuple[int, int]]]] = {}
        for name, (steps, rounds, eagerly) in CASES.items():
            model, x, y = _model(keras, name, steps, eagerly)
            times[name] = {"bare": [], "observed": []}
            for number in range(-2, rounds):
                for observed in (True, False) if number % 2 else (False, True):
                    for observer in observers if observed else ():
                        observer.install()
                    timer = Timer()
                    model.fit(x, y, batch_size=32, shuffle=False, verbose=0, callbacks=[timer])
                    for observer in reversed(observers) if observed else ():
                        observer.remove()
                    if number >= 0:
                        times[name]["observed" if observed else "bare"].append(timer.spent())
        watch.recorder.close()
    return {"version": tf.__version__, "times": times}


def _model(keras: Any, name: str, steps: int, eagerly: bool) -> tuple[Any, np.ndarray, np.ndarray]:
    layers = keras.layers
    random = np.random.default_rng(0)
    if name.startswith("CNN"):
        shape: tuple[int, ...] = (32, 32, 3)
        parts = [
            layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(), layers.Conv2D(64, 3, activation="relu"), layers.Flatten(),
            layers.Dense(64, activation="relu"), layers.Dense(10),
        ]  # fmt: skip
    else:
        shape = (784,)
        parts = [layers.Dense(192, activation="relu"), layers.Dense(10)]
    model = keras.Sequential(parts)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, metrics=["accuracy"], run_eagerly=eagerly)
    samples = 32 * steps
    return model, random.standard_normal((samples, *shape), dtype=np.float32), random.integers(0, 10, samples)


if __name__ == "__main__":
    print(json.dumps(measure()))
