"""How a process ended, in words."""

from __future__ import annotations

import signal

import pytest

from sonda.targets.signals import describe_exit


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended with code 0"),
        (3, "ended with code 3"),
        (-signal.SIGTERM, "was ended by SIGTERM"),
        (-signal.SIGKILL, "was ended by SIGKILL (out of memory?)"),
        (-40, "was ended by signal 40"),  # of those for real time only the first and the last have names
    ],
)
def test_a_code_is_told_as_what_happened(code: int, words: str) -> None:
    assert describe_exit(code) == words
