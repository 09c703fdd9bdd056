"""Where each key of a TOML file stands: tomllib parses, but forgets the lines."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right

Path = tuple[str | int, ...]
"""Keys from the top; the elements of arrays, and of arrays of tables, are counted from 0."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BASIC_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERAL_STRING = re.compile(r"'[^'\n]*'")
# A multi-line string may end with one or two quotes of its own, right before the three that close it.
_LONG_BASIC_STRING = re.compile(r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}', re.DOTALL)
_LONG_LITERAL_STRING = re.compile(r"'''(?:[^']|'{1,2}(?!'))*'{3,5}", re.DOTALL)
_PLAIN_VALUE = re.compile(r"[^,\]}#\n]+")
_BLANK = re.compile(r"[ \t]+")
_BLANK_LINES = re.compile(r"(?:[ \t\n]|#[^\n]*)+")


def key_lines(text: str) -> dict[Path, int]:
    """The line, counted from 1, on which each key and array element first appears.

    `text` must be valid TOML: parse it with tomllib first.
    """
    return _Scanner(text.replace("\r\n", "\n")).document()


class _Scanner:
    """Walks over valid TOML from left to right, noting where keys stand and skipping over values."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.lines: dict[Path, int] = {}
        self.last_index: dict[Path, int] = {}
        """Index of the newest element of each array of tables."""

    def document(self) -> dict[Path, int]:
        table: Path = ()
        self.skip(_BLANK_LINES)
        while self.position < len(self.text):
            if self.at("[["):
                table = self.header(2)
            elif self.at("["):
                table = self.header(1)
            else:
                self.key_and_value(table)
            self.skip(_BLANK_LINES)
        return self.lines

    def header(self, brackets: int) -> Path:
        self.position += brackets
        keys = self.dotted_key()
        path: Path = ()
        for number, (key, line) in enumerate(keys, start=1):
            path = (*path, key)
            self.note(path, line)
            if brackets == 2 and number == len(keys):
                self.last_index[path] = self.last_index.get(path, -1) + 1
            if path in self.last_index:
                path = (*path, self.last_index[path])
                self.note(path, line)
        self.position += brackets
        return path

    def key_and_value(self, table: Path) -> None:
        path = table
        for key, line in self.dotted_key():
            path = (*path, key)
            self.note(path, line)
        self.position += 1  # the equals sign
        self.skip(_BLANK)
        self.value(path)

    def dotted_key(self) -> list[tuple[str, int]]:
        """The parts of a key with their lines; stands after the blanks that follow it."""
        parts = []
        while True:
            self.skip(_BLANK)
            line = self.line()
            if self.at('"'):
                # tomllib itself undoes the escapes, so that both agree on what the key is called.
                key = tomllib.loads(f"key = {self.skip(_BASIC_STRING)}")["key"]
            elif self.at("'"):
                key = self.skip(_LITERAL_STRING)[1:-1]
            else:
                key = self.skip(_BARE_KEY)
            parts.append((key, line))
            self.skip(_BLANK)
            if not self.at("."):
                return parts
            self.position += 1

    def value(self, path: Path) -> None:
        if self.at('"""'):
            self.skip(_LONG_BASIC_STRING)
        elif self.at("'''"):
            self.skip(_LONG_LITERAL_STRING)
        elif self.at('"'):
            self.skip(_BASIC_STRING)
        elif self.at("'"):
            self.skip(_LITERAL_STRING)
        elif self.at("["):
            self.array(path)
        elif self.at("{"):
            self.inline_table(path)
        else:
            self.skip(_PLAIN_VALUE)

    def array(self, path: Path) -> None:
        self.position += 1
        index = 0
        self.skip(_BLANK_LINES)
        while not self.at("]"):
            element = (*path, index)
            self.note(element, self.line())
            self.value(element)
            index += 1
            self.skip(_BLANK_LINES)
            if self.at(","):
                self.position += 1
                self.skip(_BLANK_LINES)
        self.position += 1

    def inline_table(self, path: Path) -> None:
        self.position += 1
        self.skip(_BLANK_LINES)
        while not self.at("}"):
            self.key_and_value(path)
            self.skip(_BLANK_LINES)
            if self.at(","):
                self.position += 1
                self.skip(_BLANK_LINES)
        self.position += 1

    def at(self, start: str) -> bool:
        return self.text.startswith(start, self.position)

    def line(self) -> int:
        return bisect_right(self.line_starts, self.position)

    def note(self, path: Path, line: int) -> None:
        self.lines.setdefault(path, line)

    def skip(self, pattern: re.Pattern[str]) -> str:
        """Step over what matches here, and return it; nothing happens where nothing matches."""
        match = pattern.match(self.text, self.position)
        if not match:
            return ""
        self.position = match.end()
        return match.group()
