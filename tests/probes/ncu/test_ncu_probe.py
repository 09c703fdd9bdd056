"""The probe ncu: its command line, what it says when it cannot count, and two rounds with a program in ncu's place."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_examples import ADD, ADDED, asked, stand_in, table
from processes import lives
from sonda.frameworks.reconstruction.assembly import Assembly
from sonda.imports.ncu.files import read_csv
from sonda.imports.ncu.tables import read_launches
from sonda.probes.machine.gpu import GpuDevice
from sonda.probes.ncu.chips import find_chip
from sonda.probes.ncu.command import NcuSettings, ncu_command, ncu_state, ncu_version, parse_ncu_version
from sonda.probes.ncu.failure import explain_failure, find_unknown_metrics
from sonda.probes.ncu.outliers import find_outlying_rows
from sonda.probes.ncu.replay import AGAIN, CountedKernels, StallsFor, count_kernels
from sonda.record.errors import SondaError
from sonda.record.spans import Spans, Words
from sonda.record.store import Store
from sonda.targets.instrument import Circumstances, EndedRun, Observation, RunPlan
from sonda.targets.instruments import ncu
from sonda.targets.program.launcher import ProgramLauncher, WatchSettings
from trace_examples import GPU

HOPPER = find_chip(9, 0)
INSTRUCTIONS = ("fadd", "fmul", "ffma")
FLOPS = {f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum": "inst" for name in INSTRUCTIONS}
CORE = {"gpu__time_duration.sum": "ns", **FLOPS, "profiler__replayer_passes": "pass"}
LONG = "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct"
STALL = {"gpu__time_duration.sum": "ns", LONG: "%", "profiler__replayer_passes": "pass"}


def count(
    folder: Path, *tables: str, stalls_for: StallsFor | None = None, said: list[str] | None = None, code: int = 0,
    limit_s: float = 60.0, first: str = "",
) -> CountedKernels:  # fmt: skip
    program = stand_in(folder, *tables, code=code, first=first)
    settings = NcuSettings(program=program, limit_s=limit_s)
    say = (said if said is not None else []).append
    return count_kernels(["python", "step.py"], b'{"job": 1}', HOPPER, say, stalls_for, settings=settings)


# ---- command and version ----------------------------------------------------------------------------------------


def test_the_command_line_fixes_everything_that_changes_numbers() -> None:
    words = ncu_command(["a.sum", "b.sum"], Path("log"), NcuSettings())
    text = " ".join(words)
    for part in ("--clock-control none", "--cache-control all", "--profile-from-start off", "--replay-mode kernel",
                 "--csv --page raw --print-units base --print-fp", "--log-file log", "--metrics a.sum,b.sum",
                 "--target-processes all", "--print-kernel-base mangled"):  # fmt: skip
        assert part in text
    assert words[0] == "ncu" and "--kernel-name" not in words


def test_kernels_are_chosen_by_their_symbols_and_nothing_in_them_is_a_pattern() -> None:
    words = ncu_command(["a.sum"], Path("log"), NcuSettings(cache="none", bracketed=False), ["_Z1fv", "k.2$x"])
    assert words[-4:] == ["--kernel-name-base", "mangled", "--kernel-name", r"regex:^(_Z1fv|k\.2\$x)$"]
    assert "--profile-from-start on" in " ".join(words) and "--cache-control none" in " ".join(words)
    with pytest.raises(SondaError, match="'warm' does not exist"):
        ncu_command([], Path("log"), NcuSettings(cache="warm"))


@pytest.mark.parametrize(
    ("said", "reason"),
    [("Version 2020.1.2.0 (build 1)", "2020.1.2.0 is too old"), ("Version 2022.2.0.0", "too old"),
     ("bash: no such thing", "says 'bash")],
)  # fmt: skip
def test_a_version_that_cannot_be_used_is_one_line(said: str, reason: str) -> None:
    with pytest.raises(SondaError, match=reason):
        parse_ncu_version(said)


def test_the_state_of_the_probe_says_what_is_missing(tmp_path: Path) -> None:
    driver = tmp_path / "proc/driver/nvidia"
    assert ncu_state("ncu", tmp_path).reason == "there is no NVIDIA driver"
    driver.mkdir(parents=True)
    (driver / "version").write_text("NVRM version: 580\n")
    assert "not installed" in ncu_state(str(tmp_path / "nowhere"), tmp_path).reason
    program = stand_in(tmp_path)
    assert ncu_version(program) == "2025.3.1.0"
    assert ncu_state(program, tmp_path).state == "ok"


# ---- failures ---------------------------------------------------------------------------------------------------

PIECES = [
    *table(CORE, ("k", ("1", "2", "n/a", "3", "5"))).splitlines(),
    "==ERROR== ",
    "==ERROR== Failed to find metric",
    "==ERROR== The application returned an error",
    "==WARNING== No kernels were profiled.",
    '"',
    '"0","1","',
]
SHUT = "==PROF== Trying to shutdown target application\n==ERROR== The application returned an error code (9).\n"
NONE = "==WARNING== No kernels were profiled.\n"


@pytest.mark.parametrize(
    ("log", "cause", "remedy"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on "
         "the target device 0.\n" + NONE, "no permission", "SYS_ADMIN"),
        ("==ERROR== An error was reported by the driver:\n==ERROR== Profiling failed because a driver resource was "
         "unavailable. Ensure that no other tool (like DCGM) is concurrently collecting profiling data.\n" + SHUT,
         "in use by another program", "dcgmi profile --pause"),
        ("==ERROR== Failed to open/create lock file /tmp/nsight-compute-lock\n==ERROR== InterprocessLockFailed\n",
         "lock", "TMPDIR"),
        ("==ERROR== An error was reported by the counter measurement library:\n==ERROR== Failed to initialize the "
         "profiler: LibraryNotLoaded. Check that a compatible driver library is loaded.\n" + SHUT,
         "does not fit the driver", "nvidia-smi"),
        ("==ERROR== Profiling is not supported on device 0. To find out supported GPUs refer --list-chips option.\n"
         + NONE, "does not know the device", "newer"),
        ("==ERROR== Profiling is not supported on device 0 as it uses the Windows Subsystem for Linux (WSL).\n" + NONE,
         "under WSL", "Linux itself"),
        ("==ERROR== unrecognised option '--print-kernel-base'. Use --help for more.\n", "an option", "newer"),
        ("==PROF== Connected\n" + NONE, "no kernel was counted", "runs on the GPU"),
        ("==ERROR== A thing that nobody foresaw.\n" + SHUT, "A thing that nobody foresaw", "leave the probe"),
    ],
)  # fmt: skip
def test_every_failure_is_a_line_of_its_own(log: str, cause: str, remedy: str, tmp_path: Path) -> None:
    error = explain_failure(log.splitlines(), "", 0, tmp_path)
    assert cause in error.cause and remedy in error.remedy and "\n" not in str(error)


def test_counters_kept_for_administrators_are_told_from_those_that_a_container_hides(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    parameters = tmp_path / "proc/driver/nvidia/params"
    parameters.write_text("EnableMSI: 1\nRmProfilingAdminOnly: 1\nGpuInitOnProbe: 1\n")
    log = ["==ERROR== ERR_NVGPUCTRPERM - no permission"]
    assert "NVreg_RestrictProfilingToAdminUsers=0" in explain_failure(log, "", 0, tmp_path).remedy
    parameters.write_text("RmProfilingAdminOnly: 0\n")
    assert "--cap-add SYS_ADMIN" in explain_failure(log, "", 0, tmp_path).remedy


def test_a_program_that_fails_is_quoted() -> None:
    error = explain_failure([SHUT], "Traceback\nRuntimeError: CUDA out of memory\n", 1)
    assert error.cause == "the program failed under Nsight Compute: RuntimeError: CUDA out of memory"


@pytest.mark.parametrize(
    "text",
    ["Failed to find metric smsp__b.sum", r"Failed to find metric regex:^smsp__b\.(sum|min|max|avg|pct)$",
     "Failed to access the following 2 metrics: smsp__b.sum, nvlrx__bytes.sum"],
)  # fmt: skip
def test_metrics_that_ncu_does_not_know_are_recognised(text: str) -> None:
    assert find_unknown_metrics([f"==ERROR== {text}"], ["smsp__a.sum", "smsp__b.sum", "smsp__bb.sum"]) == [
        "smsp__b.sum"
    ]


@given(st.lists(st.one_of(st.text(max_size=40), st.sampled_from(PIECES)), max_size=12), st.text(max_size=20))
def test_whatever_ncu_wrote_is_a_table_or_one_line(lines: list[str], output: str) -> None:
    log = [f"{line}\n" for line in lines]
    find_unknown_metrics(log, HOPPER.core.metrics)
    try:
        assert all(launch.kernel == "k" for launch in read_launches(log))
    except SondaError:
        text = str(explain_failure(log, output, 1))
        assert text and text.isprintable()


# ---- two rounds -------------------------------------------------------------------------------------------------


def test_launches_are_counted_exactly_and_passes_are_announced_before(tmp_path: Path) -> None:
    said: list[str] = []
    whole = table(
        CORE, (ADD, ("1,000.00", "0", "0", "4,503,599,627,370,497", "5")), ("gemm_5x", ("10", "1", "2", "3", "5"))
    )
    found = count(tmp_path, whole, said=said)
    assert [launch.name for launch in found.launches] == [ADDED, "gemm_5x"]
    assert found.launches[0].metrics["flops:counted"] == 2 * 4_503_599_627_370_497
    assert isinstance(found.launches[0].metrics["flops:counted"], int)
    assert found.launches[1].metrics["flops_single:counted"] == 1 + 2 + 2 * 3 and found.launches[1].ns == 10
    assert "7 passes each or one more, caches emptied before every pass, clocks left alone" in said[0]
    assert len(said) == 1 and "in 5 passes a launch" in found.notes[0] and found.facts.passes == {"core": 5}
    assert (tmp_path / "stdin").read_bytes() == b'{"job": 1}' and asked(tmp_path)[0].endswith(" python step.py")


def test_the_table_of_a_real_device_goes_through(tmp_path: Path) -> None:
    found = count(tmp_path, (GPU / "ncu" / "raw.csv").read_text())
    elements = 2048**2
    assert [launch.metrics["flops:counted"] for launch in found.launches[:2]] == [2 * elements, elements]
    assert [launch.ns for launch in found.launches] == [12736, 12928, 343680, 9472, 10112, 10304]
    assert "in 5 passes" in found.notes[0]
    assert any("no launch has a value for" in note and "_hadd_" in note for note in found.notes)


def test_only_kernels_out_of_line_are_counted_again_for_their_stalls(tmp_path: Path) -> None:
    one, other = ("10", "1", "2", "3", "5"), ("10", "4", "4", "4", "5")
    first = table(CORE, (ADD, one), ("gemm_5x", other), (ADD, one))
    second = table(STALL, (ADD, ("11", "80.5", "7")), (ADD, ("12", "70", "7")))
    said: list[str] = []
    found = count(tmp_path, first, second, stalls_for=lambda spans: [2], said=said)
    assert [launch.metrics.get("stall_long_scoreboard:counted") for launch in found.launches] == [80.5, None, 70]
    assert [launch.ns for launch in found.launches] == [10, 10, 10]
    assert "--kernel-name" not in asked(tmp_path)[0] and f"--kernel-name regex:^({ADD})$" in asked(tmp_path)[1]
    assert said[1].startswith("1 of 2 kernels are counted once more") and "7 passes each" in said[1]
    assert found.facts.passes == {"core": 5, "stalls": 7}


def test_what_is_out_of_line_is_found_by_the_devices_own_peaks(tmp_path: Path) -> None:
    """An invented device at 1 GHz and 100 B a cycle: 10,000 ns are 1 MB. One kernel moves 0.9 MB, the other 0.1 MB."""
    memory = {"dram__bytes.sum": "byte", "dram__bytes.sum.peak_sustained": "byte",
              "dram__cycles_elapsed.avg.per_second": "hz"}  # fmt: skip
    columns = {"gpu__time_duration.sum": "ns", **memory}
    first = table(columns, ("near", ("10,000", "900,000", "100", "1,000,000,000")),
                  ("far", ("10,000", "100,000", "100", "1,000,000,000")))  # fmt: skip
    second = table(STALL, ("far", ("10,000", "60", "7")))
    found = count(tmp_path, first, second, stalls_for=find_outlying_rows)
    assert [launch.metrics["dram_roof:derived"] for launch in found.launches] == [0.9, 0.1]
    assert "regex:^(far)$" in asked(tmp_path)[1]
    assert found.facts.peaks == {"dram_bytes": 1e11}
    assert "stall_long_scoreboard:counted" in found.launches[1].metrics


def test_a_second_run_that_launches_otherwise_says_how_many_were_not_met(tmp_path: Path) -> None:
    first = table(CORE, ("a", ("1", "1", "1", "1", "5")), ("a", ("1", "1", "1", "1", "5")))
    second = table(STALL, ("a", ("1", "50", "7")))
    found = count(tmp_path, first, second, stalls_for=lambda spans: [0, 1])
    assert any("1 of 2 launches were not met again" in note for note in found.notes)


def test_a_metric_that_the_device_does_not_know_is_left_out_and_said(tmp_path: Path) -> None:
    name = next(metric for metric in HOPPER.core.metrics if "fp8" in metric)
    refused = f"==ERROR== Failed to find metric {name}\n{NONE}"
    said: list[str] = []
    found = count(tmp_path, refused, table(CORE, ("a", ("1", "1", "1", "1", "5"))), said=said)
    assert said[1].startswith(f"GH100 does not know {name}") and said[1].endswith(" passes or one more")
    assert any(note.startswith(f"GH100 does not know {name}") for note in found.notes)
    assert name in asked(tmp_path)[0] and f",{name}," not in asked(tmp_path)[1]
    assert f"{name}.peak_sustained" not in asked(tmp_path)[1]


def test_a_program_is_told_to_run_again_before_every_run_of_it(tmp_path: Path) -> None:
    """Twice for the core set, because one metric is unknown, and once for stalls; a job of Sonda's own is one step."""
    name = next(metric for metric in HOPPER.core.metrics if "fp8" in metric)
    refused = f"==ERROR== Failed to find metric {name}\n{NONE}"
    first = table(CORE, ("a", ("1", "1", "1", "1", "5")))
    second = table(STALL, ("a", ("1", "50", "7")))
    program = stand_in(tmp_path, refused, first, second)
    runs_before: list[tuple[str, int]] = []

    def say(line: str) -> None:
        runs_before.append((line, len(asked(tmp_path)) if (tmp_path / "asked").exists() else 0))

    settings = NcuSettings(program=program, whole=True)
    count_kernels(["python", "train.py"], b"", HOPPER, say, lambda spans: [0], settings=settings)
    assert [number for line, number in runs_before if line == AGAIN] == [0, 1, 2]
    said: list[str] = []
    (tmp_path / "asked").unlink()
    count(tmp_path, refused, first, second, stalls_for=lambda spans: [0], said=said)
    assert len(asked(tmp_path)) == 3 and AGAIN not in said


