"""Child processes of a validation: started with a kind of work, answering with one JSON object."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sonda.probes.counters.perf_events import explain_refusal, paranoid_level
from sonda.record.errors import SondaError

LIMIT_S = 300.0


def ask_child(
    kind: str, request: Mapping[str, Any], before: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Let a child process do one kind of work, and give its answer; `before` are words in front of its command.

    Raises SondaError where it fails, takes too long, or the kernel refuses it a counter.
    """
    asked = msgspec.json.encode(request).decode()
    # -P: a file in the user's directory that is named like a module must not be imported.
    command = [*before, sys.executable, "-P", "-m", "sonda.probes.validation.microbenchmarks", kind, asked]
    variables = {**os.environ, "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0", **(environment or {})}
    try:
        done = subprocess.run(command, capture_output=True, env=variables, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise SondaError(f"the trial {kind} took more than {LIMIT_S:g} s", "stop other programs") from None
    except OSError as error:
        raise SondaError(f"the trial {kind} cannot be started: {error.strerror}", "check the installation") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise SondaError(f"the trial {kind} failed: {lines[-1][:200] if lines else done.returncode}", "")
    answer = dict(msgspec.json.decode(done.stdout))
    if "refused" in answer:
        raise SondaError(*explain_refusal(answer["refused"], paranoid_level(), False, None, kernel=True))
    return answer
