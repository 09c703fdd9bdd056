"""Small text files with descriptions: read whole, parsed as TOML, their mistakes said in one line."""

from __future__ import annotations

import tomllib
from typing import Any

from sonda.record.errors import SondaError

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
