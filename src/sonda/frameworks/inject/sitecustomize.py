"""Loaded first by every Python interpreter of a program that Sonda runs; then makes room for the real sitecustomize."""

import importlib
import importlib.machinery
import importlib.util
import os
import sys


def _load_collector() -> None:
    """Make a package of the folder that holds the collector and the frameworks, without running its `__init__`."""
    spec = importlib.machinery.ModuleSpec("_sonda", None, is_package=True)
    spec.submodule_search_locations = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules["_sonda"] = importlib.util.module_from_spec(spec)
    importlib.import_module("_sonda.collector.start").start()


def _chain() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("SONDA_COLLECT"):
    try:
        _load_collector()
    except Exception as error:  # the program must run, observed or not
        if '"trial"' in os.environ["SONDA_COLLECT"]:  # nothing would stop it
            sys.stderr.write(f"TrialError: Sonda cannot try this program: {type(error).__name__}: {error}\n")
            sys.stderr.flush()
            os._exit(125)
        sys.stderr.write(f"sonda: this program runs unobserved: {type(error).__name__}: {error}\n")
_chain()
