"""Trees of modules: which module has another one among its parts, even where the program never calls it.

A program may call methods of its model (`model.encode(x)`), or the parts of a model one by one. Parts are named as the
model names them, so the model has to be found, among all modules that are alive.
"""

from __future__ import annotations

import gc
from time import thread_time_ns as thread_now
from typing import Any

MOST_SEARCHES = 32
LONGEST_NS = 200_000_000
"""Most processor time of all searches together, ns. A search looks at every object of the program, some 100 ns each."""
WRAPPERS = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "_FabricModule": "_original_module",
    "DeepSpeedEngine": "module",
}
"""Wrapper classes of libraries, and the name under which each has the wrapped module."""
LIBRARIES = ("torch", "lightning", "lightning_fabric", "deepspeed")


def unwrap(module: Any) -> Any:
    """The module inside of all wrappers; a module that is no wrapper itself."""
    for _ in range(100):
        kind = type(module)
        name = WRAPPERS.get(kind.__name__)
        if name is None or kind.__module__.partition(".")[0] not in LIBRARIES:
            break
        inner = (vars(module).get("_modules") or {}).get(name)
        if inner is None:
            break
        module = inner
    return module


class ModuleTrees:
    """Finds the outermost module around another one. It keeps nothing alive and calls nothing of any module."""

    def __init__(self, torch: Any) -> None:
        self._base = torch.nn.Module
        self._searches = 0
        self._spent = 0

    def find_whole(self, module: Any) -> Any:
        """The outermost module that contains `module`; None where there is none, or no time left to search."""
        if self._searches >= MOST_SEARCHES or self._spent >= LONGEST_NS:
            return None
        self._searches += 1
        begin = thread_now()
        parents = self._find_parents()
        self._spent += thread_now() - begin
        whole, seen = module, {id(module)}
        while id(whole) in parents:
            whole = parents[id(whole)]
            if id(whole) in seen:
                return None
            seen.add(id(whole))
        return whole if whole is not module else None

    def _find_parents(self) -> dict:
        """The parent of each module, by the module's identity; of several parents the one with most children."""
        base = self._base
        kinds: dict = {}
        parents: dict = {}
        for thing in gc.get_objects():
            kind = type(thing)
            is_module = kinds.get(kind)
            if is_module is None:
                is_module = kinds[kind] = issubclass(kind, base)
            if not is_module:
                continue
            # From its dictionary: a module under construction has no parts yet, and may define `__getattr__`.
            parts = vars(thing).get("_modules")
            for part in tuple(parts.values()) if isinstance(parts, dict) else ():
                if part is None:
                    continue
                parent = parents.get(id(part))
                if parent is None or len(vars(parent)["_modules"]) < len(parts):
                    parents[id(part)] = thing
        return parents
