"""The command line in this process: as a user meets it, without the cost of a process for each case."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from sonda import cli


@dataclass(frozen=True)
class Done:
    """What a finished process would have left."""

    returncode: int
    stdout: str
    stderr: str


def run_command(directory: Path, *words: str, home: Path | None = None) -> Done:
    """`sonda WORDS` in a directory, with a store of its own."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for name in ("stdout", "stderr")}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.setenv("SONDA_HOME", str(home or directory / "store"))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(sys, "argv", ["sonda", *words])
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    code = ended.value.code
    texts = [stream.buffer.getvalue().decode() for stream in streams.values()]  # type: ignore[attr-defined]
    return Done(code if isinstance(code, int) else 0, *texts)
