"""What every observed process carries: standard library and the framework, nothing else of Sonda's.

The user's interpreter may have neither Sonda nor numpy. What travels into a program is this folder and the folder
`observe` of each framework; the injected `sitecustomize` loads both by path, under the name `_sonda`. Imports inside
them are relative, so that Sonda's own processes can use the same files as `sonda.frameworks`.

* `start` is what the injected `sitecustomize` calls: it waits for frameworks to be imported;
* `recorder` appends events to one file per process, `phases` begins and ends phases, `watch` ends with the process;
* `sampling` says which steps are seen in detail, `counters` reads what the kernel and the processor count.
"""

from __future__ import annotations

import os

ROOT = __package__.rpartition(".")[0]
"""Of the package that holds the collector and the frameworks: `_sonda` in a program, `sonda.frameworks` in Sonda."""
OBSERVERS = tuple(f"{framework}.observe" for framework in ("torch", "tensorflow", "jax", "pytensor"))
PACKAGES = (f"{__package__}.", *(f"{ROOT}.{observer}." for observer in OBSERVERS))
"""Beginnings of the names of all modules that travel."""
FOLDERS = tuple(
    os.path.join(os.path.dirname(os.path.dirname(__file__)), *package.split("."))
    for package in ("collector", *OBSERVERS)
)
"""Where they lie."""
