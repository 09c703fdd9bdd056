"""Records of calls, for reproducing what a model saw."""

import functools
import logging
import tempfile

import torch

log = logging.getLogger("records")
log.setLevel(logging.DEBUG)
log.propagate = False
_file = tempfile.NamedTemporaryFile("w", suffix=".log")  # noqa: SIM115
log.addHandler(logging.StreamHandler(_file))


def describe(value):
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {value.detach()[:32, :64].tolist()}"
    return type(value).__name__


def recorded(function):
    @functools.wraps(function)
    def wrapper(*values):
        result = function(*values)
        log.debug("%s(%s) -> %s", function.__qualname__, ", ".join(map(describe, values)), describe(result))
        return result

    return wrapper
