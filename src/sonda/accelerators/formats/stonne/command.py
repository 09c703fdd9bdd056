"""STONNE's command line: the run that it stands for, with STONNE's defaults for what it does not say.

Defaults are those of the reference's main program. Sparse operands are not given on a command line but drawn, so a run
holds what they are drawn with.
"""

from __future__ import annotations

import re
from typing import Any

from sonda.accelerators.description.hardware import DATAFLOWS

COMMANDS = ("CONV", "FC", "DenseGEMM", "SparseGEMM", "SparseDense")
PRODUCT = {"M": 1, "N": 1, "K": 3, "T_M": 1, "T_N": 1, "T_K": 1}
DEFAULTS: dict[str, dict[str, int]] = {
    "CONV": {
        "R": 1, "S": 3, "C": 1, "K": 1, "G": 1, "N": 1, "X": 1, "Y": 3, "strides": 1,
        "T_R": 1, "T_S": 3, "T_C": 1, "T_K": 1, "T_G": 1, "T_N": 1, "T_X_": 1, "T_Y_": 1,
    },
    "FC": PRODUCT,
    "DenseGEMM": PRODUCT,
    "SparseGEMM": {"M": 4, "N": 4, "K": 8, "MK_sparsity": 20, "KN_sparsity": 20, "optimize": 0},
    "SparseDense": {"M": 32, "N": 16, "K": 32, "MK_sparsity": 70, "T_N": 4, "T_K": 8, "accumulation_buffer": 1},
}  # fmt: skip
NO_GENERATOR = ("none", "0")
"""Values of -generate_tile with which the tile is the given one after all."""
WHOLE = re.compile(r"-?\d+")


def parse_command(argv: str | list[str]) -> dict[str, Any]:
    """`mode`, `config`, `dims`, `tile`, `options` and `sparsity` of a run; the tile is None where STONNE chooses it.

    Raises ValueError where the words are no command of STONNE's.
    """
    words = argv.split() if isinstance(argv, str) else [str(word) for word in argv]
    given = dict(word.lstrip("-").partition("=")[::2] for word in words)
    command = next((name for name in COMMANDS if name in given), None)
    if command is None:
        raise ValueError(f"the command line has none of -{', -'.join(COMMANDS)}")
    numbers = DEFAULTS[command] | {key: int(value) for key, value in given.items() if WHOLE.fullmatch(value)}
    chosen = given.get("generate_tile", NO_GENERATOR[0]).lower() not in NO_GENERATOR
    options: dict[str, Any] = {"dataflow": given.get("dataflow", DATAFLOWS[0])}
    options |= {key: given[key] for key in ("generate_tile", "generator") if key in given}
    options |= {key: numbers[key] for key in ("optimize",) if key in numbers}
    return {
        "mode": "TPU" if given.get("mem_ctrl") == "TPU_OS_DENSE" else command,
        "config": numbers | {"rn_type": given.get("rn_type", "ASNETWORK")},
        "dims": numbers,
        "tile": None if chosen else numbers,
        "options": options,
        "sparsity": {"MK": numbers.get("MK_sparsity", 0), "KN": numbers.get("KN_sparsity", 0)},
    }
