"""What the descriptions of all built-in workloads share: options are read from text, checked, shown as plain values.

A description is a frozen dataclass whose fields are made by `option`. A text option of the same name sets such a field;
`-` and `_` are equal in names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from sonda.record.errors import SondaError, near, nearest, require_module
from sonda.record.protocols import Task

UNITS = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True)
class OptionKind:
    """What the text of an option may be. `parse` raises ValueError for any other text; `show` gives a plain value."""

    words: str
    """Completes the sentence "size=... is not ..."."""
    parse: Callable[[str], Any]
    show: Callable[[Any], Any] = lambda value: value
    names: tuple[str, ...] = ()
    """The words that the text may be, or consist of, where they are few."""


def whole(least: int = 1) -> OptionKind:
    """A whole number; `10_000` is read too."""

    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise ValueError
        return value

    return OptionKind(f"a whole number of at least {least}", parse)


def number(least: float = 0.0) -> OptionKind:
    """A finite number."""

    def parse(text: str) -> float:
        value = float(text)
        if not least <= value < float("inf"):
            raise ValueError
        return value

    return OptionKind(f"a number of at least {least:g}", parse)


def choice(*words: str) -> OptionKind:
    """One of a few words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return OptionKind(f"one of {', '.join(words)}", parse, names=words)


def choices(*words: str) -> OptionKind:
    """Several of a few words, separated by commas, each once; `all` means every one."""

    def parse(text: str) -> tuple[str, ...]:
        chosen = words if text == "all" else tuple(word.strip() for word in text.split(","))
        if not set(chosen) <= set(words) or len(set(chosen)) < len(chosen):
            raise ValueError
        return chosen

    return OptionKind(f"all, or some of {', '.join(words)} separated by commas", parse, ",".join, words)


def widths(least: int) -> OptionKind:
    """Whole numbers joined by `-`, such as the widths of a perceptron `784-192-10`."""

    def parse(text: str) -> tuple[int, ...]:
        values = tuple(int(part) for part in text.split("-"))
        if len(values) < least or min(values) < 1:
            raise ValueError
        return values

    words = f"{least} or more whole numbers joined by '-', such as 64-32"
    return OptionKind(words, parse, lambda values: "-".join(map(str, values)))


def _switch(text: str) -> bool:
    known = {"": True, "true": True, "yes": True, "on": True, "1": True,
             "false": False, "no": False, "off": False, "0": False}  # fmt: skip
    if text.lower() not in known:
        raise ValueError
    return known[text.lower()]


def _image(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)(?:[x×](\d+))?", text)
    if not match or 0 in (width := int(match[1]), height := int(match[2] or match[1])):
        raise ValueError
    return height, width


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if not match or match[2] not in UNITS:
        raise ValueError
    return int(float(match[1]) * UNITS[match[2]])


SWITCH = OptionKind("true or false", _switch)
IMAGE = OptionKind(
    "WIDTHxHEIGHT in pixels, such as 148x112, or one number for a square", _image, lambda hw: f"{hw[1]}x{hw[0]}"
)
"""Written width first, as image files and `sonda data` have it; the value is height and width, as in the shape of an
image tensor (samples x channels x height x width)."""
SIZE = OptionKind("a size in bytes, such as 6MB (10^6 bytes) or 6MiB (2^20)", _size)


def option(default: Any, kind: OptionKind, meaning: str) -> Any:
    """A field of a description, which a text option of the same name sets."""
    return field(default=default, metadata={"kind": kind, "meaning": meaning})


@dataclass(frozen=True)
class Description:
    """A workload without a framework. Subclasses are frozen dataclasses that say how they are built in each one."""

    def __post_init__(self) -> None:
        self.check()

    @property
    def name(self) -> str:
        raise NotImplementedError

    def check(self) -> None:
        """Raise SondaError when options that are valid one by one contradict each other."""

    def in_torch(self, train: bool, seed: int) -> Task:
        """Make it ready in PyTorch."""
        raise NotImplementedError

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, str], **fixed: Any) -> Self:
        """The description with these text options; `name` is the workload's name in errors.

        Raises SondaError for an unknown option, naming the nearest known ones, and for a value that cannot be.
        """
        kinds = {entry.name: entry.metadata["kind"] for entry in fields(cls) if entry.metadata}
        values: dict[str, Any] = {}
        for key, text in options.items():
            field_name = key.replace("-", "_")
            if field_name not in kinds:
                raise SondaError(f"{name} has no option {key!r}", nearest(field_name, kinds))
            if field_name in values:
                raise SondaError(f"{name}: {key} is given twice", "give it once")
            values[field_name] = parse_option(name, key, text, kinds[field_name])
        return cls(**values, **fixed)

    def parameters(self) -> dict[str, Any]:
        """Every option with its value, as plain values that `from_options` would read back."""
        return {
            entry.name: entry.metadata["kind"].show(getattr(self, entry.name))
            for entry in fields(self)
            if entry.metadata
        }

    def build(self, framework: str, train: bool, seed: int) -> Task:
        """Make it ready. Weights and inputs depend on `seed` alone."""
        require_torch(self.name, framework)
        return self.in_torch(train, seed)


def normalise_names(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """Options with `_` in place of `-` in their names; raises SondaError when one is given in two spellings."""
    given: dict[str, str] = {}
    for key, text in options.items():
        normalised = key.replace("-", "_")
        if normalised in given:
            raise SondaError(f"{name}: {key} is given twice", "give it once")
        given[normalised] = text
    return given


def parse_option(name: str, key: str, text: str, kind: OptionKind) -> Any:
    """The value of an option's text; raises SondaError when the text is not of this kind."""
    try:
        return kind.parse(text.strip())
    except (ValueError, OverflowError):
        wrong = next((word for word in map(str.strip, text.split(",")) if word not in kind.names), text)
        suggestion = near(wrong, kind.names)
        hint = f"did you mean {suggestion!r}? " if suggestion else ""
        raise SondaError(f"{name}: {key}={text} cannot be read", f"{hint}write {kind.words}") from None


def require_torch(name: str, framework: str) -> None:
    """Raise SondaError unless the framework is PyTorch and PyTorch is installed."""
    if framework != "torch":
        raise SondaError(f"{name} cannot be built in {framework!r}", "use the framework torch")
    require_module("torch", "PyTorch", "torch")
