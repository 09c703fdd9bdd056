"""What Sonda says of the runs of the corpus. `python tests/corpus/answers.py` writes it down anew, in `answers/`.

Whoever does that reads the difference first: numbers never change, and a key or a word that changes is listed in
CHANGELOG.md.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from math import isclose
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

HERE = Path(__file__).parent
ANSWERS, RUNS = HERE / "answers", HERE / "runs"
SCREENS: dict[str, tuple[tuple[str, ...], int]] = {
    "80.txt": ((), 80), "100.txt": ((), 100), "v.txt": (("-v",), 120), "vv.txt": (("-vv",), 120),
}  # fmt: skip
"""Options and columns of every screen, by its file: the first at two widths, then with tables, then with everything."""
LISTING: dict[str, tuple[tuple[str, ...], int]] = {"80.txt": ((), 80), "120.txt": ((), 120)}
"""Those of a list of runs, which is a table only."""
COMPARED = {
    "compare-trainings": ("cnn-train", "cnn-bfloat16"),
    "compare-repeated": ("mlp-train", "mlp-repeated"),
    "compare-programs": ("program-train", "program-energy-model"),
    "compare-traces": ("import-kineto", "import-streams"),
    "compare-simulated": ("sim-tpu", "sim-sigma"),
    "compare-gpu": ("gpu-mlp-energy", "gpu-cnn-ncu"),
}
STUDIES = {"study-widths": "studies/widths.toml", "study-meshes": "studies/meshes.toml"}


@cache
def store() -> Path:
    """A copy of the runs, because listing them writes an index beside them."""
    folder = Path(mkdtemp(prefix="sonda-corpus-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(shutil.copytree(RUNS, folder / "runs"))


def names() -> list[str]:
    """Names of the runs: their tags in the store."""
    return sorted(path.name for path in (RUNS / "tags").iterdir())


def commands() -> dict[str, list[list[str]]]:
    """Commands by the name of the answer that they give together."""
    wanted = {name: [["show", name]] for name in names()}
    wanted |= {name: [["compare", *pair]] for name, pair in COMPARED.items()}
    wanted |= {name: [["study", file, "--show"]] for name, file in STUDIES.items()}
    return {**wanted, "list": [["ls", "--all"]]}


def files_of(name: str) -> dict[str, str]:
    """What Sonda says now, by the name of the file that keeps it."""
    (words,) = commands()[name]
    screens = LISTING if name == "list" else SCREENS
    said = {file: carry_out([*words, *options], width) for file, (options, width) in screens.items()}
    document = carry_out([*words, "--json"], 120)
    try:
        said["document.json"] = _as_json(json.loads(document))
    except ValueError:
        said["document.json"] = document
    page = _page_of(words)
    return {**said, "page.txt": page} if page else said


def _page_of(words: Sequence[str]) -> str:
    """The tables of the page about a run, a comparison or a study, and a digest of every figure's data."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        match words[0]:
            case "show" | "compare":
                answer = carry_out(["report", *words[1:], "--output", str(path)], 120)
            case "study":
                answer = carry_out([*words, "--page", str(path)], 120)
            case _:
                return ""
        if not path.exists():
            return answer
        reader = PageReader()
        reader.feed(path.read_text(encoding="utf-8"))
        return "\n".join(reader.lines) + "\n"


class PageReader(HTMLParser):
    """Headings, rows of tables and digests of figures, a line each."""

    KEPT = ("h1", "h2", "h3", "caption", "th", "td", "summary")
    DRAWN = ("figure", "icicle")

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._row: list[str] = []
        self._text: list[str] | None = None
        self._script = False
        self._figure = ""
        self._drawn: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        if tag == "div" and about.get("class") in self.DRAWN:
            self._figure, self._drawn = about.get("id") or "", []
        elif self._figure:
            self._drawn.append(self.get_starttag_text() or "")
        elif tag == "script":
            self._script = True
        elif tag in self.KEPT:
            self._text = []

    def handle_endtag(self, tag: str) -> None:
        if self._figure:
            # Fields of a tree are elements of their own inside of it.
            inside = sum(piece.startswith("<div") for piece in self._drawn) - self._drawn.count("</div>")
            if tag == "div" and not inside:
                digest = sha256("".join(self._drawn).encode()).hexdigest()[:16]
                self.lines.append(f"figure {self._figure} {digest}")
                self._figure = ""
            else:
                self._drawn.append(f"</{tag}>")
        elif tag == "script":
            self._script = False
        elif tag in ("th", "td") and self._text is not None:
            self._row.append(" ".join("".join(self._text).split()))
            self._text = None
        elif tag == "tr":
            self.lines.append(" | ".join(self._row))
            self._row = []
        elif tag in self.KEPT and self._text is not None:
            self.lines.append(f"{tag}: " + " ".join("".join(self._text).split()))
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._figure:
            self._drawn.append(data)
        elif not self._script and self._text is not None:
            self._text.append(data)


