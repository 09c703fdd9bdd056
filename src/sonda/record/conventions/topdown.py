"""Top-Down: one definition per microarchitecture gives both the events to count and what follows from them.

A run keeps the definition that it was counted with (`topdown` of its target in `run.json`), so that its categories
can be computed from the run alone.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sonda.record.conventions.expression import Expression, parse
from sonda.record.errors import SondaError


class Category(msgspec.Struct, frozen=True, omit_defaults=True):
    """A share of the pipeline's slots, 0 to 1."""

    name: str
    """`frontend_bound`; formulas may use it."""
    formula: str
    """Over quantities as spans have them (`-` and `.` of an event's name are `_` there), `formulas` and categories."""
    parent: str = ""
    """The category that it is a part of; '' on level 1."""
    threshold: float = 0.0
    """Above this share it counts, if its parent does."""
    title: str = ""
    """In words; '' is the name with blanks."""
    meaning: str = ""
    bound: str = ""
    """`lower` where the hardware shows only a part of it."""

    @property
    def words(self) -> str:
        return self.title or self.name.replace("_", " ")


class TopDownDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one microarchitecture is counted. A table may hold more (events with their codes, groups, sources)."""

    name: str
    """Of the microarchitecture: `AMD Zen 4`."""
    categories: tuple[Category, ...]
    """Parents before their children."""
    formulas: dict[str, str] = {}
    """Names for what several formulas need, in an order in which each needs only those before it."""
    width: float = 0
    """Slots a cycle; formulas may use it as `width`."""
    of: str = "slots"
    """What the categories are shares of: slots, or cycles where the hardware counts no slots."""
    approximate: bool = False
    """The hardware allows no Top-Down: what there is comes close to it and is called so."""
    source: str = ""
    notes: tuple[str, ...] = ()
    """What a reader of the numbers must know, in sentences."""

    def parsed(self) -> dict[str, Expression]:
        """Every formula by name, in the order in which they are computed. Raises SondaError for one that is wrong."""
        formulas = {name: parse(text) for name, text in self.formulas.items()}
        for category in self.categories:
            if category.name in formulas:
                raise SondaError(f"Top-Down of {self.name}: two formulas are called {category.name!r}", "rename one")
            if category.parent and category.parent not in formulas:
                raise SondaError(
                    f"Top-Down of {self.name}: {category.name!r} has the parent {category.parent!r}, which is not "
                    "before it",
                    "put parents before their children",
                )
            formulas[category.name] = parse(category.formula)
        return formulas


def read_definition(table: Any) -> TopDownDefinition:
    """From `run.json` or a data file. Raises SondaError that names the field."""
    try:
        definition = msgspec.convert(table, TopDownDefinition, strict=False)
    except msgspec.ValidationError as error:
        raise SondaError(f"not a Top-Down definition: {error}", "see the tables that come with Sonda") from None
    definition.parsed()
    return definition
