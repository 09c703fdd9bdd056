"""Trees of modules: which module lists another one, also where the program never calls it.

A program may call methods of its model (`model.encode(x)`), or the parts of a model one by one. The names of these
parts are those that the model gives them, so the model has to be found: among all modules that are alive.
"""

from __future__ import annotations

import gc
from time import thread_time_ns as ran
from typing import Any

MOST_SEARCHES = 32
LONGEST_NS = 200_000_000
"""ns of processor time that searching may take in all: it looks at every object of the program once, some 100 ns
each."""
WRAPPERS = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "_FabricModule": "_original_module",
    "DeepSpeedEngine": "module",
}
"""Classes of libraries whose modules stand for one other module, and the name under which they list it."""
LIBRARIES = ("torch", "lightning", "lightning_fabric", "deepspeed")


def unwrapped(module: Any) -> Any:
    """The module that a wrapper stands for, through all wrappers around it; any other module itself."""
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
    """Finds the largest module that lists another one. Nothing is kept alive, and no module is asked to do anything."""

    def __init__(self, torch: Any) -> None:
        self._base = torch.nn.Module
        self._searches = 0
        self._spent = 0

    def whole_of(self, module: Any) -> Any:
        """The outermost module that has `module` among its parts; None where there is none, or no time to look."""
        if self._searches >= MOST_SEARCHES or self._spent >= LONGEST_NS:
            return None
        self._searches += 1
        begin = ran()
        holders = self._holders()
        self._spent += ran() - begin
        whole, seen = module, {id(module)}
        while id(whole) in holders:
            whole = holders[id(whole)]
            if id(whole) in seen:
                return None
            seen.add(id(whole))
        return whole if whole is not module else None

    def _holders(self) -> dict:
        """By the identity of a module, the module that lists it; of several the one that is made of most."""
        base = self._base
        kinds: dict = {}
        holders: dict = {}
        for thing in gc.get_objects():
            kind = type(thing)
            is_module = kinds.get(kind)
            if is_module is None:
                is_module = kinds[kind] = issubclass(kind, base)
            if not is_module:
                continue
            # Asked of the dictionary: a module half made has no parts yet, and may define what asking for one does.
            parts = vars(thing).get("_modules")
            for part in tuple(parts.values()) if isinstance(parts, dict) else ():
                if part is None:
                    continue
                other = holders.get(id(part))
                if other is None or len(vars(other)["_modules"]) < len(parts):
                    holders[id(part)] = thing
        return holders