def test_a_program_that_takes_too_long_is_told_to_take_fewer_steps(tmp_path: Path) -> None:
    settings = NcuSettings(program=stand_in(tmp_path, first="exec sleep 60"), limit_s=0.2, whole=True)
    with pytest.raises(SondaError, match=r"took more than 0\.2 s; let the program take fewer steps: it is run to its"):
        count_kernels(["python", "train.py"], b"", HOPPER, str, settings=settings)


def test_counting_a_program_announces_that_it_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = stand_in(tmp_path, table(CORE, ("a", ("1", "1", "1", "1", "5"))))
    said: list[str] = []
    spans = Spans({"start": np.zeros(1)}, {"kind": Words.of(["run"])})
    card = GpuDevice(name="NVIDIA H200", capability="9.0")
    assembly = Assembly(spans=spans, kernels=[("trace.json", 0)], devices={"0": {}})
    launcher = ProgramLauncher(["python", "train.py"], WatchSettings())
    plan = RunPlan("program", Store(tmp_path), tmp_path, said.append, on_gpu=True)
    observation = Observation(spans, {}, {}, Circumstances("", {}, {}), assembly=assembly, used=("cpu", "cuda:0"))
    monkeypatch.setattr(ncu, "load_or_measure_gpu", lambda root, index: SimpleNamespace(device=card))
    seen = EndedRun(plan, observation, spans, partial(launcher.again, plan))
    ncu.NcuInstrument(NcuSettings(program=program)).collect(seen)
    assert said[-1] == AGAIN and len(asked(tmp_path)) == 1


