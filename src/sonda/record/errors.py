"""What goes wrong is said in one line: the cause, then the remedy."""

from __future__ import annotations


class SondaError(Exception):
    """A mistake or a lack that the user can understand and mend.

    `cause` says what is wrong, naming the file, field or value; `remedy` says what to do about it.
    The command line prints `str(error)` on one line and exits with `exit_code`.
    """

    def __init__(self, cause: str, remedy: str = "", exit_code: int = 2) -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy
        self.exit_code = exit_code

    def __str__(self) -> str:
        text = f"{self.cause}; {self.remedy}" if self.remedy else self.cause
        # A name from somebody's file may hold what a terminal would obey.
        return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in " ".join(text.split()))


class MissingExtraError(SondaError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed", f"install it with: pip install 'sonda[{extra}]'")


def first_line(error: BaseException) -> str:
    """What an error says, in one line; of one that says nothing its name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def named_line(error: BaseException) -> str:
    """The same behind its name: `ValueError: what it says`; of one that says nothing its name alone."""
    said, name = first_line(error), type(error).__name__
    return name if said == name else f"{name}: {said}"
