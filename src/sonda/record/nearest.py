"""The nearest of known names: what whoever misspelt one probably meant."""

from __future__ import annotations

from collections.abc import Iterable

CUTOFF = 0.6
"""Share of letters in common (difflib's ratio) from which on two names are near."""
MOST = 24
"""Known names that are listed where none is near."""


def near(word: str, known: Iterable[str]) -> str:
    """The known name nearest to this one, whatever its capitals; '' where none is near."""
    import difflib

    small = {one.lower(): one for one in sorted(known, reverse=True)}
    found = difflib.get_close_matches(word.lower(), small, n=1, cutoff=CUTOFF)
    return small[found[0]] if found else ""


def nearest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A remedy for an unknown name: `did you mean 'batch'?`, or the known names where none is near; behind it, what
    else could be given."""
    names = sorted(set(known))
    found = near(word, names)
    if found:
        return f"did you mean {found!r}? {otherwise}".rstrip()
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    listed = f"known: {', '.join(names[:MOST])}{more}" if names else "none is known"
    return f"{listed}. {otherwise}" if otherwise else listed
