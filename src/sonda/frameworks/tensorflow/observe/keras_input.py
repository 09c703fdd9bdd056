"""Where the loops of Keras have their batches from: how these are made, and how long they are waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .data import loading_of


class Batches:
    """Stands for an iterator of batches, and has every batch fetched by `fetch(next)`."""

    def __init__(self, iterator: Iterator[Any], fetch: Callable[[Any], Any]) -> None:
        self._next = iterator.__next__
        self._fetch = fetch

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        return self._fetch(self._next)


def loading_of_adapter(adapter: Any, backend: str) -> dict:
    """How the data of a loop is loaded: `loader` is what the program gave to Keras, the rest as for a data set.

    TensorFlow makes batches of a `PyDataset` without workers, of a generator and of arrays ahead; JAX makes none.
    """
    name = type(adapter).__name__
    ahead = -1 if backend == "tensorflow" else 0
    if name == "TFDatasetAdapter":
        return loading_of(adapter._dataset)
    if name == "PyDatasetAdapter":
        if adapter.enqueuer is None:
            return {"loader": "PyDataset", "workers": 0, "prefetch": ahead}
        given = adapter.py_dataset
        kind = "processes" if given.use_multiprocessing else "threads"
        queue = int(given.max_queue_size)
        return {"loader": "PyDataset", "workers": int(given.workers), "prefetch": queue, "worker_kind": kind}
    known = {"GeneratorDataAdapter": "generator", "ArrayDataAdapter": "arrays"}
    return {"loader": known[name], "workers": 0, "prefetch": ahead} if name in known else {}
