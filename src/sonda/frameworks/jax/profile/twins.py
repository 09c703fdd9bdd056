"""Products that XLA wrote anew and left without scopes: whose they are tells another product of the same weights.

The gradient of a convolution's weights is one: XLA makes another convolution of it, and does not say whence it came.
What updates the weights reads both, though, and so does the forward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sonda.frameworks.jax.profile.hlo import Instruction, Module
from sonda.frameworks.jax.profile.hlo_cost import size_of

PRODUCTS = ("convolution", "dot")
SOURCES = ("parameter", "get-tuple-element")


class Twins:
    """Finds for a product without scopes those with scopes that read, or make a change of, the same weights."""

    def __init__(self, module: Module, users: Mapping[str, Sequence[Instruction]]) -> None:
        self.module = module
        self.users = users
        self._products = [one for one in module.named.values() if self.product(one) and self.said(one) is not None]
        self._readers: dict[str, list[Instruction]] = {}
        for one in self._products:
            for source in self._sources(one):
                self._readers.setdefault(source, []).append(one)

    def product(self, one: Instruction) -> bool:
        return bool(self._inside(one))

    def said(self, one: Instruction) -> Instruction | None:
        """The product that an instruction is or holds, where it has scopes."""
        return next((inner for inner in self._inside(one) if inner.scopes), None)

    def of(self, one: Instruction) -> Iterator[list[Instruction]]:
        """Products with scopes: those of the weights that its result changes, then those of what it reads."""
        size = size_of(one.arrays)
        updated = {
            source
            for user in self._named_users(one)
            for source in self._sources(user)
            if size_of(self.module.named[source].arrays) == size
        }
        for sources in (updated, self._sources(one)):
            readers = [reader for source in sorted(sources) for reader in self._readers.get(source, ())]
            yield [twin for reader in readers if (twin := self.said(reader)) is not None]

    def _inside(self, one: Instruction) -> list[Instruction]:
        if one.opcode in PRODUCTS:
            return [one]
        held = one.called if one.opcode in ("fusion", "call") else ()
        return [inner for name in held for inner in self.module.computations.get(name, ()) if inner.opcode in PRODUCTS]

    def _sources(self, one: Instruction) -> set[str]:
        """What an instruction is given from outside, as it is or as XLA has rearranged it."""
        found: set[str] = set()
        asked = list(one.operands)
        seen: set[str] = set()
        while asked:
            name = asked.pop()
            source = self.module.named.get(name)
            if source is None or name in seen:
                continue
            seen.add(name)
            if source.opcode in SOURCES:
                found.add(name)
            elif not source.scopes and not self.product(source):
                asked += source.operands
        return found

    def _named_users(self, one: Instruction) -> list[Instruction]:
        """Those that use a result, as it is or rearranged."""
        found: list[Instruction] = []
        asked, seen = [one.name], {one.name}
        while asked:
            for user in self.users.get(asked.pop(), ()):
                if user.scopes:
                    found.append(user)
                elif user.name not in seen and user.opcode != "tuple":
                    seen.add(user.name)
                    asked.append(user.name)
        return found
