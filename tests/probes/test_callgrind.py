"""Callgrind is found or its lack explained, simulates caches it can simulate, and counts known loops exactly."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from places import DATA, PROGRAMS
from sonda.frameworks.collector import callgrind as valgrind
from sonda.probes.callgrind import valgrind as callgrind
from sonda.probes.callgrind.valgrind import (
    ASSUMED,
    CacheGeometry,
    callgrind_command,
    parse_dump,
    parse_valgrind_version,
    read_cache_geometry,
    read_dumps,
)
from sonda.record.errors import SondaError

RECORDED = DATA / "callgrind" / "loops"
needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor")

TURNS = 100_000


# ---- whether it is there ----------------------------------------------------------------------------------------


def test_a_version_is_read_with_its_patch_level() -> None:
    assert parse_valgrind_version("valgrind-3.19.0") == "3.19.0"
    assert parse_valgrind_version("valgrind-3.24.0.GIT") == "3.24.0.GIT"
    assert parse_valgrind_version("valgrind-4.0") == "4.0"


@pytest.mark.parametrize("said", ["valgrind-3.18.1", "valgrind-2.99.0"])
def test_a_version_that_is_too_old_is_named_with_the_remedy(said: str) -> None:
    with pytest.raises(
        SondaError, match=rf"^valgrind {said.removeprefix('valgrind-')} is too old.*apt install valgrind"
    ):
        parse_valgrind_version(said)


@pytest.mark.parametrize("said", ["", "valgrind: command not found", "cachegrind-3.19.0", "valgrind-x.y"])
def test_what_is_no_version_is_quoted(said: str) -> None:
    with pytest.raises(SondaError, match="valgrind --version says") as caught:
        parse_valgrind_version(said)
    assert "\n" not in str(caught.value)


@needs_x86
def test_a_machine_without_valgrind_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SondaError, match=r"not installed; install the package valgrind, 3\.19 or later"):
        callgrind.valgrind_version()


@needs_x86
def test_a_valgrind_that_cannot_be_run_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "valgrind"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SondaError, match="valgrind cannot be run"):
        callgrind.valgrind_version()


def test_another_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(SondaError, match="does not work on aarch64"):
        callgrind.valgrind_version()
    with pytest.raises(OSError, match="x86-64"):
        valgrind.ValgrindClient()


# ---- caches -----------------------------------------------------------------------------------------------------


def sysfs(root: Path, *caches: tuple[int, str, str, str, str]) -> Path:
    """A tree of caches: level, type, size, ways, line."""
    for number, values in enumerate(caches):
        index = root / f"sys/devices/system/cpu/cpu0/cache/index{number}"
        index.mkdir(parents=True)
        names = ("level", "type", "size", "ways_of_associativity", "coherency_line_size")
        for name, value in zip(names, values, strict=True):
            (index / name).write_text(f"{value}\n")
    return root


def test_first_and_last_level_are_taken_and_the_second_left_out(tmp_path: Path) -> None:
    root = sysfs(tmp_path, (1, "Data", "48K", "12", "64"), (1, "Instruction", "32K", "8", "64"),
                 (2, "Unified", "1280K", "20", "64"), (3, "Unified", "49152K", "12", "64"))  # fmt: skip
    found = read_cache_geometry(root)
    assert (str(found.I1), str(found.D1), str(found.LL)) == ("32768,8,64", "49152,12,64", "50331648,12,64")
    assert found.assumed == ()
    assert found.simulable() == found  # 64, 64 and 65,536 sets


def test_without_a_third_level_the_second_is_the_last(tmp_path: Path) -> None:
    root = sysfs(tmp_path, (1, "Unified", "64K", "4", "64"), (2, "Unified", "1M", "16", "64"))
    found = read_cache_geometry(root)
    assert str(found.LL) == "1048576,16,64"
    assert found.I1 == found.D1 == CacheGeometry(64 << 10, 4, 64)


def test_what_the_kernel_hides_is_assumed_and_named(tmp_path: Path) -> None:
    assert read_cache_geometry(tmp_path).assumed == ("I1", "D1", "LL")
    assert read_cache_geometry(tmp_path).LL == ASSUMED.LL
    root = sysfs(tmp_path, (1, "Data", "32K", "0", "64"), (3, "Unified", "lots", "16", "64"))
    found = read_cache_geometry(root)
    assert found.assumed == ("I1", "LL")
    assert str(found.D1) == "32768,512,64"  # ways unknown: one set of all its lines


def test_eleven_ways_become_twelve_so_that_the_sets_are_a_power_of_two() -> None:
    # 25,952,256 B in 11 ways of 64 B lines: 36,864 sets. 32,768 sets leave room for 12.375 ways.
    real = CacheGeometry(25_952_256, 11, 64)
    assert real.sets == 36_864
    assert real.simulable() == CacheGeometry(32_768 * 12 * 64, 12, 64)


@given(
    st.integers(1, 1 << 21).flatmap(lambda lines: st.tuples(st.just(lines), st.integers(1, 64))),
    st.sampled_from([32, 64]),
)
def test_every_geometry_has_one_near_it_that_can_be_simulated(shape: tuple[int, int], line: int) -> None:
    lines, ways = shape
    real = CacheGeometry(lines * line, ways, line)
    near = real.simulable()
    sets = near.bytes // (near.ways * near.line)
    assert near.bytes == sets * near.ways * near.line and sets & (sets - 1) == 0
    assert near.ways >= 1 and near.line == line
    # Whole ways are the grain: it is never further off than half of one (or one line, of a cache that is smaller).
    assert abs(near.bytes - real.bytes) <= max(sets * line / 2, line)


@needs_valgrind
@needs_x86
def test_valgrind_itself_takes_the_rounded_geometry_and_not_the_other(tmp_path: Path) -> None:
    real = CacheGeometry(25_952_256, 11, 64)
    codes = []
    for geometry in (real, real.simulable()):
        caches = callgrind.CallgrindCaches(ASSUMED.I1, ASSUMED.D1, geometry)
        words = [*callgrind_command(caches, tmp_path), "true"]
        codes.append(subprocess.run(words, capture_output=True, check=False, timeout=600).returncode)
    assert codes[0] != 0 and codes[1] == 0


def test_a_percent_sign_in_the_directory_is_no_pattern_of_valgrind(tmp_path: Path) -> None:
    words = callgrind_command(ASSUMED, Path("/store/50%p"))
    assert "--callgrind-out-file=/store/50%%p/callgrind.%p" in words


# ---- what it wrote ----------------------------------------------------------------------------------------------


def recorded(number: int) -> dict[str, int]:
    return parse_dump((RECORDED / f"callgrind.7.{number + 1}").read_text()).counters


def test_recorded_loops_have_exactly_the_slopes_of_their_instructions() -> None:
    # dec, jnz: 2 instructions and a branch a turn. mov, mov, dec, jnz: 4, with a load and a store.
    for first, expected in ((4, {"Ir": 2, "Bc": 1}), (6, {"Ir": 4, "Dr": 1, "Dw": 1, "Bc": 1})):
        once, twice = recorded(first), recorded(first + 1)
        for event in ("Ir", "Dr", "Dw", "Bc", "Bi"):
            assert twice[event] - once[event] == expected.get(event, 0) * TURNS, event


def test_recorded_empty_parts_agree_to_three_instructions() -> None:
    assert abs(recorded(1)["Ir"] - recorded(2)["Ir"]) <= 3
    assert recorded(2)["Ir"] < 5000  # preallocated: names and arguments are made beforehand


def test_the_totals_are_read_and_the_summary_is_not() -> None:
    text = (RECORDED / "callgrind.7").read_text()
    assert "summary: 11626467" in text and "totals: 11626465" in text
    dump = parse_dump(text)
    assert dump.counters["Ir"] == 11_626_465
    assert dump.number == -1  # written because the program ended, not because it was asked


def test_dumps_of_one_process_are_found_by_their_numbers(tmp_path: Path) -> None:
    for path in RECORDED.iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "callgrind.77.1").write_text((RECORDED / "callgrind.7.1").read_text())
    (tmp_path / "callgrind.7.strange").write_text("not a part")
    assert sorted(read_dumps(tmp_path, 7)) == list(range(8))
    assert sorted(read_dumps(tmp_path, 77)) == [0]
    assert read_dumps(tmp_path, 8) == {}


def test_a_part_that_is_not_whole_ends_the_reading(tmp_path: Path) -> None:
    for path in RECORDED.iterdir():
        shutil.copy(path, tmp_path)
    whole = (tmp_path / "callgrind.7.4").read_text()
    (tmp_path / "callgrind.7.4").write_text(whole[:-30])
    assert sorted(read_dumps(tmp_path, 7)) == [0, 1, 2]


@given(st.integers(0, 1000))
def test_a_dump_cut_anywhere_is_refused_or_read_whole(length: int) -> None:
    text = (RECORDED / "callgrind.7.5").read_text()
    cut = text[: min(length, len(text))]
    try:
        found = parse_dump(cut)
    except SondaError as error:
        assert "lacks its" in str(error)
    else:
        assert cut == text and found.counters["Ir"] == 208_252


def test_zeros_at_the_end_that_callgrind_leaves_out_are_zeros() -> None:
    assert parse_dump("events: Ir Dr Dw\ntotals: 5\n").counters == {"Ir": 5, "Dr": 0, "Dw": 0}
    with pytest.raises(SondaError, match="2 events and 3 totals"):
        parse_dump("events: Ir Dr\ntotals: 5 6 7\n")


# ---- requests ---------------------------------------------------------------------------------------------------


@needs_x86
def test_a_request_does_nothing_on_a_processor() -> None:
    assert len(valgrind.CODE) == 29
    client = valgrind.ValgrindClient()
    assert not client.running()
    assert client.request(valgrind.START_INSTRUMENTATION) == 0
    dumps = valgrind.DumpRequests(client, 3)
    assert [dumps.call(address, 41 + place) for place, address in enumerate(dumps.addresses)] == [41, 42, 43]


@needs_valgrind
@needs_x86
@pytest.mark.slow
def test_loops_of_known_instructions_are_counted_exactly(tmp_path: Path) -> None:
    words = [*callgrind_command(read_cache_geometry().simulable(), tmp_path), sys.executable]
    words += [str(PROGRAMS / "counting_loops.py"), valgrind.__file__]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.stdout == "under valgrind\n", done.stderr
    (process,) = {int(path.name.split(".")[1]) for path in tmp_path.glob("callgrind.*")}
    parts = read_dumps(tmp_path, process)
    for first, instructions, accesses in ((4, 2, 0), (6, 4, 1)):
        once, twice = parts[first], parts[first + 1]
        assert twice["Ir"] - once["Ir"] == instructions * TURNS
        assert twice["Dr"] - once["Dr"] == twice["Dw"] - once["Dw"] == accesses * TURNS
