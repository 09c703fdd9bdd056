"""Paths of layers: where a module stands in the model, in the model's own words."""

from __future__ import annotations

from typing import Any


def layer_paths(definitions: list[dict[str, Any]]) -> dict[int, str]:
    """The path of every layer's definition, by its number.

    A program with one model keeps the model's own paths, '' being the model itself. With several, each path begins with
    its model's class (`Generator.net.0`), numbered where two share it (`Critic`, `Critic#2`). A module outside a model,
    such as a loss, has its class as path; one that its caller does not list stands under its caller.
    """
    layers = {one["id"]: one for one in definitions if one.get("kind") == "layer"}
    prefixes = _prefixes(layers)
    paths: dict[int, str] = {}

    def resolve(number: int) -> str:
        if number not in paths:
            layer = layers[number]
            if "inside" in layer:
                above = resolve(layer["inside"]) if layer["inside"] in layers else ""
            else:
                above = prefixes[layer["root"]]
            # A compiled model holds the model itself under this name: they are one.
            path = ".".join(part for part in layer["path"].split(".") if part != "_orig_mod")
            paths[number] = ".".join(part for part in (above, path) if part)
        return paths[number]

    for number in layers:
        resolve(number)
    return paths


def _prefixes(layers: dict[int, dict[str, Any]]) -> dict[int, str]:
    names = {layer["root"]: layer["root_name"] for layer in layers.values() if "root" in layer}
    models = [root for root, name in names.items() if not name.endswith("Loss")]
    if len(models) == 1:
        return {root: "" if root in models else name for root, name in names.items()}
    prefixes: dict[int, str] = {}
    used: dict[str, int] = {}
    for root, name in sorted(names.items()):
        used[name] = used.get(name, 0) + 1
        prefixes[root] = name if used[name] == 1 else f"{name}#{used[name]}"
    return prefixes
