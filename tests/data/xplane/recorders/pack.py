"""Pack the profiles below `profiles`, without the plane of compiled programs: it names files of the machine."""

import gzip
from pathlib import Path


def number(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """Number of every field of a message, its bytes with the head, and its content; all of them are stretches."""
    at = 0
    while at < len(data):
        begin = at
        tag, at = number(data, at)
        length, at = number(data, at)
        yield tag >> 3, data[begin : at + length], data[at : at + length]
        at += length


for path in Path("profiles").glob("*/plugins/profile/*/*.xplane.pb"):
    kept = [whole for place, whole, content in fields(path.read_bytes())
            if place != 1 or b"/host:metadata" not in content[:64]]  # fmt: skip
    name = path.relative_to("profiles").parts[0]
    Path(f"{name}.xplane.pb.gz").write_bytes(gzip.compress(b"".join(kept), 9, mtime=0))