def carry_out(words: Sequence[str], width: int) -> str:
    """What a command prints on the screen of a pipe that is so wide, and its exit code where it is not 0."""
    from sonda.cli import main

    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    code: object = 0
    with _as(["sonda", *words], printed, COLUMNS=str(width), SONDA_HOME=str(store()), TZ="UTC"):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    printed.seek(0)
    text = printed.read().replace(str(store()), "STORE").replace(str(HERE), "CORPUS")
    return text if not code else f"{text}exit code {code}\n"


@contextmanager
def _as(words: list[str], printed: io.TextIOWrapper, **environment: str) -> Iterator[None]:
    """A command line of its own, in this folder: a longer path would break lines elsewhere."""
    before = sys.argv, sys.stdout, sys.stderr, {name: os.environ.get(name) for name in environment}
    folder = Path.cwd()
    os.chdir(HERE)
    sys.argv, sys.stdout, sys.stderr = words, printed, printed
    os.environ.update(environment)
    try:
        yield
    finally:
        os.chdir(folder)
        sys.argv, sys.stdout, sys.stderr, variables = before
        for name, value in variables.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# ---- Comparing with what is kept, and writing it anew ---------------------------------------------------------------


def same_number(kept: object, now: object) -> bool:
    """Whether two numbers are one. They may differ after the ninth digit: products of matrices, least squares and
    powers add in an order that BLAS and NumPy choose by the processor's vector units."""
    return type(kept) is type(now) is float and isclose(kept, now, rel_tol=1e-9)


def differences(kept: object, now: object, place: str = "") -> list[str]:
    """Where two documents differ."""
    if isinstance(kept, dict) and isinstance(now, dict):
        keys, absent = dict.fromkeys([*kept, *now]), "(missing)"
        places = [(kept.get(key, absent), now.get(key, absent), f"{place}.{key}") for key in keys]
        return [line for values in places for line in differences(*values)]
    if isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        return [
            line for at, pair in enumerate(zip(kept, now, strict=True)) for line in differences(*pair, f"{place}[{at}]")
        ]
    if same_number(kept, now):
        return []
    return [] if type(kept) is type(now) and kept == now else [f"{place}: {kept!r} became {now!r}"]


def with_kept_digits(kept: object, now: object) -> object:
    """`now`, with the digits of `kept` wherever both have the same number at the same place."""
    if isinstance(kept, dict) and isinstance(now, dict):
        return {key: with_kept_digits(kept.get(key), value) for key, value in now.items()}
    if isinstance(kept, list) and isinstance(now, list):
        return [with_kept_digits(*pair) for pair in zip(kept, now, strict=False)] + now[len(kept) :]
    return kept if same_number(kept, now) else now


def is_document(file: str, text: str) -> bool:
    """Whether a file of an answer is compared number by number, not as text."""
    return file == "document.json" and text.startswith("{")


def _as_json(document: object) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def write(name: str) -> None:
    """Write an answer anew. Of a document only what the test would call different changes, so that a difference shows
    nothing of the machine that wrote it."""
    folder = ANSWERS / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files_of(name).items():
        path = folder / file
        kept = path.read_text(encoding="utf-8") if path.exists() else ""
        if is_document(file, text) and is_document(file, kept):
            text = _as_json(with_kept_digits(json.loads(kept), json.loads(text)))
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or commands():
        write(wanted)
        print(re.sub(r"\s+", " ", wanted))