def test_values_that_are_not_there_and_kernels_that_failed_are_said(tmp_path: Path) -> None:
    text = table(CORE, ("<b>[red]k", ("1", "1", "1", "n/a", "5")), ("k", ("1", "1", "1", "1", "5")))
    found = count(tmp_path, text + '==ERROR== Failed to profile "q" in process 7\nepoch 1, loss "0.5"\n')
    assert "flops:counted" not in found.launches[0].metrics and found.launches[0].name == "<b>[red]k"
    assert found.launches[1].metrics["flops:counted"] == 4
    assert any("some launches have no value for" in note and "ffma" in note for note in found.notes)
    assert any('did not count everything: Failed to profile "q"' in note for note in found.notes)


def test_half_precision_is_said_to_be_counted_by_instruction_where_there_is_any(tmp_path: Path) -> None:
    half = {f"smsp__sass_thread_inst_executed_op_h{name}_pred_on.sum": "inst" for name in ("add", "mul", "fma")}
    found = count(tmp_path, table(half, ("k", ("1", "0", "2"))))
    assert found.launches[0].metrics["flops_half:counted"] == 5
    assert any("two packed numbers" in note for note in found.notes)
    (tmp_path / "asked").unlink()
    assert not any("two packed" in note for note in count(tmp_path, table(half, ("k", ("0", "0", "0")))).notes)


