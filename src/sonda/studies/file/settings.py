"""Settings of a point that are not those of a job, as a study file writes them: their names, numbers and switches."""

from __future__ import annotations

from sonda.record.errors import SondaError
from sonda.studies.file.study import Scalar
from sonda.targets.job import option_text


def name_of(key: str) -> str:
    """A key as Python writes it: `sweep-ways` is `sweep_ways`."""
    return key.replace("-", "_")


def number_of(name: str, value: Scalar, whole: bool = False) -> float:
    """The number that a setting has. Raises SondaError for text, for true and false, and for parts of a `whole` one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or (whole and int(value) != value):
        raise SondaError(f"{name} cannot be {option_text(value)}", f"give a {'whole ' * whole}number")
    return value


def switch_of(name: str, value: Scalar) -> bool:
    """Whether a setting is on. Raises SondaError for what is neither true nor false."""
    if not isinstance(value, bool):
        raise SondaError(f"{name} cannot be {option_text(value)}", "write true or false")
    return value
