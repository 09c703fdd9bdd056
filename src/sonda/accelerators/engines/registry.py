"""Kinds of engine by name: Sonda's own, and those that other packages add through the entry points `sonda.engines`.

An entry's name is the kind; it names a class of `Engine`, or an instance. Both are imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from numbers import Integral
from typing import TYPE_CHECKING, Any

from sonda.record.errors import SondaError
from sonda.record.plugins import ENGINES, entry_error, import_entry, plugin_entries

if TYPE_CHECKING:
    from sonda.accelerators.engines.contract import Engine

OWN = {
    "flexible_dense": ("flexible_dense", "FlexibleDense"),
    "bitmap_sparse": ("bitmap_sparse", "BitmapSparse"),
    "compressed_row": ("compressed_row", "CompressedRow"),
    "mesh": ("mesh", "Mesh"),
    "outer_product": ("merging", "OuterProduct"),
    "gustavson": ("merging", "Gustavson"),
}
"""Sonda's own kinds: the module in `engines.kinds`, and the class."""
COUNTS = ("cycles", "weight_reads", "input_reads", "psum_reads", "writes", "multiplications")
MEND = "mend or uninstall the package that adds it"


def engine_kinds() -> tuple[str, ...]:
    """Names of all kinds: Sonda's, then those that other packages add."""
    return (*OWN, *(name for name in plugin_entries(ENGINES) if name not in OWN))


def engine_of(kind: str) -> Engine:
    """The engine of a kind. Raises SondaError where no package has it, or what it names cannot be used."""
    return _own_engine(kind) if kind in OWN else _plugin_engine(kind)


@lru_cache(maxsize=len(OWN))
def _own_engine(kind: str) -> Engine:
    module, name = OWN[kind]
    engine: Engine = getattr(import_module(f"sonda.accelerators.engines.kinds.{module}"), name)()
    return engine


def _plugin_engine(kind: str) -> Engine:
    from sonda.accelerators.engines.contract import Engine

    entry = plugin_entries(ENGINES).get(kind)
    if entry is None:
        raise SondaError(f"there is no engine {kind!r} any more", "install the package that adds it")
    imported = import_entry(entry)
    if isinstance(imported, type) and issubclass(imported, Engine):
        with blame_package(kind):
            return imported()
    if not isinstance(imported, Engine):
        raise SondaError(f"the engine {kind} of {entry.value} is no sonda.accelerators.engines.contract.Engine", MEND)
    return imported


@contextmanager
def blame_package(kind: str) -> Iterator[None]:
    """What an engine of another package raises inside becomes a SondaError, one line that names the package."""
    try:
        yield
    except SondaError:
        raise
    except Exception as error:
        if kind in OWN:
            raise
        raise entry_error(plugin_entries(ENGINES)[kind], error) from error


def check_result(kind: str, result: Any) -> None:
    """Raises SondaError where an engine of another package gave no `Result` of whole numbers that add up."""
    if kind in OWN:
        return
    from sonda.accelerators.engines.result import Result

    whole = isinstance(result, Result) and all(isinstance(getattr(result, name), Integral) for name in COUNTS)
    if not whole or result.cycles < 0 or sum(result.stack.values()) not in (0, result.cycles):
        raise SondaError(
            f"the engine {kind} of {plugin_entries(ENGINES)[kind].value} gives {result!r:.60}, which is no Result of "
            "whole numbers whose stack adds up to its cycles",
            MEND,
        )
