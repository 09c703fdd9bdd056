"""Accelerators of one's own, `sonda run mlp --on sim:small-mesh`: a name leads to a description."""

from pathlib import Path

SMALL_MESH = Path(__file__).with_name("small_mesh.toml")
IDEAL_256 = Path(__file__).with_name("ideal_256.toml")
