"""Samples: values at a moment, such as power every 500 ms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa


class Sample(msgspec.Struct, frozen=True):
    """One reading of one sensor; `time` is ns since the run began on the host's clock."""

    time: int
    sensor: str
    value: float
    unit: str
    source: str
    node: str = ""
    device: str = "cpu"


def samples_to_arrow(samples: list[Sample]) -> pa.Table:
    import pyarrow as pa

    schema = pa.schema(
        [("time", pa.int64()), ("node", pa.string()), ("device", pa.string()), ("sensor", pa.string()),
         ("value", pa.float64()), ("unit", pa.string()), ("source", pa.string())]
    )  # fmt: skip
    return pa.Table.from_pylist([msgspec.to_builtins(sample) for sample in samples], schema=schema)


def samples_from_arrow(table: pa.Table) -> list[Sample]:
    return [Sample(**row) for row in table.to_pylist()]
