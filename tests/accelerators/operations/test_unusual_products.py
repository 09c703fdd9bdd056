"""Products of sparse, quantised and integer tensors are not passed over: a note says what became of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from sonda.accelerators.operations.capture import capture  # noqa: E402
from sonda.record.store import Store  # noqa: E402
from sonda.targets.job import Job  # noqa: E402
from sonda.targets.pipeline import measure  # noqa: E402

torch.set_num_threads(1)


class Then(nn.Module):
    """A linear layer, and then what the test asks for."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.work = work

    def forward(self, values: Any) -> Any:
        return self.work(self.linear(values))


def notes_of(model: nn.Module, values: Any = None) -> tuple[str, ...]:
    with torch.no_grad():
        return capture(model, lambda mark: model(torch.ones(2, 4) if values is None else values)).program.notes


def test_a_model_of_float32_has_nothing_to_say() -> None:
    assert notes_of(Then(torch.relu)) == ()


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda x: x.long() @ torch.ones(4, 4, dtype=torch.long), "products of int64 (1), simulated as float32"),
        (lambda x: x.half() @ torch.ones(4, 4, dtype=torch.half), "products of float16 (1), simulated as float32"),
        (
            lambda x: torch.eye(2).to_sparse_csr() @ x,
            "products with a sparse tensor (1), simulated as dense: zeros are left out only by an engine that looks "
            "for them",
        ),
        (
            lambda x: torch.sparse.mm(torch.eye(2).to_sparse(), x),
            "products on the host, in no cycle: _sparse_addmm 1 (sparse)",
        ),
        (
            lambda x: torch._int_mm(torch.ones(32, 32, dtype=torch.int8), torch.ones(32, 32, dtype=torch.int8)),
            "products on the host, in no cycle: _int_mm 1 (of whole numbers)",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_each_is_said(work: Callable[[Any], Any], said: str) -> None:
    assert notes_of(Then(work)) == (said,)


@pytest.mark.filterwarnings("ignore")
def test_quantised_layers_are_on_the_host() -> None:
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("this build of PyTorch has no quantised layers")
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model = torch.ao.quantization.quantize_dynamic(plain, {nn.Linear})
    assert notes_of(model) == ("products on the host, in no cycle: linear_dynamic 2 (quantised)",)


def test_the_run_says_it(tmp_path: Path) -> None:
    path = tmp_path / "whole.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\nclass Whole(nn.Module):\n    def forward(self, values):\n"
        "        return values.long() @ torch.ones(4, 4, dtype=torch.long)\n\ndef build():\n    return Whole()\n"
    )
    job = Job(workload=f"{path}:build", options={"input": "2x4"}, on="sim:maeri-256")
    run = measure(job, Store(tmp_path / "runs"))
    assert "products of int64 (1), simulated as float32" in run.info.notes
