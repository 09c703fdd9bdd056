"""The modelled pass is started with the right step, ends in time, and says in one line why it came to nothing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from builders import RunBuilder
from places import PROGRAMS
from processes import lives
from sonda.probes.callgrind.valgrind import ASSUMED, CacheGeometry
from sonda.probes.machine.record import machine_record
from sonda.record.errors import SondaError
from sonda.record.spans import Spans
from sonda.record.store import Store
from sonda.targets.instrument import Circumstances, Contribution, EndedRun, Observation
from sonda.targets.instruments import callgrind as target
from sonda.targets.instruments.callgrind import CallgrindInstrument, StepChoice, choose_steps
from sonda.targets.instruments.callgrind_spans import ModelledStep
from sonda.targets.instruments.miss_curve import resize_last_level
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.program.launcher import ProgramLauncher, WatchSettings

needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
needs_avx2 = pytest.mark.skipif("avx2" not in machine_record().get("instruction_sets", []), reason="needs AVX2")
needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor")


def program(*sections: tuple[str, int]) -> Spans:
    """A native run with so many steps of each part, one after the other, 10 ms each."""
    builder = RunBuilder()
    for name, count in sections:
        part = builder.part(name)
        for _ in range(count):
            builder.step(part, 10.0, {"forward": 5.0})
    return builder.run().spans


@pytest.mark.parametrize(
    ("sections", "start", "step"),
    [
        ([("train", 20)], 1, 2),
        ([("train", 3)], 1, 2),
        ([("train", 2)], 1, 1),
        ([("train", 1)], 0, 0),
        ([("test", 5)], 1, 2),
        ([("validate", 4), ("train", 10)], 5, 6),
        ([("validate", 4), ("train", 1), ("validate", 4)], 4, 4),
    ],
)
def test_the_third_training_step_is_modelled_or_the_last_before_it(
    sections: list[tuple[str, int]], start: int, step: int
) -> None:
    found = choose_steps(program(*sections))
    assert found == StepChoice(start, step, pytest.approx((step + 1) * 0.010))


def test_a_program_without_steps_has_none_to_model() -> None:
    assert choose_steps(program()) is None


# ---- started and ended ---------------------------------------------------------------------------------------------


def instructions(spans: Spans, kind: str, name: str = "", path: str = "", direction: str = "") -> float:
    """Of all spans of this kind, name or path and direction, together."""
    mask = spans.where(kind=kind)
    for column, word in (("name", name), ("path", path), ("direction", direction)):
        if word:
            mask &= spans.words(column).equal(word)
    return float(np.nansum(spans.metric("instructions", "modelled")[mask]))


def emulated(directory: Path, wanted: str) -> tuple[list[str], list[ModelledStep], str]:
    """A program whose requests an emulator of ours answers: what it was asked, the steps found, what went wrong."""
    words = [sys.executable, str(PROGRAMS / "emulated.py"), str(directory), wanted]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    return done.stdout.split(), target._read_modelled_steps(directory), done.stderr


def test_the_step_that_was_asked_for_is_modelled_and_the_program_ended(tmp_path: Path) -> None:
    said, steps, errors = emulated(tmp_path, "2")
    # Instrumented from the second step on, so that the simulated caches are warm in the third; there is no fourth.
    assert said == ["step", "start", "step", "step", "stop"], errors
    (step,) = steps
    assert step.complete and step.part == "train"
    # 1,000 instructions in every part, and 1,000 in the marker: nothing is left.
    assert (step.markers.span[0], step.markers.phase[0]) == (1000, 1000)
    assert set(step.spans.metric("instructions", "modelled")) == {0.0}
    kinds = step.spans.words("kind").decoded().tolist()
    names, ways = step.spans.words("name").decoded(), step.spans.words("direction").decoded()
    phases = [name for kind, name in zip(kinds, names, strict=True) if kind == "phase"]
    assert phases == ["optimizer", "forward", "loss", "backward", "optimizer"]
    layers = [(name, way) for kind, name, way in zip(kinds, names, ways, strict=True) if kind == "layer"]
    assert layers == [("Sequential", "forward"), ("Linear", "forward"), ("ReLU", "forward"), ("Linear", "forward"),
                      ("Linear", "backward"), ("ReLU", "backward"), ("Linear", "backward")]  # fmt: skip


def test_a_program_of_one_step_is_modelled_from_its_begin(tmp_path: Path) -> None:
    said, (step,), errors = emulated(tmp_path, "0")
    assert said == ["start", "step", "stop"], errors
    assert step.complete and step.spans.where(kind="phase", name="backward").sum() == 1


def test_a_program_that_fails_in_its_modelled_step_keeps_what_was_complete(tmp_path: Path) -> None:
    said, (step,), errors = emulated(tmp_path, "fail")
    assert said == ["step", "start", "step", "step", "stop"] and "RuntimeError: no more" in errors
    assert not step.complete
    names = set(step.spans.words("name").decoded()[step.spans.where(kind="phase")])
    assert names == {"optimizer", "forward", "loss", "backward"}


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A valgrind of ours: what it says after `--version`, and what it does with a program, is in files."""
    place = tmp_path / "bin"
    place.mkdir()
    script = place / "valgrind"
    script.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo valgrind-3.19.0; exit; fi\n'
        'while [ "${1#--}" != "$1" ]; do shift; done\n. "$(dirname "$0")/what"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(target, "measure_penalties", lambda machine: None)
    yield place / "what"


