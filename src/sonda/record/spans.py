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
from sonda.record.quantities import Metric

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = (
    "run", "part", "epoch", "step", "phase", "layer", "op", "kernel", "copy", "collective", "compile", "query",
    "stage", "annotation",
)  # fmt: skip
"""An annotation is a name that somebody gave to what happens inside it; by itself it does nothing."""
PARTS = ("train", "validate", "test")
PHASES = ("data", "transfer", "forward", "prefill", "decode", "loss", "backward", "optimizer", "fused", "communicate")
"""`fused`: forward, loss, backward and optimizer of a training step that is one compiled function."""
STAGES = ("process", "import", "checkpoint", "observing")
"""What a program does outside its steps, or inside them beside the network: a whole process, an outermost import, a
file of weights that is saved or loaded, Sonda's own work. `path` says which module or function."""
PASSES = ("warmup", "timed", "count", "kernels", "pieces", "modelled")
"""`pieces`: steps of their own in which layers can be told apart, where timed steps are one compiled function."""

COLUMNS = (
    "id", "parent", "kind", "name", "path", "call", "direction", "pass", "node", "rank", "device", "thread", "stream",
    "clock", "start", "duration",
)  # fmt: skip
"""Every column that is not a metric, in the order of the file."""

TEXT_COLUMNS = ("kind", "name", "path", "direction", "pass", "node", "device", "clock")
"""Columns of words. An empty word means: does not apply. `clock` is host, device or simulated."""

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

NEEDED = ("start", "duration", "parent", "kind", "name")
"""Columns without which a table does not hold spans."""

DEFAULT_WORDS = {"pass": "timed", "clock": "host", "device": "cpu"}


def phase_order(name: str) -> tuple[int, str]:
    """A key that sorts phases in the order of a step; phases with other names come behind, by name."""
    return (PHASES.index(name) if name in PHASES else len(PHASES), name)


@dataclass(frozen=True)
class Words:
    """A column of words: `words[codes[i]]` is the word of row i."""

    codes: np.ndarray
    words: tuple[str, ...]

    def decoded(self) -> np.ndarray:
        """The words themselves, one per row, as an object array."""
        words: np.ndarray = np.array(self.words, dtype=object)[self.codes]
        return words

    def equal(self, word: str) -> np.ndarray:
        """Mask of the rows that hold this word."""
        if word not in self.words:
            return np.zeros(len(self.codes), dtype=bool)
        mask: np.ndarray = self.codes == self.words.index(word)
        return mask

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
    """A table of spans. Numbers are numpy arrays, words are `Words`, metrics are float64 arrays, NaN for missing."""

    def __init__(
        self,
        numbers: Mapping[str, np.ndarray],
        words: Mapping[str, Words],
        metrics: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """`start` is needed; other columns default to: no parent, 0, timed, host, cpu, does not apply.

        Raises ValueError for a column that no span has, and for columns of different lengths.
        """
        length = len(numbers["start"])
        self._numbers = {name: np.asarray(values, dtype=NUMBER_COLUMNS.get(name)) for name, values in numbers.items()}
        self._words = dict(words)
        self.metrics: dict[str, np.ndarray] = {}
        for column, values in (metrics or {}).items():
            Metric.parse(column)
            self.metrics[column] = np.asarray(values, dtype=np.float64)
        lengths = {
            **{name: len(values) for name, values in (*self._numbers.items(), *self.metrics.items())},
            **{name: len(column.codes) for name, column in self._words.items()},
        }
        for name, found in lengths.items():
            if name not in COLUMNS and name not in self.metrics:
                raise ValueError(f"spans have no column {name!r}")
            if found != length:
                raise ValueError(f"column {name!r} has {found} rows, start has {length}")
        self._numbers.setdefault("id", np.arange(length, dtype=np.int64))
        for name, kind in NUMBER_COLUMNS.items():
            self._numbers.setdefault(name, np.full(length, -1 if name == "parent" else 0, dtype=kind))
        for name in TEXT_COLUMNS:
            self._words.setdefault(name, Words.constant(DEFAULT_WORDS.get(name, ""), length))

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
        """The table as the file holds it. Missing values of a metric are null, its unit is in the field's metadata."""
        import pyarrow as pa

        columns: dict[str, Any] = {}
        for name in COLUMNS:
            columns[name] = pa.array(self._numbers[name]) if name in self._numbers else arrow_column(self._words[name])
        for name, values in self.metrics.items():
            columns[name] = pa.array(values, from_pandas=True)
        fields = [
            pa.field(name, array.type, metadata={"unit": Metric.parse(name).unit} if ":" in name else None)
            for name, array in columns.items()
        ]
        return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))

    @classmethod
    def from_arrow(cls, table: pa.Table, part: bool = False) -> Spans:
        """Columns that are not known are left alone; raises SondaError when the table does not hold spans.

        The parents of a `part` of a table may be in other parts.
        """
        import pyarrow as pa

        strange = "the file was not written by Sonda"
        for name in table.column_names:
            if table.column_names.count(name) > 1:
                raise SondaError(f"two columns {name!r}", strange)
        for name in NEEDED:
            if name not in table.column_names:
                raise SondaError(f"spans lack the column {name!r}", strange)
        numbers: dict[str, np.ndarray] = {}
        words: dict[str, Words] = {}
        metrics: dict[str, np.ndarray] = {}
        try:
            for name in table.column_names:
                column = table.column(name)
                if name in NUMBER_COLUMNS:
                    if column.null_count or not pa.types.is_integer(column.type):
                        raise SondaError(f"column {name!r} does not hold whole numbers", strange)
                    wanted = NUMBER_COLUMNS[name]
                    numbers[name] = _values(_as(column, pa.from_numpy_dtype(wanted)).chunks, wanted)
                elif name in TEXT_COLUMNS:
                    words[name] = arrow_words(column)
                elif ":" in name:
                    metrics[name] = _values(_as(column, pa.float64()).chunks, np.float64)
            spans = cls(numbers, words, metrics)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise SondaError(f"not spans: {error}", strange) from None
        parent = spans.number("parent")
        if not part and len(parent) and not (parent.min() >= -1 and parent.max() < len(parent)):
            raise SondaError("a span's parent is not in the file", strange)
        return spans


