"""NormKernels are compiled in one way, from what their own file says, and kept in the user's cache and nowhere else."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import numba
import pytest

from places import TESTS
from sonda.accelerators.engines import flexible_folding as folding_kernel
from sonda.accelerators.engines import flexible_packages as packages_kernel
from sonda.accelerators.engines import flexible_streaming as streaming_kernel
from sonda.accelerators.engines.fabric import reduction
from sonda.accelerators.mapping import fullest_tiles as few_tiles_kernel
from sonda.frameworks.torch.parallel import norm_kernels
from sonda.imports.xplane import scanner as xplane_kernel
from sonda.record.errors import MissingExtraError
from sonda.record.jit import cache_directory, compiled

ALONE = [
    reduction._gather,
    packages_kernel.packages,
    streaming_kernel.stream,
    folding_kernel.fold,
    *norm_kernels.PYTHON_KERNELS,
]
CALLING = [
    (few_tiles_kernel.few_tiles, few_tiles_kernel.next_size),
    (xplane_kernel.scan_events, xplane_kernel.varint),
    (xplane_kernel.find_others, xplane_kernel.varint),
]


@pytest.mark.parametrize("kernel", ALONE, ids=lambda kernel: kernel.__name__)
def test_kernels_see_nothing_but_their_arguments(kernel: Callable[..., None]) -> None:
    """Compiled code keeps what it saw of its module, and is not compiled anew when that changes."""
    assert set(inspect.getclosurevars(kernel).globals) <= {"np"}
    assert not inspect.getclosurevars(kernel).nonlocals


@pytest.mark.parametrize(("kernel", "called"), CALLING, ids=lambda kernel: kernel.__name__)
def test_kernels_call_only_what_is_in_their_own_file(kernel: Callable[..., None], called: Callable[..., int]) -> None:
    assert set(inspect.getclosurevars(kernel).globals) <= {"np", called.__name__}
    assert inspect.getsourcefile(kernel) == inspect.getsourcefile(called)


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert str(cache_directory()) == "/somewhere/sonda/kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative paths are to be ignored")
    monkeypatch.setenv("HOME", "/elsewhere")
    assert str(cache_directory()) == "/elsewhere/.cache/sonda/kernels"


def doubled(value: int) -> int:
    return 2 * value


def tripled(value: int) -> int:
    return 3 * value


def quadrupled(value: int) -> int:
    return 4 * value


def quintupled(value: int) -> int:
    return 5 * value


def test_kernels_are_kept_there_and_the_programs_own_functions_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    assert compiled(doubled)(21) == 42
    assert [path.name.startswith("test_compiled.doubled") for path in tmp_path.rglob("*.nbi")] == [True]
    assert numba.config.CACHE_DIR == ""


def test_kernels_are_kept_where_numba_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not here"))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "here"))
    assert compiled(tripled)(14) == 42
    assert len(list((tmp_path / "here").rglob("*.nbi"))) == 1
    assert not (tmp_path / "not here").exists()


@pytest.mark.parametrize("told", [False, True], ids=["the user's", "numba's"])
def test_without_a_place_they_are_compiled_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """Not beside the package either, which is where numba goes on to look."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file" / "below") if told else "")
    kernel = compiled(quintupled if told else quadrupled)
    assert kernel(10.5) == (52.5 if told else 42)
    assert not list(TESTS.rglob("test_compiled.qu*.nbi"))


def untouched(value: int) -> int:
    return value


def test_without_numba_a_kernel_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"Numba is not installed; .*sonda-profiler\[numba\]"):
            compiled(untouched)
    assert compiled(untouched)(42) == 42, "what failed is not remembered"
