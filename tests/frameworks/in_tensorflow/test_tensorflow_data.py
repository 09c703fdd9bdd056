"""How a data set of tf.data loads, from how it was made."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.tensorflow.observe.data import Datasets, loading_of


class _Dataset:
    def __init__(self, *inputs: Any, inject: bool | None = None, **attributes: Any) -> None:
        self.inputs, self.inject = inputs, inject
        self.__dict__.update(attributes)

    def _inputs(self) -> list[Any]:
        return list(self.inputs)

    def options(self) -> Any:
        optimization = SimpleNamespace(inject_prefetch=self.inject, apply_default_optimizations=None)
        return SimpleNamespace(experimental_optimization=optimization, autotune=SimpleNamespace(enabled=None))


class _PrefetchDataset(_Dataset):
    pass


CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("dataset", "workers", "prefetch"), [
    (_Dataset(), 0, -1),
    (_Dataset(inject=False), 0, 0),
    (_PrefetchDataset(_Dataset(_num_parallel_calls=4), _buffer_size=2, inject=False), 4, 2),
    (_Dataset(_PrefetchDataset(_Dataset(), _buffer_size=-1), _Dataset(_num_parallel_calls=-1), inject=False),
     CORES, -1),
])  # fmt: skip
def test_what_its_making_tells(dataset: Any, workers: int, prefetch: int) -> None:
    assert loading_of(dataset) == {"loader": "tf.data", "workers": workers, "prefetch": prefetch}


def test_it_is_stated_once_and_what_is_no_data_set_not_at_all() -> None:
    recorder = Recorder("")
    datasets = Datasets(recorder)
    assert [datasets.introduce(7, _Dataset()), datasets.introduce(7, _Dataset()), datasets.introduce(8, object())] == [
        7,
        7,
        8,
    ]
    assert [fact["loader"] for fact in recorder._pending] == [7]


def test_of_real_data_sets() -> None:
    tensorflow = pytest.importorskip("tensorflow")
    data = tensorflow.data.Dataset.range(8)
    mapped = data.map(lambda value: value + 1, num_parallel_calls=3).batch(2)
    assert loading_of(mapped.prefetch(2)) == {"loader": "tf.data", "workers": 3, "prefetch": 2}
    assert loading_of(data) == {"loader": "tf.data", "workers": 0, "prefetch": -1}
    options = tensorflow.data.Options()
    options.experimental_optimization.inject_prefetch = False
    assert loading_of(mapped.with_options(options)) == {"loader": "tf.data", "workers": 3, "prefetch": 0}
