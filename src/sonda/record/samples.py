"""Samples: values at a moment, such as power every 500 ms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from sonda.record.errors import SondaError
from sonda.record.quantities import check_source

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

    def __post_init__(self) -> None:
        check_source(self.source)


class Reading(msgspec.Struct, frozen=True):
    """What a probe of another package says of one sensor, at the moment it is asked."""

    sensor: str
    value: float
    unit: str
    source: str = "measured"
    total: bool = False
    """Whether it only grows, as a counter does: a run then keeps its growth, otherwise its mean, least and most."""
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_source(self.source)


def samples_to_arrow(samples: list[Sample]) -> pa.Table:
    import pyarrow as pa

    schema = pa.schema(
        [("time", pa.int64()), ("node", pa.string()), ("device", pa.string()), ("sensor", pa.string()),
         ("value", pa.float64()), ("unit", pa.string()), ("source", pa.string())]
    )  # fmt: skip
    return pa.Table.from_pylist([msgspec.to_builtins(sample) for sample in samples], schema=schema)


def samples_from_arrow(table: pa.Table) -> list[Sample]:
    """Columns that are not known are left alone; raises SondaError when the table does not hold samples."""
    known = [name for name in table.column_names if name in Sample.__struct_fields__]
    try:
        return msgspec.convert(table.select(known).to_pylist(), list[Sample])
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise SondaError(f"not samples: {error}", "the file was not written by Sonda") from None
