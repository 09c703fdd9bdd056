"""The layer of products that XLA rewrote without scopes: another product of the same weights tells it.

The gradient of a convolution's weights is such a product: XLA makes another convolution of it, and drops its scopes.
But the update reads that gradient and the weights, and the product of the forward reads the weights too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sonda.frameworks.jax.profile.hlo import Instruction, Module
from sonda.frameworks.jax.profile.hlo_cost import bytes_of

PRODUCTS = ("convolution", "dot")
SOURCES = ("parameter", "get-tuple-element")


class ProductTwins:
    """Finds, for a product without scopes, products with scopes that read or update the same weights."""

    def __init__(self, module: Module, users: Mapping[str, Sequence[Instruction]]) -> None:
        self.module = module
        self.users = users
        self._products = [
            instruction
            for instruction in module.by_name.values()
            if self.is_product(instruction) and self.scoped_product(instruction) is not None
        ]
        self._readers: dict[str, list[Instruction]] = {}
        for instruction in self._products:
            for source in self._sources(instruction):
                self._readers.setdefault(source, []).append(instruction)

    def is_product(self, instruction: Instruction) -> bool:
        return bool(self._products_in(instruction))

    def scoped_product(self, instruction: Instruction) -> Instruction | None:
        """The product that an instruction is or holds, if it has scopes; None otherwise."""
        return next((inner for inner in self._products_in(instruction) if inner.scopes), None)

    def twins_of(self, instruction: Instruction) -> Iterator[list[Instruction]]:
        """Products with scopes: first those of the weights that its result updates, then those of its own inputs."""
        result_bytes = bytes_of(instruction.arrays)
        updated = {
            source
            for user in self._scoped_users(instruction)
            for source in self._sources(user)
            if bytes_of(self.module.by_name[source].arrays) == result_bytes
        }
        for sources in (updated, self._sources(instruction)):
            readers = [reader for source in sorted(sources) for reader in self._readers.get(source, ())]
            yield [twin for reader in readers if (twin := self.scoped_product(reader)) is not None]

    def _products_in(self, instruction: Instruction) -> list[Instruction]:
        if instruction.opcode in PRODUCTS:
            return [instruction]
        computations = instruction.callees if instruction.opcode in ("fusion", "call") else ()
        return [
            inner
            for name in computations
            for inner in self.module.computations.get(name, ())
            if inner.opcode in PRODUCTS
        ]

    def _sources(self, instruction: Instruction) -> set[str]:
        """Names of the inputs of the function that an instruction reads, as they are or rearranged by XLA."""
        sources: set[str] = set()
        pending = list(instruction.operands)
        visited: set[str] = set()
        while pending:
            name = pending.pop()
            source = self.module.by_name.get(name)
            if source is None or name in visited:
                continue
            visited.add(name)
            if source.opcode in SOURCES:
                sources.add(name)
            elif not source.scopes and not self.is_product(source):
                pending += source.operands
        return sources

    def _scoped_users(self, instruction: Instruction) -> list[Instruction]:
        """Instructions with scopes that use a result, as it is or rearranged."""
        scoped: list[Instruction] = []
        pending, visited = [instruction.name], {instruction.name}
        while pending:
            for user in self.users.get(pending.pop(), ()):
                if user.scopes:
                    scoped.append(user)
                elif user.name not in visited and user.opcode != "tuple":
                    visited.add(user.name)
                    pending.append(user.name)
        return scoped