def modelled(tmp_path: Path, command: list[str]) -> Contribution:
    native = program(("train", 20))
    launcher = ProgramLauncher(command, WatchSettings())
    plan = launcher.plan(Store(tmp_path / "store"), tmp_path, str)
    observation = Observation(native, {}, {}, Circumstances("", machine_record(), {}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "instruction_set", lambda directory: "AVX512")
        return CallgrindInstrument().collect(EndedRun(plan, observation, native, partial(launcher.again, plan)))


@needs_x86
def test_a_program_that_fails_under_valgrind_is_one_line_and_the_native_run_stays(stub: Path, tmp_path: Path) -> None:
    stub.write_text('echo "boom: no memory" >&2; exit 3')
    found = modelled(tmp_path, ["python", "train.py"])
    (state,) = found.states
    assert state.state == "dead"
    assert state.reason.startswith("python under valgrind ended with code 3")
    assert state.reason.endswith(": boom: no memory")
    assert found.spans is None and found.target == {}


@needs_x86
def test_a_program_that_hangs_is_ended_in_time_with_all_it_started(
    stub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "SLOWDOWN", 0.0)
    stub.write_text(f'sleep 600 & echo $! > "{tmp_path}/child"; wait')
    for seconds in (3.0, 60.0):  # enough for a shell to begin; on a machine that is too busy for that, once more
        monkeypatch.setattr(target, "LIMIT_S", seconds)
        found = modelled(tmp_path, ["python", "train.py"])
        assert "did not reach its modelled step in time" in found.states[0].reason
        if (tmp_path / "child").exists():
            break
    child = int((tmp_path / "child").read_text())
    limit = time.monotonic() + 300  # killed; its new parent may take a moment to notice
    while lives(child):
        assert time.monotonic() < limit, "the program's child is still there"
        time.sleep(0.05)


@needs_x86
def test_a_program_that_valgrind_does_not_follow_runs_to_its_end_and_says_so(stub: Path, tmp_path: Path) -> None:
    stub.write_text('exec "$@"')
    found = modelled(tmp_path, [sys.executable, str(PROGRAMS / "plain.py")])
    assert "in a process that valgrind could not follow" in found.states[0].reason


def test_a_probe_is_asked_for_by_name_with_sizes_behind_it() -> None:
    launcher = ProgramLauncher(["true"], WatchSettings())

    def sizes(probes: str | tuple[str, ...]) -> list[tuple[int, ...]]:
        found = instruments_for(probes, launcher)
        return [one.sizes for one in found if isinstance(one, CallgrindInstrument)]

    assert sizes("") == sizes("pmu") == sizes(()) == []
    assert sizes("pmu,callgrind") == [()]
    assert sizes(("callgrind:512KiB+2MiB",)) == [(512 << 10, 2 << 20)]
    with pytest.raises(SondaError, match="'x' is not the size of a cache"):
        sizes("callgrind:x")


def test_geometries_of_a_run_are_the_simulated_and_the_real(tmp_path: Path) -> None:
    caches = resize_last_level(ASSUMED, 8 << 20)
    real = target.CallgrindCaches(caches.I1, caches.D1, CacheGeometry(25_952_256, 11, 64))
    record = target.geometry_record(real)
    assert record["LL"] == "25165824,12,64"
    assert record["asked"]["LL"] == {"bytes": 25_952_256, "ways": 11, "line": 64}


@needs_valgrind
@needs_avx2
@pytest.mark.slow
def test_an_unmodified_program_is_modelled_layer_by_layer(tmp_path: Path) -> None:
    """The same network on another processor (Zen 3): forward 12,274,401 and backward 9,521,746 instructions."""
    found = modelled(tmp_path, [sys.executable, str(PROGRAMS / "convolving.py")])
    assert [state.state for state in found.states] == ["ok"], found.states
    assert found.spans is not None
    about = found.target["modelled"]
    assert (about["isa"], about["native_isa"], about["threads"], about["complete"]) == ("AVX2", "AVX512", 1, True)
    # Hooks, names and arguments are made beforehand: a marker stays below 10,000 instructions.
    assert 1000 < about["marker_instructions"] < 10_000
    spans = found.spans
    assert instructions(spans, "phase", name="forward") == pytest.approx(12_274_401, rel=0.1)
    assert instructions(spans, "phase", name="backward") == pytest.approx(9_521_746, rel=0.1)
    conv, pool = (instructions(spans, "layer", path=path, direction="forward") for path in ("conv1", "pool1"))
    assert 2.5 < pool / conv < 4.0
    inside = sum(instructions(spans, "phase", name=name) for name in ("forward", "loss", "backward", "optimizer"))
    assert 0 <= instructions(spans, "step") - inside < 0.05 * instructions(spans, "step")
    leaves = ("conv1", "relu1", "pool1", "conv2", "relu2", "pool2", "dense")
    for direction in ("forward", "backward"):
        layers = [instructions(spans, "layer", path=path, direction=direction) for path in leaves]
        assert all(layers) and sum(layers) <= instructions(spans, "phase", name=direction)
