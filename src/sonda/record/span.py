"""Spans: the one shape for everything measured or simulated.

A span is a named interval. Spans are kept as columns, because a run may hold millions. The identity of a span is its
row: `id` counts from 0, `parent` is the row of the span around it, or -1. Names are dictionary-encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sonda.record.errors import SondaError
from sonda.record.quantity import Metric

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = (
    "run", "part", "epoch", "step", "phase", "layer", "op", "kernel", "copy", "collective", "compile", "query",
)  # fmt: skip
PARTS = ("train", "validate", "test")
PHASES = ("data", "transfer", "forward", "prefill", "decode", "loss", "backward", "optimizer", "communicate")
PASSES = ("warmup", "timed", "count", "kernels", "modelled")
CLOCKS = ("host", "device", "simulated")

TEXT_COLUMNS = ("kind", "name", "path", "direction", "pass", "node", "device", "clock")
"""Columns of words. An empty word means: does not apply."""

NUMBER_COLUMNS: dict[str, Any] = {
    "id": np.int64,
    "parent": np.int64,
    "call": np.int32,
    "rank": np.int32,
    "thread": np.int64,
    "stream": np.int32,
    "start": np.int64,
    "duration": np.int64,
}
"""Columns of integers; `start` and `duration` are ns since the run began on the span's own clock. Never subtract
across clocks or nodes."""

DEFAULT_WORDS = {"pass": "timed", "clock": "host", "device": "cpu"}


@dataclass(frozen=True)
class Words:
    """A column of words: `words[codes[i]]` is the word of row i."""

    codes: np.ndarray
    words: tuple[str, ...]

    def decoded(self) -> np.ndarray:
        """The words themselves, one per row, as an object array."""
        return np.array(self.words, dtype=object)[self.codes]

    def equal(self, word: str) -> np.ndarray:
        """Mask of the rows that hold this word."""
        if word not in self.words:
            return np.zeros(len(self.codes), dtype=bool)
        return self.codes == self.words.index(word)

    @classmethod
    def of(cls, values: Iterable[str]) -> Words:
        """Encode plain words."""
        order: dict[str, int] = {}
        codes = [order.setdefault(value, len(order)) for value in values]
        return cls(np.array(codes, dtype=np.int32), tuple(order) or ("",))

    @classmethod
    def constant(cls, word: str, length: int) -> Words:
        return cls(np.zeros(length, dtype=np.int32), (word,))


class Spans:
    """A table of spans. Numbers are numpy arrays, words are `Words`, metrics are float64 arrays with NaN for missing."""

    def __init__(
        self,
        numbers: Mapping[str, np.ndarray],
        words: Mapping[str, Words],
        metrics: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        length = len(numbers["start"])
        self._numbers = {name: np.asarray(numbers[name], dtype=kind) for name, kind in NUMBER_COLUMNS.items()
                         if name in numbers}  # fmt: skip
        self._numbers.setdefault("id", np.arange(length, dtype=np.int64))
        for name, kind in NUMBER_COLUMNS.items():
            self._numbers.setdefault(name, np.full(length, -1 if name == "parent" else 0, dtype=kind))
        self._words = dict(words)
        for name in TEXT_COLUMNS:
            self._words.setdefault(name, Words.constant(DEFAULT_WORDS.get(name, ""), length))
        self.metrics: dict[str, np.ndarray] = {}
        for column, values in (metrics or {}).items():
            Metric.parse(column)
            self.metrics[column] = np.asarray(values, dtype=np.float64)

    def __len__(self) -> int:
        return len(self._numbers["start"])

    def number(self, name: str) -> np.ndarray:
        return self._numbers[name]

    def words(self, name: str) -> Words:
        return self._words[name]

    def metric(self, quantity: str, source: str) -> np.ndarray:
        """Values of one metric on all spans, NaN where it is missing."""
        column = str(Metric(quantity, source))
        if column in self.metrics:
            return self.metrics[column]
        return np.full(len(self), np.nan)

    def where(self, **words: str) -> np.ndarray:
        """Mask of the spans whose columns hold these words: `spans.where(kind="layer", pass_="timed")`."""
        mask = np.ones(len(self), dtype=bool)
        for name, word in words.items():
            mask &= self._words[name.rstrip("_")].equal(word)
        return mask

    def to_arrow(self) -> pa.Table:
        import pyarrow as pa

        columns: dict[str, Any] = {}
        for name in ("id", "parent", "kind", "name", "path", "call", "direction", "pass", "node", "rank", "device",
                     "thread", "stream", "clock", "start", "duration"):  # fmt: skip
            if name in self._numbers:
                columns[name] = pa.array(self._numbers[name])
            else:
                column = self._words[name]
                columns[name] = pa.DictionaryArray.from_arrays(
                    pa.array(column.codes, type=pa.int32()), pa.array(column.words, type=pa.string())
                )
        for name, values in self.metrics.items():
            columns[name] = pa.array(values, from_pandas=True)
        fields = [
            pa.field(name, array.type, metadata={"unit": Metric.parse(name).unit} if ":" in name else None)
            for name, array in columns.items()
        ]
        return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))

    @classmethod
    def from_arrow(cls, table: pa.Table) -> Spans:
        """Raises SondaError when a column that every span has is missing."""
        import pyarrow as pa

        numbers: dict[str, np.ndarray] = {}
        words: dict[str, Words] = {}
        metrics: dict[str, np.ndarray] = {}
        for name in table.column_names:
            chunked = table.column(name)
            if name in NUMBER_COLUMNS:
                numbers[name] = chunked.to_numpy()
            elif name in TEXT_COLUMNS:
                if not pa.types.is_dictionary(chunked.type):
                    chunked = chunked.dictionary_encode()
                array = chunked.unify_dictionaries().combine_chunks()
                if isinstance(array, pa.ChunkedArray):
                    array = array.chunk(0) if array.num_chunks else pa.array([], chunked.type)
                words[name] = Words(
                    array.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False),
                    tuple(array.dictionary.to_pylist()) or ("",),
                )
            elif ":" in name:
                metrics[name] = chunked.to_numpy()
        missing = [name for name in ("start", "duration", "parent", "kind", "name") if name not in {*numbers, *words}]
        if missing:
            raise SondaError(f"spans lack the column {missing[0]!r}", "the file was not written by Sonda")
        return cls(numbers, words, metrics)
