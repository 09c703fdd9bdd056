"""Finds the line of the program that asked for an operation: the innermost frame outside of PyTorch and Sonda."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import CodeType
from typing import Any

from ....collector import FOLDERS

MOST_FRAMES = 300
"""Frames that are looked at: the line of an operation deeper inside of libraries than this is not found."""
HIDDEN, LIBRARY, PROGRAM = range(3)
LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
UNNAMED = ("<string>", "<stdin>", "<ipython")
"""Beginnings of the names of code that no file holds and that somebody wrote."""


class CodePlaces:
    """Gives lines as `train.py:41`. Lines of the program come before those of other libraries that it uses."""

    def __init__(self, torch: Any) -> None:
        paths = sysconfig.get_paths()
        self._hidden = (*FOLDERS, os.path.dirname(torch.__file__) + os.sep)
        self._standard = tuple({paths["stdlib"] + os.sep, paths["platstdlib"] + os.sep})
        self._kinds: dict[CodeType, int] = {}
        self._names: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        """Qualified name of the function around each line that was given."""

    def find(self) -> str:
        """The line that runs now; '' where none is the program's or a library's."""
        frame: Any = sys._getframe(1)
        library: Any = None
        for _ in range(MOST_FRAMES):
            if frame is None:
                break
            kind = self._find_kind(frame.f_code)
            if kind == PROGRAM:
                return self.name(frame.f_code, frame.f_lineno)
            if kind == LIBRARY and library is None:
                library = frame
            frame = frame.f_back
        return self.name(library.f_code, library.f_lineno) if library is not None else ""

    def list_callers(self) -> tuple[tuple[CodeType, int], ...]:
        """Code and line of the program's frames, the innermost first."""
        frame: Any = sys._getframe(1)
        callers = []
        for _ in range(MOST_FRAMES):
            if frame is None:
                break
            if self._find_kind(frame.f_code) == PROGRAM:
                callers.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        return tuple(callers)

    def _find_kind(self, code: CodeType) -> int:
        kind = self._kinds.get(code)
        if kind is None:
            kind = self._kinds[code] = self._kind_of(code.co_filename)
        return kind

    def _kind_of(self, file: str) -> int:
        if file.startswith("<"):
            return PROGRAM if file.startswith(UNNAMED) else HIDDEN
        if file.startswith(self._hidden):
            return HIDDEN
        if any(folder in file for folder in LIBRARIES):
            return LIBRARY
        return HIDDEN if file.startswith(self._standard) else PROGRAM

    def name(self, code: CodeType, line: int) -> str:
        file = code.co_filename
        name = self._names.get(file)
        if name is None:
            name = self._names[file] = _short_name(file)
        place = f"{name}:{line}"
        self.functions[place] = getattr(code, "co_qualname", code.co_name)
        return place


def _short_name(file: str) -> str:
    """A file's path from the working directory where it lies in it, its name otherwise."""
    try:
        here = os.getcwd() + os.sep
    except OSError:  # the directory is gone
        here = ""
    return file[len(here) :] if here and file.startswith(here) else os.path.basename(file)
