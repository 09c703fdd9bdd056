"""Groups of ranks that communicate: what a collective says about its own, as one word of the record.

A profiler writes it beside every collective. It is kept as the `path` of the collective's span: JSON, so that nothing
in a name or a description can be mistaken for something else.
"""

from __future__ import annotations

import re

import msgspec

NUMBERS = re.compile(r"\s*\[?\s*(\d{1,9}(?:\s*,\s*\d{1,9})*)?\s*(,?\s*\.\.\.)?\s*\]?\s*")
"""`[0, 1]`, or cut by the profiler: `[0, 1, ...]`."""


class RankGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """The group of a collective. What is not said is empty."""

    group: str
    """Its name, which is unique among those of one rank only."""
    description: str = ""
    ranks: tuple[int, ...] = ()
    cut: bool = False
    """Whether there are more ranks than are named."""
    collective: str = ""
    """What it does, such as `allreduce`: names of kernels need not tell."""


def label(group: RankGroup) -> str:
    """The group as a word."""
    return msgspec.json.encode(group).decode()


def group_of(word: str) -> RankGroup | None:
    """What `label` wrote; None for any other word."""
    if not word.startswith('{"group"'):
        return None
    try:
        return msgspec.json.decode(word.encode(), type=RankGroup)
    except msgspec.MsgspecError:
        return None


def parse_group(name: object, description: object, ranks: object, collective: object) -> RankGroup | None:
    """The group that a trace names; None where its name is none. Ranks may be a list, or one in a text."""
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    if not isinstance(name, str) or not name:
        return None
    numbers, cut = _numbers(ranks)
    description, collective = (word if isinstance(word, str) else "" for word in (description, collective))
    return RankGroup(name, description, numbers, cut, collective)


def _numbers(ranks: object) -> tuple[tuple[int, ...], bool]:
    if isinstance(ranks, list):
        whole = all(isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 1 << 31 for rank in ranks)
        return (tuple(ranks) if whole else ()), False
    match = NUMBERS.fullmatch(ranks) if isinstance(ranks, str) and len(ranks) < 1 << 20 else None
    if match is None or not match[1]:
        return (), False
    return tuple(int(number) for number in match[1].split(",")), bool(match[2])
