"""The text of a Chrome or Kineto trace, cut into pieces of whole events, whatever its size.

A piece ends where an event ends. A likely place is found from behind: `}` `,` `{`. Whether it is one is then certain:
`[` + piece + `]` is JSON only where the piece holds whole events, because JSON has one reading. Where it is not, or
where an event is no JSON, a slow walk through strings and brackets finds every event.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from sonda.record.errors import SondaError

PIECE = 1 << 21
"""Bytes decoded at once; the objects made of them take several times as much."""
BAD_TEXT = (msgspec.MsgspecError, RecursionError, ValueError)
"""What decoding raises for text that is no JSON, is nested too deeply, or is no UTF-8."""
GZIP = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LARGEST_EVENT = 64 << 20
LARGEST_HEAD = 64 << 20
LARGEST_TAIL = 1 << 24
TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
"""A string, whole or cut, be it behind a backslash, or a bracket."""
CLOSED = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
NOT_JSON = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\b(?:nan|NaN|inf|Infinity)\b', re.DOTALL)
"""Strings, and the numbers that C++ prints and JSON does not have."""


class EventText:
    """One trace, or a part of a plain one, as lists of decoded events.

    `decode` turns the text of a list into events and raises one of `BAD_TEXT` when it cannot; `decode_one` does so
    for a single event, as patiently as it can. After the last event `head` holds the other members of the trace.
    """

    def __init__(
        self, stream: IO[bytes], decode: Callable[[bytes], list[Any]], decode_one: Callable[[bytes], Any]
    ) -> None:
        self._stream = stream
        self._decode = decode
        self._decode_one = decode_one
        self._rest = b""
        self.position = 0
        """Bytes of the stream that were decoded, or passed over."""
        self.head: dict[str, Any] = {}
        self.truncated = False
        """The file ends in the middle."""
        self.unreadable = 0
        """Events that are no JSON, or whose members are not what they should be."""
        self.passed_over = False
        """What stands behind the events is too large to be kept."""
        self._bare = False

    def read_head(self) -> None:
        """Pass over what stands before the first event. Raises SondaError when this is no trace."""
        text = self._read(1 << 16)
        mark = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0
        first = text[mark:].lstrip()[:1]
        self._bare = first == b"["
        if self._bare:
            self.position = text.index(b"[") + 1
            self._rest = text[self.position :]
            return
        start = 0
        while True:
            for match in LIST.finditer(text, start):
                try:
                    head = msgspec.json.decode(text[mark : match.end()] + b"]}")
                except BAD_TEXT:
                    continue  # the same words inside something else
                self.head.update({key: value for key, value in head.items() if key != "traceEvents"})
                self._rest = text[match.end() :]
                self.position = match.end()
                return
            start = max(0, len(text) - 64)
            more = self._read(len(text) + PIECE) if first == b"{" and len(text) < LARGEST_HEAD else b""
            if not more:
                raise SondaError("it has no list traceEvents", "give a trace of torch.profiler or Chrome's")
            text += more

    def pieces(self, until: int | None = None) -> Iterator[list[Any]]:
        """Lists of events, up to the byte `until` of the stream, where an event must begin, or to the end."""
        while True:
            room = None if until is None else until - self.position - len(self._rest)
            more = self._read(PIECE if room is None else max(0, min(PIECE, room)))
            text = self._rest + more
            last = len(more) == 0 or (room is not None and len(more) >= room)
            if last and until is None:
                yield from self._finish(text)
                return
            end = len(text) if last else _likely_end(text)
            events = self._decode_list(text[:end].rstrip().removesuffix(b",")) if end > 0 else None
            if events is None:
                events, end, closed = self._walk(text)
                if closed:
                    self._rest = b""
                    self.position += end
                    self._read_tail(text[end:])
                    yield events
                    return
                if end == 0 and len(text) > LARGEST_EVENT:
                    raise SondaError(f"an event is larger than {LARGEST_EVENT >> 20} MiB", "it is not a trace")
            self._rest = text[end:].lstrip().removeprefix(b",")
            self.position += len(text) - len(self._rest)
            yield events
            if last:
                return

    @property
    def at_end_of_event(self) -> bool:
        """Whether nothing but blanks and a comma was read behind the last whole event."""
        return not self._rest.strip()

    def skip_to(self, position: int) -> None:
        """Go on at this byte of a plain stream, where an event begins."""
        self._stream.seek(position)
        self._rest, self.position = b"", position

    def _finish(self, text: bytes) -> Iterator[list[Any]]:
        events, end, closed = self._walk(text)
        self.position += end
        if closed:
            self._read_tail(text[end:])
        else:
            # Chrome's bare list may lack its end; what is left of an event is a file that was cut.
            self.truncated = self.truncated or not self._bare or bool(text[end:].strip(b", \t\r\n"))
        self._rest = b""
        yield events

    def _decode_list(self, text: bytes) -> list[Any] | None:
        try:
            return self._decode(b"".join((b"[", text, b"]")))
        except BAD_TEXT:
            return None

    def _walk(self, text: bytes) -> tuple[list[Any], int, bool]:
        """Whole events, where the last ends, and whether the list ends behind it."""
        depth, begin, end, closed = 0, 0, 0, False
        places: list[tuple[int, int]] = []
        for token in TOKEN.finditer(text):
            mark = text[token.start()]
            if mark in b"{[":
                if depth == 0:
                    begin = token.start()
                depth += 1
            elif mark in b"}]":
                depth -= 1
                if depth < 0:
                    end, closed = token.end(), mark == ord("]")
                    break
                if depth == 0:
                    end = token.end()
                    places.append((begin, end))
        together = text[places[0][0] : places[-1][1]] if places else b""
        events = self._decode_list(together)
        if events is None:
            events = [
                event for begin, stop in places if (event := self._decode_patiently(text[begin:stop])) is not None
            ]
        return events, end, closed

    def _decode_patiently(self, text: bytes) -> Any:
        for candidate in (text, _mend(text)):
            try:
                return self._decode_one(candidate)
            except BAD_TEXT:
                continue
        self.unreadable += 1
        return None

    def _read_tail(self, text: bytes) -> None:
        """The members of the trace behind its events; of more than `LARGEST_TAIL` only whether they end."""
        while len(text) < LARGEST_TAIL and (more := self._read(PIECE)):
            text += more
        if self._bare:
            return
        if len(text) >= LARGEST_TAIL:
            self.passed_over = True
            self.truncated = not self._ends(text) or self.truncated
            return
        text = text.strip()
        if not text.endswith(b"}"):
            self.truncated = True
            return
        try:
            tail = msgspec.json.decode(b"{" + text.removeprefix(b","))
            again = tail.pop("traceEvents", [])
            self.unreadable += len(again) if isinstance(again, list) else 1
            self.head.update({key: value for key, value in tail.items() if key not in self.head})
        except BAD_TEXT:
            self.truncated = True

    def _ends(self, text: bytes) -> bool:
        """Whether the trace is closed, read to its end: a cut may leave a bracket there that is another's."""
        depth = 1
        while text:
            rest = b""
            for token in TOKEN.finditer(text):
                mark = text[token.start()]
                if mark == ord('"'):
                    if token.end() == len(text) and CLOSED.fullmatch(token[0]) is None:
                        rest = token[0]
                else:
                    depth += 1 if mark in b"{[" else -1
                    if depth == 0:
                        return True
            if len(rest) > LARGEST_EVENT:
                return False
            more = self._read(PIECE)
            text = rest + more if more else b""
        return False

    def _read(self, size: int) -> bytes:
        if size <= 0 or self.truncated:
            return b""
        try:
            return self._stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.truncated = True
            return b""


