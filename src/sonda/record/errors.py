"""Errors in one line, the cause and then the remedy; and the known names nearest to a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable


class SondaError(Exception):
    """A mistake or a lack that the user can understand and mend.

    `cause` says what is wrong, naming the file, field or value; `remedy` says what to do about it, and `correction`
    which word to write instead, where it is one word.
    The command line prints `str(error)` on one line and exits with `exit_code`.
    """

    def __init__(self, cause: str, remedy: str = "", exit_code: int = 2) -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = str(remedy)
        self.correction = remedy if isinstance(remedy, Correction) else None
        self.exit_code = exit_code

    def __str__(self) -> str:
        text = f"{self.cause}; {self.remedy}" if self.remedy else self.cause
        # A name from somebody's file may hold what a terminal would obey.
        return "".join(
            character if character.isprintable() else ascii(character)[1:-1] for character in " ".join(text.split())
        )


DISTRIBUTION = "sonda-profiler"
"""What pip knows Sonda by. `sonda` is the name of another project there."""


def install_command(extra: str, *options: str) -> str:
    """What to type to have the packages of an extra beside Sonda."""
    return " ".join(("pip install", *options, f"'{DISTRIBUTION}[{extra}]'"))


class MissingExtraError(SondaError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed", f"install it with: {install_command(extra)}")


def require_module(module: str, package: str, extra: str) -> None:
    """Raise MissingExtraError where there is no such module; it is not imported."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise MissingExtraError(package, extra)


def first_line(error: BaseException) -> str:
    """What an error says, in one line; of one that says nothing its name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def named_line(error: BaseException) -> str:
    """The same behind its name: `ValueError: what it says`; of one that says nothing its name alone."""
    text, name = first_line(error), type(error).__name__
    return name if text == name else f"{name}: {text}"


# ---- Names nearest to a misspelt one --------------------------------------------------------------------------------

CUTOFF = 0.6
"""Share of letters in common (difflib's ratio) from which on two names are near."""
MOST = 24
"""Known names that are listed where none is near."""


def near(word: str, known: Iterable[str]) -> str:
    """The known name nearest to this one, whatever its capitals; '' where none is near."""
    import difflib

    small = {name.lower(): name for name in sorted(known, reverse=True)}
    matches = difflib.get_close_matches(word.lower(), small, n=1, cutoff=CUTOFF)
    return small[matches[0]] if matches else ""


class Correction(str):
    """A remedy for a misspelt word, with the word and the one that was meant, so that a whole line can be corrected."""

    word: str
    meant: str

    def __new__(cls, text: str, word: str, meant: str) -> Correction:
        remedy = super().__new__(cls, text)
        remedy.word, remedy.meant = word, meant
        return remedy


def nearest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A remedy for an unknown name: `did you mean 'batch'?`, or the known names where none is near; behind it, what
    else could be given."""
    names = sorted(set(known))
    name = near(word, names)
    if name:
        return Correction(f"did you mean {name!r}? {otherwise}".rstrip(), word, name)
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    listed = f"known: {', '.join(names[:MOST])}{more}" if names else "none is known"
    return f"{listed}. {otherwise}" if otherwise else listed
