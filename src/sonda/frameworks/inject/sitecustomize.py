"""Loaded first by every Python interpreter of a program that Sonda runs; then makes room for the real sitecustomize."""

import importlib
import importlib.machinery
import importlib.util
import os
import sys


def _load_collector() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    collector = os.path.join(os.path.dirname(here), "collector")
    spec = importlib.util.spec_from_file_location(
        "_sonda_collector", os.path.join(collector, "__init__.py"), submodule_search_locations=[collector]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_sonda_collector"] = module
    spec.loader.exec_module(module)
    importlib.import_module("_sonda_collector.start").start()


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
        sys.stderr.write(f"sonda: this program runs unobserved: {type(error).__name__}: {error}\n")
_chain()
