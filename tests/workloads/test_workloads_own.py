"""Your own model: what a file and its factory may be, and what is message when they are not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sonda.record.errors import SondaError
from sonda.workloads.catalogue import describe
from sonda.workloads.input_shapes import INTEGERS, KINDS, InputShape, parse_shapes

HEAD = "import torch\nfrom torch import nn\n"
LINEAR = HEAD + "def build():\n    return nn.Linear(4, 3)\n"


@pytest.fixture(autouse=True)
def clean_process() -> Iterator[None]:
    threads, path, modules = torch.get_num_threads(), list(sys.path), set(sys.modules)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("sonda_own_") or name == "beside":
            del sys.modules[name]


def make(directory: Path, text: str, factory: str = "build", train: bool = False, seed: int = 0, **options: str) -> Any:
    (directory / "model.py").write_text(text)
    return describe(f"{directory / 'model.py'}:{factory}", options).build("torch", train, seed)


def infer(task: Any) -> Any:
    return task.infer(lambda name: nullcontext())


def error(*arguments: Any, **options: Any) -> str:
    with pytest.raises(SondaError) as caught:
        make(*arguments, **options)
    line = str(caught.value)
    assert "\n" not in line
    assert caught.value.remedy
    return line


def first_loss(task: Any) -> torch.Tensor:
    inputs, target = next(task.batches(0))
    return task.loss(task.model(*inputs), target)


class TestWhatAFactoryMayBe:
    def test_a_function_that_returns_a_module(self, tmp_path: Path) -> None:
        task = make(tmp_path, LINEAR, input="8x4")
        assert infer(task).shape == (8, 3)
        assert task.samples == 8
        assert not task.model.training

    def test_a_class(self, tmp_path: Path) -> None:
        text = HEAD + "class Net(nn.Linear):\n    def __init__(self, out=5):\n        super().__init__(4, out)\n"
        assert infer(make(tmp_path, text, "Net", input="2x4", out="7")).shape == (2, 7)

    def test_a_module(self, tmp_path: Path) -> None:
        assert infer(make(tmp_path, HEAD + "net = nn.Linear(4, 3)\n", "net", input="2x4")).shape == (2, 3)
        assert "is a module, not a factory" in error(
            tmp_path, HEAD + "net = nn.Linear(4, 3)\n", "net", input="2x4", out="3"
        )

    def test_a_module_with_its_inputs(self, tmp_path: Path) -> None:
        text = HEAD + "def build():\n    return nn.Bilinear(2, 3, 4), (torch.ones(5, 2), torch.ones(5, 3))\n"
        task = make(tmp_path, text, train=True)
        assert infer(task).shape == (5, 4)
        inputs, _ = next(task.batches(0))
        assert [tuple(value.shape) for value in inputs] == [(5, 2), (5, 3)]

    def test_layers_that_learn_their_sizes_from_the_input(self, tmp_path: Path) -> None:
        text = HEAD + "def build():\n    return nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())\n"
        assert first_loss(make(tmp_path, text, train=True, input="8x4")).item() > 0

    def test_a_file_that_imports_its_neighbour(self, tmp_path: Path) -> None:
        (tmp_path / "beside.py").write_text("WIDTH = 3\n")
        text = HEAD + "from beside import WIDTH\ndef build():\n    return nn.Linear(4, WIDTH)\n"
        assert infer(make(tmp_path, text, input="2x4")).shape == (2, 3)

    def test_options_arrive_in_the_types_of_the_signature(self, tmp_path: Path) -> None:
        text = HEAD + (
            "def build(a: int, b: float = 1, c=False, d='x', e=None, *, f_g: 'int' = 1, **more):\n"
            "    net = nn.Linear(4, 3)\n    net.got = (a, b, c, d, e, f_g, more)\n    return net\n"
        )
        options = {"a": "3", "b": "2", "c": "yes", "d": "5", "e": "0.5", "f-g": "4", "h": "word"}
        got = make(tmp_path, text, input="2x4", **options).model.got
        assert got == (3, 2.0, True, "5", 0.5, 4, {"h": "word"})
        assert [type(value) for value in got[:2]] == [int, float]
        assert "f_g is given twice" in error(tmp_path, text, input="2x4", a="1", **{"f-g": "4", "f_g": "5"})

    def test_parameters_name_the_file_without_its_directory(self, tmp_path: Path) -> None:
        (tmp_path / "model.py").write_text(LINEAR)
        workload = describe(f"{tmp_path}/model.py:build", {"input": "8x4,2:int64<9", "loss": "mean", "out": "3"})
        assert workload.name == "model.py:build"
        parameters = workload.parameters()
        assert parameters["input"] == "8x4,2:int64<9"
        assert parameters["option_out"] == "3"
        assert len(parameters["sha256"]) == 64
        assert str(tmp_path) not in str(parameters)


class TestInputs:
    def test_several_inputs_with_types_and_bounds(self, tmp_path: Path) -> None:
        text = HEAD + (
            "class Net(nn.Module):\n    def forward(self, a, b, c):\n        return a, b, c\n"
            "def build():\n    return Net()\n"
        )
        a, b, c = infer(make(tmp_path, text, input="2x3, 50x4:int64<1000, 6:bool"))
        assert (a.shape, a.dtype) == ((2, 3), torch.float32)
        assert (b.shape, b.dtype) == ((50, 4), torch.int64)
        assert 0 <= b.min() <= b.max() < 1000
        assert b.max() > 2
        assert c.dtype == torch.bool

    def test_the_seed_fixes_weights_and_inputs(self, tmp_path: Path) -> None:
        first, again, different = (infer(make(tmp_path, LINEAR, input="2x4", seed=seed)) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, different)

    @given(
        st.lists(
            st.builds(
                lambda shape, kind, bound: InputShape(tuple(shape), kind, bound) if kind in INTEGERS
                else InputShape(tuple(shape), kind),
                st.lists(st.integers(1, 999), min_size=1, max_size=5),
                st.sampled_from(KINDS),
                st.integers(1, 128),
            ),
            min_size=1,
            max_size=4,
        )
    )  # fmt: skip
    def test_shapes_are_read_as_they_are_shown(self, shapes: list[InputShape]) -> None:
        assert parse_shapes(",".join(map(str, shapes))) == tuple(shapes)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("8x3x", "'8x3x' is not an input shape; write 8x3x224x224"),
            ("", "'' is not an input shape"),
            ("8,,3", "'' is not an input shape"),
            ("8x0", "'8x0' is empty"),
            ("8:float", "unknown type 'float'; did you mean 'float"),
            ("8:float32<3", "gives a bound to float32"),
            ("8:int64<0", "impossible bound"),
            ("8:int8<129", "impossible bound; use 1 to 128 for int8"),
        ],
    )
    def test_shapes_that_cannot_be_read(self, text: str, message: str) -> None:
        with pytest.raises(SondaError) as caught:
            parse_shapes(text)
        assert message in str(caught.value)


class TestTraining:
    def test_the_mean_of_squares_by_default(self, tmp_path: Path) -> None:
        text = HEAD + (
            "class Net(nn.Linear):\n    def forward(self, x):\n"
            "        y = super().forward(x)\n        return {'a': y, 'b': [y[:1], y.argmax()]}\n"
            "def build():\n    return Net(4, 3)\n"
        )
        task = make(tmp_path, text, train=True, input="2x4")
        (x,), target = next(task.batches(0))
        y = torch.nn.functional.linear(x, task.model.weight, task.model.bias).detach()
        everything = torch.cat([y.flatten(), y[:1].flatten()])
        assert task.loss(task.model(x), target).item() == pytest.approx((everything**2).mean().item(), rel=1e-5)

    @pytest.mark.parametrize(("loss", "shape"), [("mse", (8, 3)), ("cross_entropy", (8,)), ("mean", (8,))])
    def test_targets_have_the_shape_that_the_loss_needs(
        self, tmp_path: Path, loss: str, shape: tuple[int, ...]
    ) -> None:
        task = make(tmp_path, LINEAR, train=True, input="8x4", loss=loss)
        (x,), target = next(task.batches(0))
        assert x.shape == (8, 4)
        assert target.shape == shape
        output = task.model(x)
        expected = {
            "mse": lambda: ((output - target) ** 2).mean(),
            "mean": lambda: output.mean(),
            "cross_entropy": lambda: -output.log_softmax(1)[torch.arange(8), target].mean(),
        }[loss]()
        torch.testing.assert_close(task.loss(output, target), expected)

    def test_cross_entropy_of_every_position(self, tmp_path: Path) -> None:
        text = HEAD + "def build():\n    return nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 7))\n"
        task = make(tmp_path, text, train=True, input="2x5:int64<9", loss="cross_entropy")
        inputs, target = next(task.batches(0))
        assert target.shape == (2, 5)
        assert target.max() < 7
        task.loss(task.model(*inputs), target).backward()

    def test_a_scalar_output_is_the_loss(self, tmp_path: Path) -> None:
        text = HEAD + (
            "class Net(nn.Linear):\n    def forward(self, x):\n"
            "        y = super().forward(x)\n        return y.abs().sum() if self.training else y\n"
            "def build():\n    return Net(4, 3)\n"
        )
        task = make(tmp_path, text, train=True, input="2x4")
        (x,), target = next(task.batches(0))
        output = task.model(x)
        assert task.loss(output, target) is output
        assert infer(make(tmp_path, text, input="2x4")).shape == (2, 3)

    def test_trying_the_shapes_leaves_the_model_and_the_generator_as_they_were(self, tmp_path: Path) -> None:
        text = HEAD + "def build():\n    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout())\n"
        task = make(tmp_path, text, train=True, input="8x4", seed=4)
        torch.manual_seed(4)
        reference = torch.nn.Linear(4, 3)
        assert torch.equal(task.model[0].weight, reference.weight)
        assert task.model[1].num_batches_tracked == 0
        assert torch.equal(task.model[1].running_mean, torch.zeros(3))
        make(tmp_path, text, train=True, input="8x4", seed=4)
        after = torch.rand(3)
        torch.manual_seed(4)
        torch.nn.Linear(4, 3)
        assert torch.equal(after, torch.rand(3))

    def test_inputs_of_different_lengths_come_as_whole_batches(self, tmp_path: Path) -> None:
        text = HEAD + (
            "class Net(nn.Linear):\n    def forward(self, x, y):\n        return super().forward(x) + y.sum()\n"
            "def build():\n    return Net(4, 3)\n"
        )
        task = make(tmp_path, text, train=True, input="2x4,5")
        inputs, _ = next(task.batches(0))
        assert [tuple(value.shape) for value in inputs] == [(2, 4), (5,)]
        first_loss(task).backward()

    def test_nothing_to_train_is_one_line(self, tmp_path: Path) -> None:
        text = HEAD + "def build():\n    return nn.ReLU()\n"
        assert "has no parameters to train" in error(tmp_path, text, train=True, input="2x4")
        text = HEAD + (
            "class Net(nn.Linear):\n    def forward(self, x):\n        return super().forward(x).argmax()\n"
            "def build():\n    return Net(4, 3)\n"
        )
        assert "no output depends on a parameter" in error(tmp_path, text, train=True, input="2x4")


class TestMistakes:
    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(SondaError, match=r"cannot read .*gone\.py: No such file or directory; check the path"):
            describe(f"{tmp_path}/gone.py:build", {})

    def test_a_factory_that_cannot_be_a_name(self, tmp_path: Path) -> None:
        with pytest.raises(SondaError, match="'3x' cannot be the name of a factory"):
            describe(f"{tmp_path}/gone.py:3x", {})

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("import torch\n\nimport nothing_like_it\n",
             "does not import: ModuleNotFoundError: No module named 'nothing_like_it' (line 3 of model.py)"),
            ("def build(:\n", "does not import: SyntaxError: invalid syntax (line 1 of model.py)"),
            ("x = 1\nraise ValueError('two\\nlines')\n", "ValueError: two lines (line 2 of model.py)"),
            ("import sys\nsys.exit(3)\n", "SystemExit: 3 (line 2 of model.py)"),
        ],
    )  # fmt: skip
    def test_a_file_that_does_not_import(self, tmp_path: Path, text: str, message: str) -> None:
        assert message in error(tmp_path, text, input="2x4")

    def test_a_missing_factory(self, tmp_path: Path) -> None:
        assert "model.py has no 'biuld'; did you mean 'build'?" in error(tmp_path, LINEAR, "biuld", input="2x4")

    def test_a_factory_that_is_not_callable(self, tmp_path: Path) -> None:
        assert "model.py:build is of type int; name a function" in error(tmp_path, "build = 3\n", input="2x4")

    def test_a_factory_that_raises(self, tmp_path: Path) -> None:
        text = "def build():\n    x = {}\n    return x['key']\n"
        assert "model.py:build raises KeyError: 'key' (line 3 of model.py)" in error(tmp_path, text, input="2x4")

    def test_a_factory_that_returns_something_else(self, tmp_path: Path) -> None:
        message = error(tmp_path, "def build():\n    return [1, 2, 3]\n", input="2x4")
        assert "returns a list, not a model; return a torch.nn.Module" in message

    def test_no_shapes(self, tmp_path: Path) -> None:
        assert "needs the shapes of its inputs; give input=8x3x224x224" in error(tmp_path, LINEAR)

    def test_shapes_that_do_not_fit(self, tmp_path: Path) -> None:
        message = error(tmp_path, LINEAR, input="8x5")
        assert (
            "forward fails with input 8x5: RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x5 and 4x3)"
            in message
        )
        message = error(tmp_path, LINEAR, input="8x4:int64")
        assert "forward fails with input 8x4:int64" in message

    def test_too_many_inputs(self, tmp_path: Path) -> None:
        assert "forward fails with input 8x4, 8x4: TypeError" in error(tmp_path, LINEAR, input="8x4,8x4")

    def test_options_that_the_factory_does_not_take(self, tmp_path: Path) -> None:
        text = HEAD + "def build(width: int):\n    return nn.Linear(4, width)\n"
        assert "takes no option 'wdth'; did you mean 'width'?" in error(tmp_path, text, input="2x4", wdth="3")
        assert "model.py:build needs width; set width=..." in error(tmp_path, text, input="2x4")
        assert "width=three is not int" in error(tmp_path, text, input="2x4", width="three")

    def test_an_unknown_loss(self, tmp_path: Path) -> None:
        assert "loss=hinge cannot be read; write one of squares, mean" in error(tmp_path, LINEAR, loss="hinge")

    def test_a_loss_that_does_not_fit(self, tmp_path: Path) -> None:
        text = HEAD + "def build():\n    return nn.LSTM(4, 3)\n"
        message = error(tmp_path, text, train=True, input="2x5x4", loss="mse")
        assert "loss=mse needs one tensor, not a tuple; use squares" in message
        text = HEAD + "def build():\n    return nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))\n"
        assert "cross_entropy needs classes, the output is 2" in error(
            tmp_path, text, train=True, input="2x4", loss="cross_entropy"
        )
