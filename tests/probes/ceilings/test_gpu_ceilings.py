"""Measured ceilings of a GPU: what is kept, when it is measured anew, and what is said where it cannot be."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import count

import msgspec
import pytest
import torch

from fake_cuda import FakeCuda, FakeNvml, FakeTorch, fail, shrink
from plain_runs import machine_of
from sonda.analysis.roofline import ceilings
from sonda.probes.ceilings import gpu as gpu_ceilings
from sonda.probes.ceilings.gpu import GpuCeilings, load_or_measure_gpu, measure_in_process
from sonda.probes.ceilings.gpu_tables import find_theory
from sonda.probes.ceilings.processor_kernels import MIB
from sonda.probes.machine.gpu import GpuDevice, describe_other_load, read_device, read_nvml_device
from sonda.record.errors import SondaError

torch.set_num_threads(1)


@pytest.fixture
def small(monkeypatch):
    shrink(monkeypatch)


def test_a_device_is_measured_whole(small):
    # The clock stands still: how long this machine's CPU takes for a GPU's work says nothing.
    found = measure_in_process(FakeTorch(FakeCuda(tick=1e-3, l2_bytes=2 * MIB)), 0, FakeNvml(), lambda: 0.0)
    assert {"float32", "tf32", "bfloat16", "float16", "float64", "float64_cores"} <= set(found.flops)
    assert min(found.flops.values()) > 0 and found.dram_bandwidth > 0 and found.cache_bandwidth > 0
    assert found.operation_ns > 0 and found.training_operation_ns > 0
    assert found.clocks["float32"] == 1830e6
    assert found.theory.card == "H200 SXM"
    assert (found.library, found.device.driver, found.device.power_limit_w) == ("torch 2.11.0", "580.159.04", 700)
    json.dumps(found.record())


def test_what_does_not_begin_in_time_is_missing_with_its_reason(small):
    cuda = FakeCuda(tick=1e-3, l2_bytes=2 * MIB)
    # Ten seconds a reading: the first group is under way when the time for all is spent.
    seconds = count(0.0, 10.0)
    with pytest.raises(SondaError, match="cuda:0 could not be measured: not measured within 8 s"):
        measure_in_process(FakeTorch(cuda), 0, FakeNvml(), lambda: next(seconds))


def test_a_full_card_is_one_line(small):
    with pytest.raises(SondaError, match="cuda:0 could not be measured: the GPU has too little free memory"):
        measure_in_process(FakeTorch(FakeCuda(free_bytes=1000, tick=1e-3)), 0, FakeNvml())


def test_a_busy_card_is_measured_and_said_to_be_disturbed():
    nvml = FakeNvml(busy=35, pids=(17, 42))
    uuid = "GPU-5ca1ab1e-0000-0000-0000-000000000001"
    assert describe_other_load(uuid, nvml, 42, lambda seconds: None) == (
        "the GPU was 35 % busy before its ceilings were measured, 1 other program"
    )
    assert describe_other_load(uuid, FakeNvml(pids=(17,)), own=42) == ""
    assert describe_other_load("GPU-unknown", nvml) == ""


def test_a_program_that_just_ended_disturbs_nothing():
    nvml = FakeNvml(busy=80)
    uuid = "GPU-5ca1ab1e-0000-0000-0000-000000000001"

    def sleep(seconds):
        nvml.busy = 0

    assert describe_other_load(uuid, nvml, 42, sleep) == ""


@pytest.mark.parametrize(
    ("fake", "index", "line"),
    [
        (FakeTorch(FakeCuda(), built=None), 0, "this PyTorch was built without CUDA; install a CUDA build of PyTorch"),
        (FakeTorch(FakeCuda()), 2, "there is no cuda:2; use cuda:0 to cuda:1"),
    ],
)
def test_a_device_that_is_not_there_is_one_line(fake, index, line):
    with pytest.raises(SondaError) as raised:
        read_device(fake, index, FakeNvml())
    assert str(raised.value) == line


def test_what_nvml_does_not_answer_is_missing_with_its_reason():
    nvml = FakeNvml()
    nvml.nvmlDeviceGetPowerManagementLimit = lambda handle: fail(RuntimeError("Not Supported"))()
    found = read_device(FakeTorch(FakeCuda()), 0, nvml)
    assert found.missing == {"power_limit_w": "Not Supported"}
    assert found.memory_bits == 6144


def test_nvml_alone_names_a_device_only_where_all_are_alike():
    assert read_nvml_device(1, FakeNvml(("NVIDIA H200",) * 2)).name == "NVIDIA H200"
    assert read_nvml_device(0, FakeNvml(("NVIDIA H200", "NVIDIA L4"))) is None
    divided = FakeNvml()
    divided.divided = True
    assert read_nvml_device(0, divided) is None
    assert read_nvml_device(0, FakeNvml(())) is None


def test_both_ways_of_asking_name_the_same_device():
    asked = read_device(FakeTorch(FakeCuda()), 0, FakeNvml())
    assert read_nvml_device(0, FakeNvml()).fingerprint == asked.fingerprint
    throttled = FakeNvml()
    throttled.watts = 450_000
    assert read_nvml_device(0, throttled).fingerprint != asked.fingerprint


HERE = GpuDevice(name="NVIDIA H200", capability="9.0", sms=132, driver="580.159.04", l2_bytes=50 * MIB)


def answer(**more):
    return {
        "measured": datetime.now(UTC).isoformat(), "library": "torch 2.11.0", "flops": {"float32": 5e13},
        "dram_bandwidth": 4e12, "cache_bandwidth": 7e12, "device": msgspec.to_builtins(HERE),
        "theory": msgspec.to_builtins(find_theory(HERE)), **more,
    }  # fmt: skip


class Child:
    """Answers as the child process would, and counts how often it was asked to measure."""

    def __init__(self, **more):
        self.more, self.asked = more, 0

    def __call__(self, index, facts):
        if facts:
            return msgspec.to_builtins(HERE)
        self.asked += 1
        return answer(**self.more)


@pytest.fixture
def torch_211(monkeypatch):
    monkeypatch.setattr(gpu_ceilings, "package_version", lambda name: "2.11.0+cu130")


def test_ceilings_are_measured_once_and_said_so(tmp_path, torch_211):
    child, said = Child(), []
    first = load_or_measure_gpu(tmp_path, 0, said.append, child, HERE)
    again = load_or_measure_gpu(tmp_path, 3, said.append, child, HERE)
    assert child.asked == 1
    assert said == ["measuring what cuda:0, NVIDIA H200, can do: about 8 s, once"]
    assert again.flops == first.flops
    # The same kind of card under another number.
    assert list(again.record()["devices"]) == ["cuda:3"]


@pytest.mark.parametrize(
    "change",
    [
        {"driver": "590.1"},
        {"power_limit_w": 400.0},
        {"name": "NVIDIA H100 PCIe"},
    ],
)
def test_another_driver_or_card_is_measured_anew(tmp_path, torch_211, change):
    child = Child()
    load_or_measure_gpu(tmp_path, 0, ask=child, known=HERE)
    load_or_measure_gpu(tmp_path, 0, ask=child, known=msgspec.structs.replace(HERE, **change))
    assert child.asked == 2


def test_another_pytorch_and_old_figures_are_measured_anew(tmp_path, torch_211, monkeypatch):
    old = Child(measured=(datetime.now(UTC) - timedelta(days=31)).isoformat())
    load_or_measure_gpu(tmp_path, 0, ask=old, known=HERE)
    load_or_measure_gpu(tmp_path, 0, ask=old, known=HERE)
    assert old.asked == 2
    child = Child()
    load_or_measure_gpu(tmp_path, 0, ask=child, known=HERE)
    monkeypatch.setattr(gpu_ceilings, "package_version", lambda name: "2.12.0")
    load_or_measure_gpu(tmp_path, 0, ask=child, known=HERE)
    assert child.asked == 2


def test_disturbed_figures_are_measured_again_later_and_the_better_kept(tmp_path, torch_211):
    before = (datetime.now(UTC) - timedelta(minutes=11)).isoformat()
    said = []
    disturbed = Child(
        measured=before, disturbed=["the GPU was 35 % busy"], flops={"float32": 6e13}, dram_bandwidth=3e12
    )
    load_or_measure_gpu(tmp_path, 0, said.append, disturbed, HERE)
    assert said[1] == "the GPU was 35 % busy: percent of roof will be missing"
    found = load_or_measure_gpu(tmp_path, 0, ask=Child(), known=HERE)
    assert (found.flops["float32"], found.dram_bandwidth, found.disturbed) == (6e13, 4e12, [])


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"schema": 1}', b"\xff\xfe"])
def test_a_damaged_file_is_measured_over(tmp_path, torch_211, damage):
    path = tmp_path / "machines" / f"gpu-{HERE.fingerprint}.json"
    path.parent.mkdir()
    path.write_bytes(damage)
    child = Child()
    load_or_measure_gpu(tmp_path, 0, ask=child, known=HERE)
    assert child.asked == 1
    assert json.loads(path.read_bytes())["flops"] == {"float32": 5e13}


def test_the_record_is_what_the_roofline_reads(tmp_path, torch_211):
    record = load_or_measure_gpu(tmp_path, 0, ask=Child(), known=HERE).record()
    found, reason = ceilings(machine_of({"ceilings": json.loads(json.dumps(record))}), None, "float32", "cuda:0")
    assert reason == ""
    assert (found.flops, found.dram_bandwidth, found.cache_bandwidth) == (5e13, 4e12, 7e12)
    assert found.cache_bytes == 50 * MIB
    assert found.theory["flops"].value == 132 * 256 * 1980e6


def test_a_child_without_a_gpu_answers_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_ceilings.main(["0"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said == {
        "cause": "PyTorch finds no GPU",
        "remedy": "check the driver with nvidia-smi, and CUDA_VISIBLE_DEVICES",
    }


def test_ceilings_survive_json():
    found = msgspec.convert(answer(), GpuCeilings)
    assert msgspec.json.decode(msgspec.json.encode(found), type=GpuCeilings) == found
