"""The loops through an XSpace file's lines: as machine code for large files, as plain Python for small ones.

Both give the same: whole numbers stay within 64 bits with a sign, as in the file.
"""

from __future__ import annotations

from typing import Any

ALL_READ, FULL, DAMAGED = 0, 1, 2
"""How a scan ended."""
METADATA, OFFSET, DURATION, OCCURRENCES, FIRST_STAT, LAST_STAT = range(6)
"""Columns of an event: its metadata's id, ps since its line's beginning, ps, how many it stands for where it is a sum
(0 otherwise), and from where to where its stats lie in the table of stats."""
STAT, FIELD, VALUE, STOP = range(4)
"""Columns of a stat: its metadata's id, the field of XStat that holds its value, the value (of text and bytes its
place), and behind its last byte."""


def varint(data: Any, at: int, end: int) -> tuple[int, int]:
    """A whole number of 64 bits with a sign, and the place behind it, -1 where it is none."""
    value, shift = 0, 0
    while at < end:
        byte = data[at] + 0  # a byte of the compiled loop has to become a number of 64 bits
        at += 1
        if shift == 63:
            # The tenth byte has one bit left, which is the sign.
            if byte >= 128:
                return 0, -1
            if byte & 1:
                value = value - 9223372036854775807 - 1
            return value, at
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return 0, -1


def scan_events(data: Any, at: int, end: int, events: Any, stats: Any, ended: Any) -> None:
    """Fill `events` and `stats` with the events of the stretch of a line from `at` to `end`.

    `ended` becomes: the place to go on from, events, stats, how it ended, events that cannot be read.
    """
    count, used, broken, how = 0, 0, 0, 0
    while at < end:
        begin = at
        tag, at = varint(data, at, end)
        wire = tag & 7
        length = 8 if wire == 1 else 4 if wire == 5 else 0
        if at >= 0 and wire == 0:
            _, at = varint(data, at, end)
        elif at >= 0 and wire == 2:
            length, at = varint(data, at, end)
        elif wire != 1 and wire != 5:
            at = -1
        # A length near 2^63 must not be added to a place.
        if at < 0 or length < 0 or length > end - at:
            at, how = begin, 2
            break
        if tag != 34:
            at += length
            continue
        if count >= events.shape[0]:
            at, how = begin, 1
            break
        stop = at + length
        metadata, offset, duration, occurrences, first = 0, 0, 0, 0, used
        while at < stop:
            tag, at = varint(data, at, stop)
            wire = tag & 7
            value, length = 0, 8 if wire == 1 else 4 if wire == 5 else 0
            if at >= 0 and wire == 0:
                value, at = varint(data, at, stop)
            elif at >= 0 and wire == 2:
                length, at = varint(data, at, stop)
            elif wire != 1 and wire != 5:
                at = -1
            if at < 0 or length < 0 or length > stop - at:
                at = -1
                break
            if tag == 8:
                metadata = value
            elif tag == 16:
                offset = value
            elif tag == 24:
                duration = value
            elif tag == 40:
                occurrences = value
            elif tag == 34:
                if used >= stats.shape[0]:
                    how = 1
                    break
                inner = at + length
                field, known, held, behind = 0, 0, 0, 0
                while at < inner:
                    tag, at = varint(data, at, inner)
                    wire = tag & 7
                    value, length = 0, 8 if wire == 1 else 4 if wire == 5 else 0
                    if at >= 0 and wire == 0:
                        value, at = varint(data, at, inner)
                    elif at >= 0 and wire == 2:
                        length, at = varint(data, at, inner)
                        value = at
                    elif wire != 1 and wire != 5:
                        at = -1
                    if at < 0 or length < 0 or length > inner - at:
                        at = -1
                        break
                    if tag == 17:
                        for byte in range(7):
                            value |= (data[at + byte] + 0) << (8 * byte)
                        top = data[at + 7] + 0
                        value |= (top - ((top & 128) << 1)) << 56
                    at += length
                    if tag == 8:
                        known = value
                    elif tag == 17 or tag == 24 or tag == 32 or tag == 42 or tag == 50 or tag == 56:
                        field, held, behind = tag >> 3, value, at
                if at < 0:
                    break
                stats[used, 0], stats[used, 1], stats[used, 2], stats[used, 3] = known, field, held, behind
                used += 1
                continue
            at += length
        if how == 1:
            at, used = begin, first
            break
        if at < 0:
            broken, used = broken + 1, first
        else:
            events[count, 0], events[count, 1], events[count, 2] = metadata, offset, duration
            events[count, 3], events[count, 4], events[count, 5] = occurrences, first, used
            count += 1
        at = stop
    ended[0], ended[1], ended[2], ended[3], ended[4] = at, count, used, how, broken


def find_others(data: Any, at: int, until: int, end: int, others: Any, ended: Any) -> None:
    """Go on filling `others` with the beginnings of the fields of a line that are no events, at least to `until`.

    `ended` becomes: the place to go on from, how many there are, how it ended, events; it begins as zeros.
    """
    count, events, how = ended[1], ended[3], 0
    while at < until:
        begin = at
        tag, at = varint(data, at, end)
        wire = tag & 7
        length = 8 if wire == 1 else 4 if wire == 5 else 0
        if at >= 0 and wire == 0:
            _, at = varint(data, at, end)
        elif at >= 0 and wire == 2:
            length, at = varint(data, at, end)
        elif wire != 1 and wire != 5:
            at = -1
        if at < 0 or length < 0 or length > end - at:
            at, how = begin, 2
            break
        if tag == 34:
            events += 1
        else:
            # Of a field that is there twice the last counts, so the last places are kept.
            if count < others.shape[0]:
                others[count] = begin
                count += 1
            else:
                others[count - 1] = begin
        at += length
    ended[0], ended[1], ended[2], ended[3] = at, count, how, events