class _GzipText(io.RawIOBase):
    """The text of a compressed file. One that was cut gives all that is left of it before it raises EOFError."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._gzip = gzip.GzipFile(fileobj=file, mode="rb")

    def read(self, size: int = -1) -> bytes:
        pieces: list[bytes] = []
        missing = size
        while missing > 0:
            try:
                piece = self._gzip.read1(missing)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                if not pieces:
                    raise
                break
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        self._gzip.close()
        self._file.close()
        super().close()


def is_packed(path: Path) -> bool:
    """Whether a file that can be read is compressed by gzip."""
    with open(path, "rb") as file:
        return file.read(len(GZIP)) == GZIP


def open_text(path: Path) -> IO[bytes]:
    """The text of a file, compressed by gzip or not. Raises SondaError when it cannot be read."""
    try:
        file = open(path, "rb")  # noqa: SIM115 (the caller closes it)
        magic = file.read(len(GZIP))
        file.seek(0)
    except OSError as error:
        raise SondaError(f"cannot read {path}: {error.strerror or error}", "name a file that can be read") from None
    return _GzipText(file) if magic == GZIP else file  # type: ignore[return-value]


def likely_begin(text: bytes) -> int:
    """Where an event probably begins, -1 where none does."""
    at = text.find(b"{")
    while at >= 0:
        if _end_before(text, at) >= 0:
            return at
        at = text.find(b"{", at + 1)
    return -1


def _likely_end(text: bytes) -> int:
    """Behind the last `}` that is probably an event's, 0 where there is none."""
    at = text.rfind(b"{")
    while at > 0:
        end = _end_before(text, at)
        if end >= 0:
            return end
        at = text.rfind(b"{", 0, at)
    return 0


def _end_before(text: bytes, at: int) -> int:
    """Behind the `}` of `} , {`, the last of which is at `at`; -1 where something else stands before it."""
    before = text[max(0, at - 64) : at].rstrip()
    if not before.endswith(b","):
        return -1
    before = before[:-1].rstrip()
    return max(0, at - 64) + len(before) if before.endswith(b"}") else -1


def _mend(text: bytes) -> bytes:
    """The text with null for numbers that JSON does not have, and with every byte that is no UTF-8 replaced."""
    text = NOT_JSON.sub(lambda match: match[0] if match[0][:1] == b'"' else b"null", text)
    return text.decode("utf-8", "replace").encode()
