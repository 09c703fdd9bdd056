"""A layer and its tile, in STONNE's terms: every dense operation is a convolution, a matrix product included.

Letters are those of the reference, so that its users find them again: R, S rows and columns of the filter; C channels;
K filters; G groups; N batch; X, Y rows and columns of the input (padding included); X', Y' those of the output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sonda.accelerators.description.hardware import Hardware
from sonda.record.errors import SondaError

LARGEST = 1 << 31
MOST_PRODUCTS = 1 << 50
"""Sizes and numbers of products beyond these are mistakes: cycles and counters would leave 64 bits."""


@dataclass(frozen=True)
class StonneLayer:
    """A layer as STONNE takes it: a convolution. C and K are totals over all groups."""

    R: int
    S: int
    C: int
    K: int
    G: int
    N: int
    X: int
    Y: int
    stride: int = 1

    @staticmethod
    def product(m: int, n: int, k: int) -> StonneLayer:
        """The product of an m x k by a k x n matrix."""
        return StonneLayer(R=1, S=k, C=1, K=n, G=1, N=1, X=m, Y=k)

    @property
    def sizes(self) -> tuple[int, ...]:
        """All fields in their order."""
        return self.R, self.S, self.C, self.K, self.G, self.N, self.X, self.Y, self.stride

    @property
    def rows(self) -> int:
        """X', rows of the output."""
        return (self.X - self.R + self.stride) // self.stride

    @property
    def columns(self) -> int:
        """Y', columns of the output."""
        return (self.Y - self.S + self.stride) // self.stride

    def check(self) -> StonneLayer:
        """This layer; raises SondaError naming the size and the reason when there is no such layer."""
        check_sizes(vars(self))
        for size in ("C", "K"):
            if getattr(self, size) % self.G:
                raise SondaError(
                    f"{size} = {getattr(self, size)} is not divisible by G = {self.G}", f"change {size} or G"
                )
        for inner, outer in (("R", "X"), ("S", "Y")):
            if getattr(self, inner) > getattr(self, outer):
                raise SondaError(
                    f"{inner} = {getattr(self, inner)} is more than {outer} = {getattr(self, outer)}",
                    "pad the input or shrink the filter",
                )
        products = self.N * self.K * self.rows * self.columns * self.R * self.S * (self.C // self.G)
        if products > MOST_PRODUCTS:
            raise SondaError(f"the layer has {products} products, more than {MOST_PRODUCTS}", "make it smaller")
        return self


@dataclass(frozen=True)
class Tile:
    """The part of a layer that is on the multipliers at one time; X and Y count outputs (STONNE's T_X_ and T_Y_)."""

    R: int
    S: int
    C: int
    K: int
    G: int
    N: int
    X: int
    Y: int

    @staticmethod
    def product(m: int, n: int, k: int) -> Tile:
        """The tile of a matrix product: m rows, n columns, k products per sum."""
        return Tile(R=1, S=k, C=1, K=n, G=1, N=1, X=m, Y=1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """All fields in their order."""
        return self.R, self.S, self.C, self.K, self.G, self.N, self.X, self.Y

    @property
    def neuron(self) -> int:
        """Products per virtual neuron."""
        return self.R * self.S * self.C

    @property
    def neurons(self) -> int:
        """Virtual neurons at one time."""
        return self.K * self.G * self.N * self.X * self.Y

    def folds(self, layer: StonneLayer) -> int:
        """Pieces in which every sum is computed."""
        return -(-layer.R // self.R) * -(-layer.S // self.S) * -(-(layer.C // layer.G) // self.C)

    def check(self, hardware: Hardware, layer: StonneLayer) -> Tile:
        """This tile; raises SondaError naming the field and the reason when the machine cannot run it."""
        check_sizes(vars(self), "T_")
        used = self.neuron * self.neurons
        if used > hardware.multipliers:
            raise SondaError(
                f"the tile takes {used} multipliers (T_R*T_S*T_C*T_K*T_G*T_N*T_X_*T_Y_), "
                f"the machine has {hardware.multipliers}",
                "make the tile smaller",
            )
        folds = self.folds(layer)
        if hardware.reduction == "TEMPORALRN":
            if self.neuron > 1:
                raise SondaError(
                    f"TEMPORALRN has no adders, but T_R*T_S*T_C (T_K of a matrix product) = {self.neuron} "
                    "products are to be summed",
                    "use 1, or another reduction network",
                )
            if not hardware.accumulators:
                raise SondaError("TEMPORALRN cannot sum without accumulators", "switch accumulators on")
        elif hardware.multipliers == 1:
            raise SondaError(f"multipliers = 1 leaves {hardware.reduction} without an adder", "give at least 2")
        elif self.neuron == 1 and self.neurons > 1:
            shared = f"T_R*T_S*T_C (T_K of a matrix product) = 1 puts two sums on one adder, which {hardware.reduction}"
            if hardware.reduction == "FENETWORK":
                raise SondaError(f"{shared} cannot keep apart", "use at least 2, or ASNETWORK")
            if hardware.accumulators and folds > 1:
                raise SondaError(f"{shared} cannot accumulate over {folds} folds", "use at least 2, or TEMPORALRN")
        if self.folds_through_memory(hardware, layer) and used + self.neurons > hardware.multipliers:
            raise SondaError(
                f"{folds} folds without accumulators need one more multiplier per virtual neuron: "
                f"{used + self.neurons} multipliers, the machine has {hardware.multipliers}",
                "make the tile smaller or switch accumulators on",
            )
        return self

    def folds_through_memory(self, hardware: Hardware, layer: StonneLayer) -> bool:
        """Whether partial sums travel to the global buffer and back."""
        return (self.folds(layer) > 1) & hardware.sums_through_memory

    def hands_on(self, layer: StonneLayer) -> bool:
        """Whether multipliers hand activations to their neighbours, from one window of a row to the next."""
        return (self.Y == 1) & (self.S > 1) & (layer.stride == 1) & (layer.S % self.S == 0)


def check_sizes(sizes: Mapping[str, Any], begins: str = "") -> None:
    """Raises SondaError naming the first of these that is not a size; names are told with this before them."""
    for name, value in sizes.items():
        if type(value) is not int or not 1 <= value <= LARGEST:
            name = f"{begins}{name}"
            raise SondaError(f"{name} = {value!r} is not a whole number from 1 to {LARGEST}", f"change {name}")
