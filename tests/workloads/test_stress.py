"""Stress kernels: sized by the machine's caches, computing what they say, and touching what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sonda.record.errors import SondaError
from sonda.workloads.catalogue import describe, workload_names
from sonda.workloads.operations.stress import cache_bytes


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def machine(root: Path, *caches: tuple[int, str, str]) -> Path:
    for number, (level, kind, size) in enumerate(caches):
        index = root / f"sys/devices/system/cpu/cpu0/cache/index{number}"
        index.mkdir(parents=True)
        for name, text in (("level", str(level)), ("type", kind), ("size", size)):
            (index / name).write_text(f"{text}\n")
    return root


def test_caches_are_read_as_the_kernel_shows_them(tmp_path):
    root = machine(
        tmp_path, (1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "1280K"), (3, "Unified", "48M")
    )
    assert cache_bytes(2, root) == 1280 * 1024 and cache_bytes(3, root) == 48 * 1024 * 1024


@pytest.mark.parametrize("size", ["", "K", "many", "48X"])
def test_a_machine_that_shows_no_sizes_gets_an_assumption(tmp_path, size):
    assert cache_bytes(3, machine(tmp_path, (3, "Unified", size))) == 32 << 20


def test_sizes_follow_the_caches_and_are_kept_with_the_run(monkeypatch):
    from sonda.workloads.operations import stress

    monkeypatch.setattr(stress, "cache_bytes", lambda level: {2: 1 << 20, 3: 8 << 20}[level])
    assert describe("stress-cache", {}).parameters()["size"] == 4 << 20
    assert describe("stress-bandwidth", {}).parameters()["size"] == 32 << 20
    assert describe("stress-compute", {}).parameters()["size"] == 1 << 19
    # 3 n² floats of 4 bytes within 2^19 bytes: n = 209.02…, of which 208 is a multiple of 16
    assert describe("stress-compute", {}).side == 208


def test_the_cache_kernel_adds_every_line_once():
    task = describe("stress-cache", {"size": "64KiB"}).build("torch", False, 0)
    table = task.model.table
    assert table.shape == (1024, 16), "64 KiB are 1,024 lines of 64 bytes"
    assert sorted(task.model.order[0].tolist()) == list(range(1024))
    assert task.model.order[0].tolist() != list(range(1024)), "a row in order would be prefetched"
    torch.testing.assert_close(task.infer(None)[0], table.sum(dim=0))


def test_the_bandwidth_kernel_is_streams_triad():
    task = describe("stress-bandwidth", {"size": "12KiB", "rounds": "2"}).build("torch", False, 0)
    assert task.model.a.numel() == 1024, "three arrays of 4 KiB"
    where = task.model.a.data_ptr()
    torch.testing.assert_close(task.infer(None), task.model.b + 3 * task.model.c)
    assert task.model.a.data_ptr() == where, "nothing is allocated"


def test_the_compute_kernel_multiplies_as_often_as_it_says():
    from torch.utils.flop_counter import FlopCounterMode

    task = describe("stress-compute", {"size": "48KiB", "rounds": "5"}).build("torch", False, 0)
    assert task.model.a.shape == (64, 64), "3 * 64² * 4 bytes are 48 KiB"
    with FlopCounterMode(display=False) as counter:
        result = task.infer(None)
    assert counter.get_total_flops() == 5 * 2 * 64**3
    torch.testing.assert_close(result, task.model.a @ task.model.b)


@pytest.mark.parametrize("name", [name for name in workload_names() if name.startswith("stress-")])
def test_they_do_not_learn_and_have_a_least_size(name):
    with pytest.raises(SondaError, match="does not learn"):
        describe(name, {"size": "64KiB"}).build("torch", True, 0)
    with pytest.raises(SondaError, match="less than a page"):
        describe(name, {"size": "100"})
    assert len([name for name in workload_names() if name.startswith("stress-")]) == 3
