"""Mistakes in a file that describes an accelerator or its energies, all of them at once."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Container, Iterable
from typing import Any

from sonda.record.errors import SondaError, near, nearest

# ---- Small text files with descriptions: read whole, parsed as TOML, their mistakes said in one line ----------------

BIGGEST = 1 << 20


def read_text(path: str) -> str:
    """A small text file; raises SondaError where it is none."""
    try:
        with open(path, "rb") as file:
            content = file.read(BIGGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SondaError(f"{path} cannot be read ({reason})", "check the path") from None
    if len(content) > BIGGEST:
        raise SondaError(f"{path} is bigger than {BIGGEST} bytes", "give a description")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise SondaError(f"{path} is not text in UTF-8", "give a description") from None


def parse_toml(text: str, file: str) -> dict[str, Any]:
    """The tables of a TOML text; raises SondaError, naming `file`."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SondaError(f"{file} is not TOML ({error})", "correct it") from None


# ----------------------------------------------------------------------------------------------------------------------

MISSING = object()


class DescriptionMistakes(SondaError):  # noqa: N818 (it is the mistakes that are raised)
    """A file that cannot be used; `str()` has one line for each mistake: `file: field: what is wrong`."""

    def __init__(self, file: str, mistakes: Iterable[str]) -> None:
        self.file = file
        self.mistakes = tuple(dict.fromkeys(mistakes))
        count = len(self.mistakes)
        super().__init__(f"{file} has {count} mistake{'s' if count != 1 else ''}", "correct them")

    def __str__(self) -> str:
        return "\n".join(str(SondaError(f"{self.file}: {mistake}")) for mistake in self.mistakes)


class Fields:
    """A table of a TOML file, read field by field; what is wrong is noted, not raised, so that all is found at once."""

    def __init__(self, table: dict[str, Any], prefix: str, mistakes: list[str]) -> None:
        self._table = table
        self._prefix = prefix
        self._mistakes = mistakes
        self._meant: set[str] = set()
        """Keys that a misspelt one stands for: it is enough to complain of that."""

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def note_mistake(self, key: str, reason: str) -> None:
        """Note what is wrong with a field."""
        self._mistakes.append(f"{self._prefix}{key}: {reason}")

    def note_error(self, error: SondaError) -> None:
        """Note an error whose cause begins with the name of a field."""
        self._mistakes.append(f"{self._prefix}{error}")

    def note_unknown(self, known: Iterable[str]) -> None:
        """Note every key that is not known, with the nearest known one."""
        words = tuple(known)
        for key in self._table:
            if key not in words:
                self.note_mistake(key, f"unknown; {nearest(key, words)}")
                self._meant.add(near(key, words))

    def text(self, key: str, default: Any = MISSING) -> Any:
        return self._read_value(key, default, _is_text, "a text")

    def switch(self, key: str, default: Any = MISSING) -> Any:
        return self._read_value(key, default, lambda value: isinstance(value, bool), "true or false")

    def whole(self, key: str, default: Any = MISSING) -> Any:
        return self._read_value(key, default, _is_whole, "a whole number")

    def count(self, key: str, low: int, high: int, default: Any = MISSING) -> Any:
        """A whole number from low to high, both included."""
        value = self.whole(key, default)
        if value is not None and not low <= value <= high:
            self.note_mistake(key, f"{value} is not a whole number from {low} to {high}")
            return None
        return value

    def number(self, key: str, low: float, high: float, default: Any = MISSING) -> Any:
        """A number from low to high, both included; infinities and NaN are not."""
        words = f"a number from {low:g} to {high:g}"
        return self._read_value(key, default, lambda value: _is_number(value) and low <= value <= high, words)

    def one_of(self, key: str, words: Iterable[str], default: Any = MISSING) -> Any:
        known = tuple(words)
        value = self.text(key, default)
        if isinstance(value, str) and value not in known and value != default:
            self.note_mistake(key, f"{value!r} is unknown; {nearest(value, known)}")
            return None
        return value

    def nearest_word(self, key: str, words: Iterable[str]) -> str | None:
        """The word nearest to what a field has; nothing where none is near."""
        value = self._table.get(key)
        return near(value, words) or None if isinstance(value, str) else None

    def table(self, key: str) -> Fields | None:
        """The fields of a table inside; nothing where it is missing."""
        value = self._read_value(key, None, lambda value: isinstance(value, dict), "a table")
        return None if value is None else Fields(value, f"{self._prefix}{key}.", self._mistakes)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty where it is missing."""
        value = self._read_value(
            key, [], lambda value: isinstance(value, list) and all(map(_is_text, value)), "a list of texts"
        )
        return tuple(value or ())

    def has_word(self, key: str, words: Container[str]) -> bool:
        """Whether the value is one of these words."""
        value = self._table.get(key)
        return isinstance(value, str) and value in words

    def is_table(self, key: str) -> bool:
        return isinstance(self._table.get(key), dict)

    def is_switch(self, key: str) -> bool:
        return isinstance(self._table.get(key), bool)

    def keys(self) -> tuple[str, ...]:
        return tuple(self._table)

    def _read_value(self, key: str, default: Any, fits: Callable[[Any], bool], words: str) -> Any:
        if key not in self._table:
            if default is MISSING:
                if key not in self._meant:
                    self.note_mistake(key, f"missing; give {words}")
                return None
            return default
        value = self._table[key]
        if not fits(value):
            self.note_mistake(key, f"{value!r:.60} is not {words}")
            return None
        return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
