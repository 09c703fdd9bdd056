"""The workloads by name: built in, added by other packages, or a file of the user.

An entry point of the group `sonda.workloads` is a callable that takes options (a dictionary of text), gives a Workload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from sonda.record.errors import SondaError, nearest
from sonda.record.plugins import WORKLOADS, call_entry, plugin_entries
from sonda.record.protocols import WorkloadProtocol
from sonda.workloads.model_garden import PREFIX, ModelGarden, is_garden
from sonda.workloads.networks.cnn import ConvNet
from sonda.workloads.networks.dlrm import Recommender
from sonda.workloads.networks.lstm import Recurrent
from sonda.workloads.networks.mlp import Perceptron
from sonda.workloads.networks.resnet import ResNet
from sonda.workloads.networks.transformer import Transformer
from sonda.workloads.operations.ops import Operations
from sonda.workloads.operations.stress import StressBandwidth, StressCache, StressCompute
from sonda.workloads.own_model import is_own, own_model

BUILT_IN: dict[str, Callable[[str, Mapping[str, str]], Any]] = {
    "ops": Operations.from_options,
    "mlp": Perceptron.from_options,
    "cnn": ConvNet.from_options,
    "resnet18": partial(ResNet.from_options, depth=18),
    "resnet34": partial(ResNet.from_options, depth=34),
    "resnet50": partial(ResNet.from_options, depth=50),
    "lstm": Recurrent.from_options,
    "transformer": Transformer.from_options,
    "dlrm": Recommender.from_options,
    "stress-cache": StressCache.from_options,
    "stress-bandwidth": StressBandwidth.from_options,
    "stress-compute": StressCompute.from_options,
}


def workload_names() -> list[str]:
    """All names that `describe` knows: the built-in ones, then those of other packages."""
    return [*BUILT_IN, *(name for name in plugin_entries(WORKLOADS) if name not in BUILT_IN)]


def describe(name: str, options: Mapping[str, str]) -> WorkloadProtocol:
    """The workload of that name, or of `file.py:factory`, with these options. No framework is imported.

    Raises SondaError for an unknown name, an unknown option, or an impossible value.
    """
    if is_own(name):
        return cast(WorkloadProtocol, own_model(name, options))
    if name in BUILT_IN:
        return cast(WorkloadProtocol, BUILT_IN[name](name, options))
    if is_garden(name):
        return ModelGarden.from_options(name, options, experiment=name.removeprefix(PREFIX))
    entries = plugin_entries(WORKLOADS)
    if name.endswith(".onnx"):
        raise SondaError(
            f"{name!r} is an ONNX file, which holds a graph and no PyTorch model whose operations could be seen",
            "load it in a file of your own as a torch.nn.Module: file.py:factory",
        )
    if name not in entries:
        raise SondaError(f"there is no workload {name!r}", nearest(name, workload_names(), "Your own: file.py:factory"))
    return cast(WorkloadProtocol, call_entry(entries[name], dict(options)))
