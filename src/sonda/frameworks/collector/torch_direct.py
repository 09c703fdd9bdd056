"""Modules that a program never calls: `layer.forward(x)` where others write `layer(x)`.

Only a program in which a backward comes and no module was called before it pays for this: the `forward` of every class
whose modules hold weights is watched from then on. A step later its layers are seen like those of any other program.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .torch_observer import TorchObserver

MOST_LOOKS = 3
"""Backwards without a forward at which modules are looked for: it takes as long as a look at every object."""


class DirectForwards:
    """Watches the `forward` of modules where a program calls nothing else."""

    def __init__(self, observer: TorchObserver) -> None:
        self.observer = observer
        self._looks = 0
        self._watched: set = set()

    def look(self) -> None:
        """A backward begins, and no forward with a graph was ever seen in this process."""
        if self._looks < MOST_LOOKS:
            self._looks += 1
            for owner in self._owners():
                if owner not in self._watched:
                    self._watched.add(owner)
                    self.observer.replace(owner, "forward", self._watch)

    def _owners(self) -> list:
        """The classes that define the forward of the modules that are alive, each once."""
        base = self.observer.torch.nn.Module
        kinds = {type(thing) for thing in gc.get_objects() if issubclass(type(thing), base)}
        owners = {next((owner for owner in kind.__mro__ if "forward" in vars(owner)), base) for kind in kinds}
        # What a compiler or a scripting made has a forward of its own for every module.
        made = ("torch.jit", "torch.fx")
        return [owner for owner in owners if owner is not base and not owner.__module__.startswith(made)]

    def _watch(self, original: Any) -> Any:
        layers, mine = self.observer.layers, self.observer.recorder.mine
        compiling = self.observer.torch.compiler.is_compiling
        code_of = layers.codes.get
        recorded = layers.wrap(original, self.observer.call_outermost)

        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(module, *args, **kwargs)
            stream = mine.stream
            running = stream.layers if stream is not None else ()
            # Called by the module itself, which was called, or by the forward of a class that inherits from this one.
            if running and running[-1] == code_of(id(module)):
                return original(module, *args, **kwargs)
            return recorded(module, *args, **kwargs)

        return forward
