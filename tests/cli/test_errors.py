"""What an error says is one line, also of one that says several, or nothing."""

from __future__ import annotations

import pytest

from sonda.record.errors import first_line, named_line


@pytest.mark.parametrize(
    ("error", "said", "named"),
    [
        (ValueError("no such layer"), "no such layer", "ValueError: no such layer"),
        (RuntimeError("\n  shapes differ:\n  8 and 9"), "shapes differ:", "RuntimeError: shapes differ:"),
        (KeyError(), "KeyError", "KeyError"),
        (TypeError(" \n"), "TypeError", "TypeError"),
    ],
)
def test_an_error_in_one_line(error: Exception, said: str, named: str) -> None:
    assert (first_line(error), named_line(error)) == (said, named)
