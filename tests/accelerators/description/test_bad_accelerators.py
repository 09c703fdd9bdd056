"""What cannot be simulated, as a user meets it: one line naming field and reason, exit code 2, no run kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from command_line import run_command

GOOD = """name = "mine"
[engines.dense]
kind = "flexible_dense"
multipliers = 64
read_ports = 16
write_ports = 16
accumulators = true
[route]
linear = "dense"
"""
MODELS = """
import torch
from torch import nn


class Same(nn.Module):
    def forward(self, x):
        return x


def same():
    return Same()


def nothing():
    return nn.Sequential()


def linear():
    return nn.Linear(16, 8)


def meta():
    return nn.Linear(16, 8, device="meta")


def no_samples():
    return nn.Linear(16, 8), (torch.zeros(0, 16),)


def no_outputs():
    return nn.Linear(16, 0)


def spoilt():
    model = nn.Sequential(nn.Linear(16, 8))
    with torch.no_grad():
        model[0].weight[3, 5] = float("nan")
    return model
"""


def refused(directory: Path, *words: str) -> str:
    """The one line of a command that fails, and that leaves no run behind, not even a part of one."""
    done = run_command(directory, *words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("sonda: ")
    kept = [path.name for path in (directory / "store").glob("*") if path.name != "machines"]
    assert kept == [], "something is left in the store"
    return line.removeprefix("sonda: ")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("multipliers =", "multiplyers =", "engines.dense.multiplyers: unknown; did you mean 'multipliers'?"),
        ("read_ports = 16", "read_ports = 12", "engines.dense.read_ports = 12 is not a power of two"),
        ("write_ports = 16", "write_ports = 0", "engines.dense.write_ports = 0 is not a power of two"),
        ("multipliers = 64", "multipliers = -64", "engines.dense.multipliers = -64 is not a power of two"),
        ("multipliers = 64", f"multipliers = {10**20}", f"engines.dense.multipliers = {10**20} is not a power of two"),
        ("flexible_dense", "flexible_dens", "engines.dense.kind: 'flexible_dens' is unknown; did you mean"),
        ('linear = "dense"', 'linear = "dens"', "route.linear: 'dens' is unknown; did you mean 'dense'?"),
        ("accumulators = true", "accumulators = 1", "engines.dense.accumulators: 1 is not true or false"),
        (
            "accumulators = true",
            "accumulators = true\ntile = { T_M = 8, T_N = 8, T_K = 2 }",
            "engines.dense.tile takes 128 multipliers (T_M x T_N x T_K), there are 64",
        ),
        (
            "accumulators = true",
            "accumulators = true\ntile = { T_M = -1, T_N = 8, T_K = 2 }",
            "engines.dense.tile.T_M: -1 is not a size",
        ),
        (
            "accumulators = true",
            "accumulators = true\ntile = { T_M = 1, T_N = 8 }",
            "engines.dense.tile.T_K: missing",
        ),
        ('name = "mine"', 'name = "mine"\nclock_GHz = nan', "clock_GHz: nan is not a number"),
        ('name = "mine"', 'name = "mine', "is not TOML"),
    ],
)
def test_descriptions(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in GOOD
    (tmp_path / "mine.toml").write_text(GOOD.replace(old, new), encoding="utf-8")
    line = refused(tmp_path, "run", "mlp", "--on", "sim:mine.toml")
    assert line.startswith("mine.toml") and said in line


def test_all_mistakes_of_a_description_are_told_at_once(tmp_path: Path) -> None:
    """Also those of an engine whose kind is misspelt, and of routes to engines that have mistakes of their own."""
    changes = {
        "multipliers = 64": "multipliers = 100", "read_ports = 16": "read_ports = 12",
        "accumulators = true": "accumulators = 1\ntile = { T_M = 0, T_N = 1, T_K = 1 }\nreduction = 'FENETWORK'",
        "[route]": "[engines.square]\nkind = 'meshh'\nrows = 0\ncolumns = 4\nread_ports = 3\nwrite_ports = 4\n[route]",
        'linear = "dense"': 'linear = "dense"\nembedding_bag = "square"\ngem = "dense"',
    }  # fmt: skip
    text = GOOD
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    done = run_command(tmp_path, "run", "mlp", "--on", "sim:mine.toml")
    assert (done.returncode, done.stdout) == (2, "")
    named = [line.removeprefix("sonda: ").removeprefix("mine.toml: ").split()[0].rstrip(":") for line in
             done.stderr.splitlines()]  # fmt: skip
    assert sorted(named) == [
        "engines.dense.accumulators", "engines.dense.multipliers", "engines.dense.read_ports",
        "engines.dense.tile.T_M", "engines.square.kind", "engines.square.read_ports", "engines.square.rows",
        "route.embedding_bag", "route.gem",
    ]  # fmt: skip


def test_a_good_description_is_not_refused_by_these_checks(tmp_path: Path) -> None:
    from sonda.accelerators.description.accelerator import parse_accelerator

    assert parse_accelerator(GOOD, "mine.toml").engines["dense"].hardware.multipliers == 64


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "mlp", "--on", "sim:nosuch"), "accelerator 'nosuch' is unknown"),
        (("run", "mlp", "--on", "sim:tpu-16x61"), "did you mean 'tpu-16x16'?"),
        (("run", "mlp", "--on", "sim:nosuch.toml"), "nosuch.toml cannot be read"),
        (("run", "mlp", "--on", "sim:nosuch.cfg"), "nosuch.cfg cannot be read"),
        (("run", "net.onnx", "--on", "sim:tpu-16x16"), "'net.onnx' is an ONNX file"),
        (("run", "mlp", "--train", "--on", "sim:tpu-16x16"), "runs inference, not training"),
        (("run", "dlrm", "--batch", "0", "--on", "sim:dlrm-hybrid"), "mini_batch_size=0"),
        (("run", "none.py:net", "--input", "2x2", "--on", "sim:tpu-16x16"), "cannot read none.py"),
        (("run", "models.py:linear", "--input", "0x16", "--on", "sim:tpu-16x16"), "'0x16' is empty"),
        (("run", "models.py:linear", "--input=-2x16", "--on", "sim:tpu-16x16"), "'-2x16' is not an input shape"),
        (("verify", "stonne", "none.json"), "none.json cannot be read"),
        (("verify", "stonne", "models.py"), "models.py is not JSON"),
        (("verify", "stonne"), "no file of reference runs was given; write: sonda verify stonne FILE.json"),
        (("verify", "stonne", "none.json", "--on", "sim:tpu-16x16"), "--on means nothing to verify stonne"),
        (("verify", "gem5"), "nothing is known of 'gem5'; known: scalesim, stonne"),
        (("verify", "scalesim", "models.py"), "there is no workload 'models.py'"),
        (("verify", "scalesim", "--batch", "3"), "--batch is an option of a model, which is not named"),
        (("verify", "scalesim", "--input", "3x3"), "--input is an option of a model, which is not named"),
        (("verify", "scalesim", "--on", "cpu"), "cpu is not a simulated accelerator; give a mesh"),
        (("verify", "scalesim", "--on", "sim:maeri-256"), "maeri-256 has no mesh"),
        (("run", "models.py:linear", "--input", f"{10**30}x16", "--on", "sim:tpu-16x16"), "x16' has more than"),
        (("explore", "dlrm", "--vary", "rows,colums=8", "--on", "sim:tpu-16x16"), "setting 'colums' is unknown"),
        (("run", "mlp", "--on", "sim:tpu-16x16", "--set", "rows,columns=8:16:32"), "not a value for each of 2 fields"),
        (("run", "mlp", "--on", "sim:tpu-16x16", "--set", "rows,ms_rows=8"), "names engines.mesh.rows twice"),
    ],
)
def test_commands(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    (tmp_path / "net.onnx").write_bytes(b"\x08\x07")
    assert said in refused(tmp_path, *words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factory", "accelerator", "said"),
    [
        ("spoilt", "tpu-16x16", "0.weight has NaN in it; mend the weights"),
    ],
)
def test_models_on_the_command_line(factory: str, accelerator: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    assert said in refused(tmp_path, "run", f"models.py:{factory}", "--input", "2x16", "--on", f"sim:{accelerator}")


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a model comes from stays on the path: not longer than its test."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def simulated(factory: str, accelerator: str, directory: Path, **options: str) -> Any:
    """The same without a process for each case."""
    from sonda.targets.job import Job
    from sonda.targets.simulated.launcher import simulate_job

    path = directory / "models.py"
    path.write_text(MODELS, encoding="utf-8")
    return simulate_job(
        Job(workload=f"{path}:{factory}", options=options, on=f"sim:{accelerator}", threads=1), directory
    )


@pytest.mark.parametrize(
    ("factory", "accelerator", "said"),
    [
        ("same", "tpu-16x16", "the model cannot be captured: it runs no operation"),
        ("nothing", "sigma-128", "the model cannot be captured: it runs no operation"),
        ("meta", "tpu-16x16", "weight is on the meta device and has no values"),
        ("spoilt", "magma-128", "0.weight has NaN in it"),
        ("no_samples", "tpu-16x16", "the model: addmm of 0x16 by 16x8 has no elements; give inputs with at least one"),
        ("no_outputs", "tpu-16x16", "addmm of 2x16 by 16x0 has no elements; give inputs with at least one sample, and"),
    ],
)
def test_models(factory: str, accelerator: str, said: str, tmp_path: Path) -> None:
    from sonda.record.errors import SondaError

    options = {} if factory == "no_samples" else {"input": "2x16"}
    with pytest.raises(SondaError) as caught:
        simulated(factory, accelerator, tmp_path, **options)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_control_flow_that_depends_on_data_is_captured_as_it_ran() -> None:
    import torch

    from sonda.accelerators.operations.capture import capture

    class Either(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = torch.nn.Linear(16, 32), torch.nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.wide(x) if x.sum() > 0 else self.narrow(x)

    model = Either()
    for sign, path in ((1.0, "wide"), (-1.0, "narrow")):
        program = capture(model, lambda mark, sign=sign: model(sign * torch.ones(2, 16))).program
        assert [program.path(one) for one in program.operations] == [path]


def test_operands_without_values() -> None:
    import torch

    from sonda.accelerators.operations.capture import capture
    from sonda.record.errors import SondaError

    model = torch.nn.Linear(16, 8, device="meta")
    inputs = torch.zeros(2, 16, device="meta")
    # Shapes are enough for a dense engine; a sparse one asks for zeros.
    (operation,) = capture(model, lambda mark: model(inputs)).program.operations
    assert operation.shape.multiplications == 2 * 16 * 8
    with pytest.raises(SondaError, match="the model: addmm has an operand on the meta device, without values"):
        capture(model, lambda mark: model(inputs), frozenset({"linear"}))
    bags = torch.nn.EmbeddingBag(10, 4, device="meta")
    indices = torch.zeros(3, dtype=torch.long, device="meta")
    with pytest.raises(SondaError, match="meta device"):
        capture(bags, lambda mark: bags(indices, torch.zeros(1, dtype=torch.long, device="meta")))


def test_an_empty_product_among_others_is_no_mistake() -> None:
    import torch

    from sonda.accelerators.operations.capture import capture

    # An expert to whom no token is sent.
    model = torch.nn.Linear(16, 8)
    program = capture(model, lambda mark: (model(torch.zeros(0, 16)), model(torch.zeros(3, 16)))).program
    assert [one.shape.multiplications for one in program.operations] == [3 * 16 * 8]


@pytest.mark.parametrize(
    ("field", "value"),
    [("multipliers", 64.0), ("multipliers", True), ("read_ports", "16"), ("write_ports", None), ("rows", -4)],
)
def test_hardware_that_is_no_number_of_things(field: str, value: Any) -> None:
    from sonda.accelerators.description.hardware import Hardware
    from sonda.record.errors import SondaError

    with pytest.raises(SondaError, match=f"{field} = "):
        Hardware(**{field: value}).check()


def test_ports_are_not_held_against_multipliers_that_cannot_be_read() -> None:
    from sonda.accelerators.description.accelerator import load_accelerator
    from sonda.accelerators.description.settings import with_settings
    from sonda.record.errors import SondaError

    with pytest.raises(SondaError) as caught:
        with_settings(load_accelerator("maeri-256"), "multipliers=1e30")
    assert str(caught.value) == "set: maeri.multipliers: 1e+30 is not a whole number"


def test_a_product_of_complex_numbers_stays_on_the_host() -> None:
    """It is four real products, and engines have no other."""
    import torch

    from sonda.accelerators.operations.capture import capture

    class Both(torch.nn.Module):
        def forward(self, reals: torch.Tensor) -> torch.Tensor:
            numbers = torch.complex(reals, reals)
            return torch.view_as_real(numbers @ numbers.T).sum() + (reals @ reals.T).sum()

    model = Both()
    program = capture(model, lambda mark: model(torch.ones(4, 8))).program
    assert [one.shape.multiplications for one in program.operations] == [4 * 8 * 4]
    assert program.others[(0, "complex mm")] == 1


def test_a_sparse_engine_refuses_activations_that_are_no_numbers() -> None:
    import torch

    from sonda.accelerators.operations.capture import capture
    from sonda.record.errors import SondaError

    model = torch.nn.Linear(8, 4)
    with pytest.raises(SondaError, match=r"has NaN in an operand; .* mend the inputs"):
        capture(model, lambda mark: model(torch.full((2, 8), torch.nan)), frozenset({"linear"}))
