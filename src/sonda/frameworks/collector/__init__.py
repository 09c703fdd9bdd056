"""The code that runs inside every observed process. It needs the standard library and the framework, nothing else.

The user's interpreter may have neither Sonda nor numpy. This folder and the folder `observe` of each framework travel
into a program: the injected `sitecustomize` loads them by path, under the name `_sonda`. Imports inside them are
relative, so that Sonda's own processes can use the same files as `sonda.frameworks`.

* The injected `sitecustomize` calls `start`, which waits for frameworks to be imported.
* `recorder` appends events to one file per process, `phases` begins and ends phases, `watch` ends with the process.
* `sampling` decides which steps are recorded in detail. `counters` reads what the kernel and the processor count.
"""

from __future__ import annotations

import os

ROOT = __package__.rpartition(".")[0]
"""Name of the package that holds the collector and the frameworks: `_sonda` in a program, `sonda.frameworks` in
Sonda."""
OBSERVERS = tuple(f"{framework}.observe" for framework in ("torch", "tensorflow", "jax", "pytensor"))
PACKAGES = (f"{__package__}.", *(f"{ROOT}.{observer}." for observer in OBSERVERS))
"""Prefixes of the names of all modules that travel into a program."""
FOLDERS = tuple(
    os.path.join(os.path.dirname(os.path.dirname(__file__)), *package.split("."))
    for package in ("collector", *OBSERVERS)
)
"""The folders of these modules."""
