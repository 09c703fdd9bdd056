"""Files of events: checksums of the standard, records and fields read back, and what TensorBoard reads of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from answers import RUNS
from builders import stepped
from command_line import run_command
from sonda.imports.xplane.wire import fields
from sonda.record.store import Store
from sonda.report.trackers.metrics import TrackedRun, TrackedSeries, track_run
from sonda.report.trackers.tensorboard import crc32c, frame_record, masked_checksum, write_events


@pytest.mark.parametrize(
    ("content", "checksum"),
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_checksums_are_those_of_the_standard(content: bytes, checksum: int) -> None:
    """RFC 3720, appendix B.4; the check value of CRC-32C in the catalogue of parametrised CRC algorithms."""
    assert crc32c(content) == checksum


def test_a_record_is_its_length_and_itself_each_with_a_checksum() -> None:
    length = b"\x03\0\0\0\0\0\0\0"
    sums = [struct.pack("<I", masked_checksum(part)) for part in (length, b"abc")]
    assert frame_record(b"abc") == length + sums[0] + b"abc" + sums[1]


def test_a_masked_checksum_is_rotated_by_15_and_shifted() -> None:
    """0xE3069283 rotated right by 15 bits is 0x2507C60D; plus 0xA282EAD8 that is 0xC78AB0E5."""
    assert masked_checksum(b"123456789") == 0xC78AB0E5


def records(path: Path) -> Iterator[bytes]:
    """The records of a file, whose checksums are checked."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == masked_checksum(data[at : at + 8])
        content = data[at + 12 : at + 12 + size]
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked_checksum(content)
        yield content
        at += 16 + size


def decode(message: bytes) -> dict[int, Any]:
    """Fields of a message by number, the last of each."""
    decoded: dict[int, Any] = {}
    for field in fields(message, 0, len(message)):
        stretch = message[field.value : field.stop]
        match field.wire:
            case 0:
                decoded[field.number] = field.value
            case 1:
                decoded[field.number] = struct.unpack("<d", stretch)[0]
            case 5:
                decoded[field.number] = struct.unpack("<f", stretch)[0]
            case 2:
                decoded[field.number] = stretch
    return decoded


def tracked(**given: Any) -> TrackedRun:
    known: dict[str, Any] = {
        "id": "7f3a9c21", "title": "mlp", "began": 1763177412.0, "text": "Input-bound.", "settings": {"batch": 16},
        "totals": {"train/step ms": 120.0, "train layers/conv ms": 60.5},
        "series": (TrackedSeries("train", "train/step ms", ((1, 119.0), (2, 121.0))),), **given,
    }  # fmt: skip
    return TrackedRun(**known)


def test_events_have_time_step_name_and_value(tmp_path: Path) -> None:
    path = write_events(tmp_path, tracked())
    assert path.parent == tmp_path / "7f3a9c21"
    assert "tfevents" in path.name
    first, *rest = map(decode, records(path))
    assert (first[1], first[3]) == (1763177412.0, b"brain.Event:2")
    scalars, texts = [], {}
    for event in rest:
        value = decode(decode(event[5])[1])
        if 2 in value:
            scalars.append((value[1].decode(), event.get(2, 0), value[2]))
        else:
            assert decode(decode(value[9])[1])[1] == b"text"
            texts[value[1].decode()] = decode(value[8])[8].decode()
    assert scalars == [("train layers/conv ms", 0, 60.5), ("train/step ms", 1, 119.0), ("train/step ms", 2, 121.0)]
    assert texts == {"sonda/explanation": "```\nInput-bound.\n```", "sonda/settings": "* batch: `16`"}


def test_written_again_it_is_the_same_file(tmp_path: Path) -> None:
    run = track_run(stepped([100.0] * 8))
    first = write_events(tmp_path, run).read_bytes()
    assert write_events(tmp_path, run).read_bytes() == first
    assert len(list(tmp_path.rglob("*tfevents*"))) == 1


def test_tensorboard_reads_every_number_of_it(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    run = track_run(Store(RUNS).one("cnn-epochs"))
    read = accumulator.EventAccumulator(str(write_events(tmp_path, run).parent))
    read.Reload()
    for series in run.series:
        found = [(event.step, event.value) for event in read.Scalars(series.name)]
        assert found == [(step, pytest.approx(value)) for step, value in series.points]
    drawn = {series.name for series in run.series}
    assert set(read.Tags()["scalars"]) == drawn | set(run.totals)
    (text,) = read.Tensors("sonda/explanation")
    assert run.text in text.tensor_proto.string_val[0].decode()


def test_the_command_says_where_it_is(tmp_path: Path) -> None:
    done = run_command(tmp_path, "export", str(next(RUNS.glob("*cb53808dbacd"))), "--tensorboard", "logs")
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "logs").rglob("*tfevents*")
    assert done.stdout == f"tensorboard: {path.relative_to(tmp_path)}\n"