def test_failures_of_the_child_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(SondaError, match="counters are in use by another program"):
        count(tmp_path, "==ERROR== Profiling failed because a driver resource was unavailable.\n", code=9)
    with pytest.raises(SondaError, match="failed under Nsight Compute: no such module"):
        count(tmp_path, code=1, first="echo 'no such module' >&2")
    with pytest.raises(SondaError, match=r"took more than 0\.2 s; count a smaller step"):
        count(tmp_path, limit_s=0.2, first="exec sleep 60")
    with pytest.raises(SondaError, match="not installed"):
        count_kernels(["x"], b"", HOPPER, str, settings=NcuSettings(program=str(tmp_path / "nowhere")))


def test_a_program_does_not_outlive_ncu(tmp_path: Path) -> None:
    """ncu crashed around a JAX program, whose threads spun on for as long as the machine was up."""
    number = tmp_path / "number"
    with pytest.raises(SondaError):
        count(tmp_path, first=f"sleep 300 & echo $! > {number}; kill -SEGV $$")
    limit = monotonic() + 240
    while lives(int(number.read_text())):
        assert monotonic() < limit, "it lives on"
        sleep(0.01)


def test_recorded_stalls_merge_onto_recorded_launches(tmp_path: Path) -> None:
    """Both tables of the H200: the same six launches, counted twice."""
    raw, stalls = ((GPU / "ncu" / name).read_text() for name in ("raw.csv", "stalls.csv"))
    found = count(tmp_path, raw, stalls, stalls_for=lambda spans: range(len(spans)))
    recorded = [launch.values[LONG] for launch in read_csv(GPU / "ncu" / "stalls.csv")]
    assert [launch.metrics["stall_long_scoreboard:counted"] for launch in found.launches] == [
        float(value) for value in recorded]  # fmt: skip
    assert found.launches[0].metrics["stall_long_scoreboard:counted"] == 82.14
    # ncu's demangled names cannot be told to it, so it is asked for all of them.
    assert "--kernel-name" not in asked(tmp_path)[1]
