"""Which words of a command line are a program's: `sonda run train.py --epochs 1` is `sonda run -- python train.py
--epochs 1`. Options of Sonda's own stand before the program, and all behind its name are the program's.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from sonda.record.errors import SondaError, near

PYTHON = re.compile(r"python(w|\d[\d.]*)?(\.exe)?")
SHELLS = ("bash", "sh", "zsh")
LAUNCHERS = (
    *SHELLS, "accelerate", "conda", "deepspeed", "env", "mpiexec", "mpirun", "nice", "numactl", "pdm", "poetry", "srun",
    "taskset", "time", "torchrun", "uv",
)  # fmt: skip
"""Programs that start programs. Any other is named by its path, or stands after `--`."""
MODULE = "-m"
VERBOSE = re.compile("-v+")
FILES = (".py", ".sh", ".ipynb")


def split_program(words: Sequence[str], command: Any) -> tuple[list[str], list[str] | None]:
    """The words of Sonda's own, and those of the program; None where a workload is named, or nothing.

    `command` is that of the command line, whose options tell which of them take a value. Raises SondaError for a file
    that cannot be run; it says what to type.
    """
    at = _first_name(words, command)
    if at < len(words) and words[at] == "--":
        return list(words[:at]), list(words[at + 1 :])
    if at == len(words):
        return list(words), None
    path = Path(words[at])
    if path.suffix in FILES and not path.is_file():
        raise SondaError(f"there is no file {words[at]}", _propose_file(words, at, command.name))
    started = [_python(), MODULE] if words[at] == MODULE else _start(words[at])
    if started is None and command.name != "run":  # which knows no workloads
        started = [words[at]]
    return (list(words), None) if started is None else (list(words[:at]), [*started, *words[at + 1 :]])


def _first_name(words: Sequence[str], command: Any) -> int:
    """The place of the first word that is no option of Sonda's: a name, `-m` or `--`."""
    takes_value = {name for option in command.params for name in option.opts
                   if option.param_type_name == "option" and not (option.is_flag or option.count)}  # fmt: skip
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--", MODULE):
        at += 2 if words[at] in takes_value else 1
    return min(at, len(words))


def _start(name: str) -> list[str] | None:
    """The words that start a program of this name; None where it is no program's."""
    path = Path(name)
    if PYTHON.fullmatch(path.name) or name in LAUNCHERS:
        return [name]
    match path.suffix:
        case ".py":
            return [_python(), name]
        case ".ipynb":
            script = f"{path.stem}.py"
            raise SondaError(
                f"{name} is a notebook: put `with sonda.profile() as run:` around a cell, or make it a script",
                f"write: jupyter nbconvert --to script {name} && sonda run {script}",
            )
        case ".sh" if not os.access(path, os.X_OK):
            return [shutil.which("bash") or "sh", name]
    if path.is_file() and os.access(path, os.X_OK):
        return [name if os.sep in name else f".{os.sep}{name}"]
    return None


def describe_misplaced(words: Sequence[str], command: Any, known: Collection[str]) -> str:
    """Which options of Sonda's stand behind the program in these words, so that it got them, and what to type instead;
    '' where none do. `known` are the names of those that Sonda has for a program."""
    own, program = split_program(words, command)
    if program is None:
        return ""
    at = len(own) + (words[len(own)] == "--")
    start = at + (words[at] == MODULE)
    if words[at] in LAUNCHERS or PYTHON.fullmatch(Path(words[at]).name):
        start = next((place for place in range(at, len(words)) if Path(words[place]).suffix in FILES), at)
    flags = {flag: option for option in command.params if option.name in known for flag in option.opts}
    moved: list[str] = []
    names: list[str] = []
    kept, place = list(words[at : start + 1]), start + 1
    while place < len(words) and words[place] != "--":
        word = words[place]
        name = "-v" if VERBOSE.fullmatch(word) else word.partition("=")[0]
        option = flags.get(name)
        has_value = option is not None and name == word and not (option.is_flag or option.count)
        taken = words[place : place + (2 if has_value else 1)]
        (kept if option is None else moved).extend(taken)
        names += [name] if option is not None else []
        place += len(taken)
    if not names:
        return ""
    line = shlex.join(["sonda", command.name, *own, *moved, *words[len(own) : at], *kept, *words[place:]])
    from sonda.analysis.wording import join

    file, which = words[start], list(dict.fromkeys(names))
    verb, them = ("stands", "it") if len(which) == 1 else ("stand", "them")
    return f"{join(which)} {verb} behind {file}, so {file} got {them}; for Sonda write: {line}"


def names_program(name: str) -> bool:
    """Whether a word looks like a program that a user wants to run."""
    return Path(name).suffix in (".py", ".sh") or bool(PYTHON.fullmatch(Path(name).name)) or name in LAUNCHERS


def propose_program(name: str) -> str:
    """What to type for a word that names no workload and no program; '' where nothing is known of it."""
    path = Path(name)
    if path.with_name(f"{path.name}.py").is_file():
        return f"sonda run {name}.py"
    if (path / "__main__.py").is_file():
        return f"sonda run -m {'.'.join(path.parts)}"
    if path.is_dir():
        scripts = sorted(path.glob("*.py"))
        return f"sonda run {scripts[0]}" if scripts else ""
    return f"sonda run -- {name}" if shutil.which(name) else ""


def _python() -> str:
    """The interpreter that `python` is here; Sonda's own where there is none."""
    return "python" if shutil.which("python") else sys.executable


def _propose_file(words: Sequence[str], at: int, command: str) -> str:
    """What to type in place of words of which the one at this place names no file."""
    path = Path(words[at])
    nearest = _nearest_file(path)
    line = shlex.join(["sonda", command, *words[:at], nearest or f"PATH/{path.name}", *words[at + 1 :]])
    return f"write: {line}" if nearest else f"give the path of your program: {line}"


def _nearest_file(path: Path) -> str:
    """A file here, or in a folder of this one, that has this name or a similar one; '' without any."""
    files = [file for pattern in (f"*{path.suffix}", f"*/*{path.suffix}") for file in sorted(Path().glob(pattern))]
    same = [file for file in files if file.name == path.name]
    by_name = {file.stem: file for file in reversed(files)}  # of short names the ending alone would make a half alike
    similar = near(path.stem, by_name)
    return str(same[0]) if same else str(by_name[similar]) if similar else ""