def join_spans(first: Spans, second: Spans, parent: np.ndarray) -> Spans:
    """Both tables in one, the second behind the first. `parent` are the second's parents as rows of the whole."""
    numbers = {
        name: np.concatenate((first.number(name), second.number(name)))
        for name in NUMBER_COLUMNS
        if name not in ("id", "parent")
    }
    numbers["parent"] = np.concatenate((first.number("parent"), parent))
    words = {}
    for name in TEXT_COLUMNS:
        left, right = first.words(name), second.words(name)
        known = {word: code for code, word in enumerate(left.words)}
        codes = np.array([known.setdefault(word, len(known)) for word in right.words], dtype=np.int32)
        words[name] = Words(np.concatenate((left.codes, codes[right.codes])), tuple(known))
    metrics = {
        column: np.concatenate((first.metric(*column.split(":")), second.metric(*column.split(":"))))
        for column in dict.fromkeys((*first.metrics, *second.metrics))
    }
    return Spans(numbers, words, metrics)


def _as(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    # A cast loads pyarrow's compute functions, which takes longer than reading a small run.
    return column if column.type == wanted else column.cast(wanted)


def _values(chunks: list[pa.Array], dtype: Any) -> np.ndarray:
    """Numbers of fixed width, NaN where a metric is null.

    pyarrow's own conversion loads pandas where it is installed, which takes longer than reading a small run.
    """
    pieces = []
    for chunk in (piece for piece in chunks if len(piece)):
        there, data = chunk.buffers()
        values = np.frombuffer(data, dtype, len(chunk), chunk.offset * np.dtype(dtype).itemsize)
        if chunk.null_count:
            known = np.unpackbits(np.frombuffer(there, np.uint8), bitorder="little")[chunk.offset :][: len(chunk)]
            values = np.where(known, values, np.nan)
        pieces.append(values)
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.zeros(0, dtype), *pieces])


def arrow_numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Whole numbers; raises ValueError for other ones."""
    import pyarrow as pa

    if column.null_count or not pa.types.is_integer(column.type):
        raise ValueError("a column does not hold whole numbers")
    return _values(_as(column, pa.int64()).chunks, np.int64)


def arrow_column(column: Words) -> pa.DictionaryArray:
    """A column of words as a file holds it."""
    import pyarrow as pa

    # Names from a program need not be UTF-8: what cannot be encoded is written as an escape.
    words = [word.encode("utf-8", "backslashreplace").decode() for word in column.words]
    dictionary = pa.array(words, type=pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(column.codes, type=pa.int32()), dictionary)


def arrow_words(column: pa.ChunkedArray) -> Words:
    """A column of words as it was written; raises ValueError where a word is missing."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = _as(column, pa.string()).dictionary_encode()
    column = column.unify_dictionaries()
    if column.num_chunks == 1:
        array = column.chunk(0)  # combining would copy it
    else:
        array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    words = array.dictionary.to_pylist()
    if array.null_count or not all(isinstance(word, str) for word in words):
        raise ValueError("a word is missing")
    return Words(_values([array.indices], array.indices.type.to_pandas_dtype()).astype(np.int32, copy=False),
                 tuple(words) or ("",))  # fmt: skip
