"""Lines of keys in TOML files."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sonda.studies.file.lines import Path, key_lines


def test_every_form_of_key_has_its_line() -> None:
    text = "\n".join(
        [
            "# a comment [not.a.table]",  # 1
            'top = """',  # 2
            "[study]",  # 3
            'name = \\""" """',  # 4
            "[a . 'b c'.\"d\\u0065\"]  # comment",  # 5
            "x.y = [1, # one ]",  # 6
            "  [2,",  # 7
            "   3],",  # 8
            "]",  # 9
            "[[rows]]",  # 10
            'where = { op = "}", size = 3 }',  # 11
            "[[rows]]",  # 12
            "[rows.sub]",  # 13
            "when = 1979-05-27 07:32:00",  # 14
            "[[rows.inner]]",  # 15
            "z = '''a''''",  # 16
            "last = true",  # 17
        ]
    )
    assert tomllib.loads(text)["rows"][1]["inner"][0]["z"] == "a'"
    assert key_lines(text) == {
        ("top",): 2,
        ("a",): 5,
        ("a", "b c"): 5,
        ("a", "b c", "de"): 5,
        ("a", "b c", "de", "x"): 6,
        ("a", "b c", "de", "x", "y"): 6,
        ("a", "b c", "de", "x", "y", 0): 6,
        ("a", "b c", "de", "x", "y", 1): 7,
        ("a", "b c", "de", "x", "y", 1, 0): 7,
        ("a", "b c", "de", "x", "y", 1, 1): 8,
        ("rows",): 10,
        ("rows", 0): 10,
        ("rows", 0, "where"): 11,
        ("rows", 0, "where", "op"): 11,
        ("rows", 0, "where", "size"): 11,
        ("rows", 1): 12,
        ("rows", 1, "sub"): 13,
        ("rows", 1, "sub", "when"): 14,
        ("rows", 1, "inner"): 15,
        ("rows", 1, "inner", 0): 15,
        ("rows", 1, "inner", 0, "z"): 16,
        ("rows", 1, "inner", 0, "last"): 17,
    }


def test_an_empty_file_has_no_lines() -> None:
    assert key_lines("") == {}
    assert key_lines("# nothing\n\n") == {}


class Writer:
    """Writes random TOML in which every key is unique, and notes on which line it wrote each."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.text = ""
        self.expected: dict[Path, int] = {}
        self.keys = 0

    def put(self, text: str) -> None:
        self.text += text

    def note(self, path: Path) -> None:
        self.expected.setdefault(path, self.text.count("\n") + 1)

    def one_of(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def blank(self) -> str:
        return self.one_of("", " ", "\t ")

    def new_key(self) -> tuple[str, str]:
        """A new key and one of the ways to write it."""
        self.keys += 1
        name = f"key{self.keys}"
        odd = f'{name}.a "b" # [c] = é\t\\'
        written = odd.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
        return self.one_of(
            (name, name),
            (name, f'"{name}"'),
            (name, f"'{name}'"),
            (name, f'"\\u006bey{self.keys}"'),
            (odd, f'"{written}"'),
            (f'{name}." # = [', f"'{name}.\" # = ['"),
            (f"-{name}_", f"-{name}_"),
        )

    def dotted(self, table: Path, keys: list[tuple[str, str]]) -> Path:
        path = table
        for number, (name, written) in enumerate(keys):
            path = (*path, name)
            self.put(("." if number else "") + self.blank())
            self.note(path)
            self.put(written + self.blank())
        return path

    def pair(self, table: Path, depth: int) -> None:
        path = self.dotted(table, [self.new_key() for _ in range(self.one_of(1, 1, 2, 3))])
        self.put("=" + self.blank())
        self.value(path, depth)

    def value(self, path: Path, depth: int) -> None:
        form = self.one_of("plain", "plain", "long") if depth == 0 else self.one_of("plain", "long", "array", "table")
        if form == "plain":
            plain = ("1", "-2.5e3", "true", "1979-05-27 07:32:00Z", '"a # ] } [b] = \\" c"', '\'""" # k\'', '""', "''")
            self.put(self.one_of(*plain))
        elif form == "long":
            self.put(
                self.one_of(
                    '"""\n[key1]\nkey2 = 1 # \\""" "" x"""',
                    "'''\nkey3 = \"\"\"\n\\ '' y'''",
                    '"""a\\\n  b"""""',
                    "'''''a'''''",
                    '""""""',
                    "''''''",
                )
            )
        elif form == "array":
            self.put("[" + self.spacing())
            count = self.one_of(0, 1, 2, 3)
            for index in range(count):
                self.note((*path, index))
                self.value((*path, index), depth - 1)
                comma = "," if index < count - 1 else self.one_of("", ",")
                self.put(self.spacing() + comma + self.spacing())
            self.put("]")
        else:
            self.put("{" + self.blank())
            count = self.one_of(0, 1, 2)
            for index in range(count):
                self.pair(path, depth - 1)
                self.put(self.blank() + ("," if index < count - 1 else "") + self.blank())
            self.put("}")

    def spacing(self) -> str:
        return self.one_of("", " ", "\n", ' # ] , } """ key = 1\n\n  ')

    def pairs(self, table: Path) -> None:
        for _ in range(self.one_of(0, 1, 2)):
            self.put(self.blank())
            self.pair(table, 2)
            self.put(self.one_of("\n", " # key = [\n", "\n\n# [key]\n"))

    def header(self, parents: list[tuple[str, str, int | None]], key: tuple[str, str], index: int | None) -> Path:
        """`[a.b]` or, with an index, `[[a.b]]`; parents that are arrays of tables come with their newest index."""
        brackets = 1 if index is None else 2
        self.put("[" * brackets)
        path: Path = ()
        for name, written, number in [*parents, (*key, index)]:
            path = (*path, name)
            self.put(("." if len(path) > 1 else "") + self.blank())
            self.note(path)
            if number is not None:
                path = (*path, number)
                self.note(path)
            self.put(written + self.blank())
        self.put("]" * brackets + self.one_of("\n", " # ]\n"))
        return path

    def document(self) -> None:
        self.pairs(())
        for _ in range(self.one_of(1, 2, 3)):
            key = self.new_key()
            if self.one_of(True, False):
                parents = [(*self.new_key(), None) for _ in range(self.one_of(0, 1))]
                self.pairs(self.header(parents, key, None))
                continue
            inside, inner = self.new_key(), self.new_key()
            for index in range(self.one_of(1, 2, 3)):
                self.pairs(self.header([], key, index))
                if self.one_of(True, False):
                    self.pairs(self.header([(*key, index)], inside, None))
                for number in range(self.one_of(0, 1, 2)):
                    self.pairs(self.header([(*key, index)], inner, number))


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[Path, int]]:
    writer = Writer(draw)
    writer.document()
    text = writer.text
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return text, writer.expected


def paths(value: Any, path: Path = ()) -> set[Path]:
    """Every key and element that tomllib found."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {path} if path else set()
    for key, child in children:
        found |= paths(child, (*path, key))
    return found


@settings(max_examples=300, deadline=None)
@given(documents())
def test_every_key_that_tomllib_finds_is_on_its_line(example: tuple[str, dict[Path, int]]) -> None:
    text, expected = example
    lines = key_lines(text)
    assert set(lines) == paths(tomllib.loads(text))
    assert lines == expected
