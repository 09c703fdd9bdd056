"""Layers have the names that the program gave them, whatever a library puts around its network."""

from __future__ import annotations

from pathlib import Path

import pytest

from observed import Nursery, check_structure, seen

pytest.importorskip("torch")

BLOCKS = {"blocks.0", "blocks.1"}
INSIDE = {f"{block}.{layer}" for block in BLOCKS for layer in ("up", "down")}
NET = {"", "fc1", "fc2", *BLOCKS, *INSIDE}
OWN = {"", "module", *(f"module.{path}" for path in NET - {""})}
CASES = {
    "plain": NET,
    "ddp": NET,
    "data_parallel": NET,
    "redirected": NET,
    "checkpointed": NET,
    "compiled": {""},
    "compiled_ddp": {""},
    "blocks": NET - INSIDE,
    "own": OWN,
}


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


@pytest.mark.parametrize("kind", CASES)
def test_a_wrapper_is_no_layer_and_no_part_of_a_name(nursery: Nursery, tmp_path: Path, kind: str) -> None:
    """Five steps and one evaluation. The compiler makes the same graphs, observed or not."""
    bare = nursery.run("wrapped", kind, directory=tmp_path / "bare", observe=False)
    observed = nursery.run("wrapped", kind, directory=tmp_path / "observed", observe=True)
    assert bare.code == observed.code == 0, observed.output
    assert observed.output == bare.output
    assert observed.assembly is not None
    spans = observed.assembly.spans
    check_structure(spans)
    found = seen(spans)
    assert found.parts == [("train", 5), ("test", 1)]
    assert set(found.forward) == CASES[kind]
    assert found.forward[""] == 6, "the wrapper and what it wraps are one layer"
    types = {name for name, kind in zip(spans.words("name").decoded(), spans.words("kind").decoded(), strict=True)
             if kind == "layer"}  # fmt: skip
    assert types <= {"Net", "Held", "Linear", "Block", "ModuleList"}
