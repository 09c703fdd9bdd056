"""Paths of layers: the place of each module in its model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class ModulePlace(NamedTuple):
    """The place of a module: the number of its outermost module, and the path in it ('' is that module itself)."""

    root: int
    path: str


class LayerPlaces:
    """Places and paths of the layers that a process defined.

    A module may have been called before the module that contains it, as in a dry run. `facts` say which outermost
    modules turned out to be parts of others.
    """

    def __init__(self, definitions: list[dict[str, Any]], facts: Iterable[dict[str, Any]] = ()) -> None:
        self._layers = {layer["id"]: layer for layer in definitions if layer.get("kind") == "layer"}
        self._absorbed = {
            fact["absorbed"]: ModulePlace(fact["into"], fact["path"]) for fact in facts if "absorbed" in fact
        }
        self._sizes: dict[int, int] = {}
        for layer in self._layers.values():
            if "root" in layer and layer.get("direction") != "backward":
                self._sizes[layer["root"]] = self._sizes.get(layer["root"], 0) + 1
        self._prefixes = self._name_models()

    def place(self, number: int) -> ModulePlace | None:
        """The place of the layer with this definition; None where its caller does not list it as a part."""
        layer = self._layers.get(number)
        return self._resolve(layer["root"], layer["path"]) if layer is not None and "root" in layer else None

    def is_single(self, root: int) -> bool:
        """Whether an outermost module is a layer without parts."""
        return self._sizes.get(root, 0) == 1

    def paths(self) -> dict[int, str]:
        """The path of every layer's definition, by its number.

        A program with one model keeps the model's own paths, '' being the model itself. With several, each path begins
        with its model's class (`Generator.net.0`), numbered where two share it (`Critic`, `Critic#2`). A module outside
        a model, such as a loss, has its class as path; one that its caller does not list stands under its caller.
        """
        paths: dict[int, str] = {}
        for number in self._layers:
            chain = [number]
            while chain[-1] not in paths:
                layer = self._layers[chain[-1]]
                if layer.get("inside") not in self._layers:
                    above, own = self._above(layer)
                    paths[chain[-1]] = _join(above, own)
                else:
                    chain.append(layer["inside"])
            # From the outermost inwards: callers may be nested deeper than Python calls can be.
            for inner in reversed(chain[:-1]):
                layer = self._layers[inner]
                paths[inner] = _join(paths[layer["inside"]], layer["path"])
        return paths

    def _above(self, layer: dict[str, Any]) -> tuple[str, str]:
        if "root" not in layer:
            return "", layer["path"]
        root, path = self._resolve(layer["root"], layer["path"])
        return self._prefixes[root], path

    def _resolve(self, root: int, path: str) -> ModulePlace:
        seen = {root}
        while root in self._absorbed and self._absorbed[root].root not in seen:
            root, above = self._absorbed[root]
            seen.add(root)
            path = ".".join(part for part in (above, path) if part)
        return ModulePlace(root, path)

    def _name_models(self) -> dict[int, str]:
        """The prefix of the paths of each outermost module."""
        names: dict[int, tuple[str, bool]] = {}
        for layer in self._layers.values():
            if "root" in layer:
                _, loss = names.get(layer["root"], ("", False))
                # A class named `...Loss` may hold a network: its definition then says that it is no loss.
                named = layer["root_name"].endswith("Loss")
                loss = loss or (layer["path"] == "" and bool(layer.get("loss", named)))
                names[layer["root"]] = (layer["root_name"], loss)
        outermost = {root: about for root, about in names.items() if self._resolve(root, "").root == root}
        models = [root for root, (_, loss) in outermost.items() if not loss]
        if len(models) == 1:
            return {root: "" if root in models else name for root, (name, _) in outermost.items()}
        prefixes: dict[int, str] = {}
        used: dict[str, int] = {}
        for root, (name, _) in sorted(outermost.items()):
            used[name] = used.get(name, 0) + 1
            prefixes[root] = name if used[name] == 1 else f"{name}#{used[name]}"
        return prefixes


def _join(above: str, path: str) -> str:
    return ".".join(part for part in (above, path) if part)
