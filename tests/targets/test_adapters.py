"""The table of frameworks: what each has, and one line for what is missing, too old or does not fit together."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from places import REPOSITORY
from sonda.record.errors import SondaError
from sonda.targets.adapters import registry as adapters
from sonda.targets.adapters.registry import (
    ADAPTERS,
    check_framework,
    import_framework,
    require_framework,
    run_in_framework,
)
from sonda.targets.applicability import drop_inapplicable
from sonda.targets.job import Job, check_job
from sonda.workloads.catalogue import BUILT_IN


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a package that runs `code` when it is imported, with the version that its distribution says.

    After the test none of it is left among the modules: another test's framework would be this one.
    """

    def install(package: str, code: str = "", version: str = "99.0") -> None:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(code)
        about = tmp_path / f"{package}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        # First set and then deleted, so that what was there before comes back, also where that was nothing.
        for name in {package} | {name for name in sys.modules if name.partition(".")[0] == package}:
            monkeypatch.setitem(sys.modules, name, None)
            monkeypatch.delitem(sys.modules, name)
        importlib.invalidate_caches()

    return install


# ---- the table ----------------------------------------------------------------------------------------------------


def test_every_workload_of_the_table_is_built_in() -> None:
    assert list(ADAPTERS) == ["torch", "tensorflow", "jax", "pytensor"]
    for adapter in ADAPTERS.values():
        assert set(adapter.workloads) <= set(BUILT_IN)


def test_the_oldest_versions_are_those_that_are_installed_with_sonda() -> None:
    """What pip is told and what is asked for at run time is one thing."""
    import tomllib

    table = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    extras = table["project"]["optional-dependencies"]
    for adapter in ADAPTERS.values():
        wanted = [word for word in extras[adapter.extra] if word.partition(">=")[0] in adapter.distributions]
        assert [word.partition(">=")[2] for word in wanted] == [".".join(map(str, adapter.least))], adapter.words


@pytest.mark.parametrize("framework", ["tensorflow", "jax", "pytensor"])
def test_operations_are_trained_in_pytorch_only(framework: str) -> None:
    check_framework(Job(workload="ops", train=True))
    with pytest.raises(SondaError, match="ops cannot be trained in"):
        check_framework(Job(workload="ops", train=True, framework=framework))


@pytest.mark.parametrize("framework", ["tensorflow", "jax", "pytensor"])
def test_operations_are_those_that_a_framework_has_unless_they_are_named(framework: str) -> None:
    job, notes = drop_inapplicable(Job(workload="ops", framework=framework))
    assert job.options == {"op": "add,dot,mul,scalar,sigmoid,tanh"} and notes[0].startswith("--op: add, dot")
    named = Job(workload="ops", framework=framework, options={"op": "softmax"})
    assert drop_inapplicable(named) == (named, []) and drop_inapplicable(Job(workload="ops")) == (
        Job(workload="ops"),
        [],
    )


def test_every_worker_that_is_named_is_there() -> None:
    for adapter in ADAPTERS.values():
        module, _, function = adapter.worker.partition(":")
        source = Path(find_spec(module).origin).read_text()
        assert f"def {function}(job: Job, directory: Path, replay: bool) -> dict[str, Any]:" in source


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"framework": "theano"}, "framework 'theano' is not there; known: jax, pytensor, tensorflow, torch"),
        ({"framework": "jax", "workload": "lstm"}, "lstm is not there in JAX; in JAX there is ops, mlp, cnn"),
        ({"framework": "pytensor", "on": "cuda:0"}, "PyTensor runs on cpu, not on cuda:0; use --framework torch"),
        ({"framework": "jax", "on": "ddp=cpu/1+cpu/1"}, "JAX does not run on ddp=cpu/1+cpu/1"),
        ({"framework": "jax", "on": "sim:maeri"}, "JAX runs on cpu and cuda:N, not on sim:maeri"),
        ({"framework": "jax", "probe": "pmu,callgrind"}, "--probe callgrind is not there in JAX; leave it out"),
    ],
)
def test_what_a_framework_lacks_is_one_line(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SondaError) as caught:
        check_job(Job(**{"workload": "mlp", **settings}))
    assert str(caught.value).startswith(said)


def test_pytorch_has_every_target() -> None:
    for on in ("cpu/2", "cuda:1", "sim:anything", "hybrid=cpu/1+cuda:0", "pipeline=cpu+cpu"):
        check_framework(Job(workload="mlp", on=on))


# ---- what is installed --------------------------------------------------------------------------------------------


def test_a_missing_framework_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(adapters, "find_spec", lambda name: None)
    for framework, adapter in ADAPTERS.items():
        with pytest.raises(SondaError) as caught:
            run_in_framework(framework, Job(workload="mlp", framework=framework), tmp_path, False)
        assert str(caught.value) == (
            f"{adapter.words} is not installed; install it with: pip install 'sonda-profiler[{framework}]'"
        )


@pytest.mark.parametrize(
    ("version", "enough"), [("0.4.38", False), ("0.5", True), ("0.5.0rc1", True), ("0.10.2", True)]
)
def test_an_old_framework_is_refused_before_it_is_imported(installed: Any, version: str, enough: bool) -> None:
    installed("jax", "raise AssertionError('imported')", version)
    if enough:
        require_framework("jax")
        return
    with pytest.raises(SondaError, match=r"JAX 0\.4\.38 is too old, 0\.5 or newer is needed; install it with: pip"):
        require_framework("jax")


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        # What TensorFlow says under a protobuf of another generation.
        ("raise TypeError('Descriptors cannot be created directly.\\nIf this call came from a _pb2.py file')",
         r"TensorFlow 99\.0 cannot be imported with protobuf 3\.20: TypeError: Descriptors cannot be created"),
        # What a package that was compiled for NumPy 1 says under NumPy 2.
        ("raise AttributeError('_ARRAY_API not found')", r"with numpy [\d.]+: AttributeError: _ARRAY_API not found;"),
        ("raise ImportError('numpy.core.multiarray failed to import')",
         r"with numpy [\d.]+: ImportError: numpy\.core\.multiarray failed to import;.* numpy, or use an environment"),
        ("import a_module_that_nobody_has", r"ModuleNotFoundError: No module named 'a_module_that_nobody_has'"),
        ("raise RuntimeError", r"cannot be imported: RuntimeError;"),
    ],
)  # fmt: skip
def test_a_framework_whose_import_fails_is_one_line(installed: Any, code: str, cause: str) -> None:
    installed("protobuf", version="3.20")
    installed("tensorflow", code)
    with pytest.raises(SondaError) as caught:
        import_framework("tensorflow")
    assert "\n" not in str(caught.value)
    with pytest.raises(SondaError, match=cause):
        import_framework("tensorflow")
    assert "install versions that fit together: pip install --upgrade 'sonda-profiler[tensorflow]'" in str(caught.value)


def test_a_framework_that_can_be_imported_is_given(installed: Any) -> None:
    installed("pytensor", "answer = 42")
    assert import_framework("pytensor").answer == 42
