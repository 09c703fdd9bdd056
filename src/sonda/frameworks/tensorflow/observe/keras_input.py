"""The input of the loops of Keras: how batches are made, and an iterator by which waiting for them is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .data import loading_of


class BatchIterator:
    """An iterator in place of another one: every batch is fetched by `fetch(next)`."""

    def __init__(self, iterator: Iterator[Any], fetch: Callable[[Any], Any]) -> None:
        self._next = iterator.__next__
        self._fetch = fetch

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Any:
        return self._fetch(self._next)


def loading_of_adapter(adapter: Any, backend: str) -> dict:
    """How the data of a loop is loaded: `loader` is what the program gave to Keras, the rest as in `loading_of`.

    TensorFlow makes batches ahead of a `PyDataset` without workers, of a generator and of arrays; JAX does not.
    """
    name = type(adapter).__name__
    ahead = -1 if backend == "tensorflow" else 0
    if name == "TFDatasetAdapter":
        return loading_of(adapter._dataset)
    if name == "PyDatasetAdapter":
        if adapter.enqueuer is None:
            return {"loader": "PyDataset", "workers": 0, "prefetch": ahead}
        dataset = adapter.py_dataset
        kind = "processes" if dataset.use_multiprocessing else "threads"
        queue = int(dataset.max_queue_size)
        return {"loader": "PyDataset", "workers": int(dataset.workers), "prefetch": queue, "worker_kind": kind}
    loaders = {"GeneratorDataAdapter": "generator", "ArrayDataAdapter": "arrays"}
    return {"loader": loaders[name], "workers": 0, "prefetch": ahead} if name in loaders else {}
