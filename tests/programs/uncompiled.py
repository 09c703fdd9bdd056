"""Stands in for PyTorch's compiler, which optimizers import and which takes as long as all the rest of PyTorch.

Import it before PyTorch, in programs that compile nothing; under valgrind above all.
"""

import sys
from types import ModuleType


class Anything(ModuleType):
    """Has every attribute and takes every call."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name)

    def __call__(self, *given, **named):
        return Anything("called")


compiler = Anything("torch._dynamo")
compiler.__path__ = []
compiler.disable = lambda function, *given, **named: function
sys.modules.setdefault("torch._dynamo", compiler)
