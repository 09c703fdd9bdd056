"""The vocabulary of numbers: one meaning for one word."""

from __future__ import annotations

import ast
import inspect
from collections import Counter

from sonda.record import quantities as quantity


def test_every_quantity_is_listed_once() -> None:
    """Of two with one name the first would be lost without a word."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(quantity))) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Quantity"]
    made = [call.args[0].value for call in named if isinstance(call.args[0], ast.Constant)]
    assert len(made) > 50 and [name for name, times in Counter(made).items() if times > 1] == []
    assert all(one.name == name and one.unit and one.meaning for name, one in quantity.QUANTITIES.items())
