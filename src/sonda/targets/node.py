"""What a node of a cluster says of itself. Studies call this on the nodes."""

from __future__ import annotations

from typing import Any

from sonda.probes.machine.gpu import read_gpu_names
from sonda.probes.machine.record import machine_record
from sonda.record.files.partial import node_name
from sonda.version import VERSION

AND = " + "
"""Between the processor and the GPUs of a kind of node."""


def kind_has_gpu(kind: str) -> bool:
    """Whether nodes of this kind, as `node_facts` words it, have a GPU."""
    return AND in kind


def node_facts() -> dict[str, Any]:
    """`node` (its name), `version` of Sonda, `gpus` by name, and `kind`: processor and GPUs, in words."""
    processor = str(machine_record().get("processor") or "unknown processor")
    gpus = read_gpu_names()
    kind = AND.join([processor, *gpus])
    return {"node": node_name(), "version": VERSION, "gpus": gpus, "kind": kind}
