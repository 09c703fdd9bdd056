"""The hardware of a simulated accelerator, in STONNE's terms."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from numbers import Integral

from sonda.record.errors import SondaError

REDUCTIONS = ("ASNETWORK", "FENETWORK", "TEMPORALRN")
CONTROLLERS = ("MAERI_DENSE_WORKLOAD", "SIGMA_SPARSE_GEMM", "MAGMA_SPARSE_DENSE", "TPU_OS_DENSE")
DATAFLOWS = ("MK_STA_KN_STR", "MK_STR_KN_STA")
"""Of SIGMA, which matrix stays and which streams: the rows of the first stay, or the columns of the second."""


@dataclass(frozen=True)
class Hardware:
    """Multipliers, bandwidths in elements per cycle, and the networks between them."""

    multipliers: int = 64
    """Linear multiplier network; a power of two."""
    rows: int = 0
    columns: int = 0
    """Of a mesh; 0 for the linear network."""
    read_ports: int = 4
    """Elements that the global buffer can send per cycle; a power of two (STONNE's dn_bw)."""
    write_ports: int = 4
    """Results that the collection bus can deliver per cycle; a power of two (STONNE's rn_bw)."""
    reduction: str = "ASNETWORK"
    accumulators: bool = False
    controller: str = "MAERI_DENSE_WORKLOAD"

    @property
    def sums_through_memory(self) -> bool:
        """Whether sums in several folds go back to the global buffer, because nothing nearer can keep them."""
        return not self.accumulators and self.reduction == "ASNETWORK"

    def check(self) -> Hardware:
        """This hardware; raises SondaError naming the field and the reason when it cannot be built."""
        for problem in self.problems():
            raise problem
        return self

    def problems(self, unknown: Container[str] = ()) -> Iterator[SondaError]:
        """All reasons why it cannot be built, each cause beginning with the name of a field.

        Ports are not held against multipliers that are wrong themselves, or among the `unknown`.
        """
        sound = "multipliers" not in unknown
        for name in ("multipliers", "read_ports", "write_ports"):
            value = getattr(self, name)
            if not _is_whole(value) or not 1 <= value <= 1 << 20 or value & (value - 1):
                sound = False
                yield SondaError(f"{name} = {value} is not a power of two from 1 to 1048576", f"change {name}")
        for name in ("rows", "columns"):
            value = getattr(self, name)
            if not _is_whole(value) or not 0 <= value <= 1 << 20:
                yield SondaError(f"{name} = {value} is not a whole number from 0 to 1048576", f"change {name}")
        if self.reduction not in REDUCTIONS:
            yield SondaError(f"reduction = {self.reduction!r} is unknown", f"use one of {', '.join(REDUCTIONS)}")
        if self.controller not in CONTROLLERS:
            yield SondaError(f"controller = {self.controller!r} is unknown", f"use one of {', '.join(CONTROLLERS)}")
        if not self.rows and sound:
            for name in ("read_ports", "write_ports"):
                if getattr(self, name) > self.multipliers:
                    yield SondaError(
                        f"{name} = {getattr(self, name)} is more than multipliers = {self.multipliers}",
                        f"give at most {self.multipliers}",
                    )

    def check_mesh_ports(self) -> None:
        """Raises SondaError where the read ports cannot share the inputs of the mesh, of its rows and columns."""
        inputs = self.rows + self.columns
        per_port, rest = divmod(inputs, self.read_ports)
        if rest or per_port & (per_port - 1):
            raise SondaError(
                f"read_ports = {self.read_ports} does not share the {inputs} inputs of the mesh by a power of two",
                "make rows + columns a power of two times read_ports",
            )


def _is_whole(value: object) -> bool:
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))
