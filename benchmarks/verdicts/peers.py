"""What peers advise on planted programs: `python -m benchmarks.verdicts.peers [NAME …]`.

Peers are torch.profiler's pattern matcher and TraceML, which need not be installed: a peer that is missing is told in
one line. TraceML is looked for in the environment variable SONDA_TRACEML (its command), then on the PATH.
A peer is right where any of its advice means the planted cause, whatever else it says; a good program is left in peace
where no advice means any cause.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.verdicts.measure import LONGEST, compete
from benchmarks.verdicts.truth import FOLDER, GOOD, Truth, read_truths

LAUNCHER = FOLDER / "peer_launcher.py"
COMMAND = "SONDA_TRACEML"
TORCH, TRACEML = "torch.profiler", "TraceML"
SLOWER = 3
"""A program may take so many times as long under a peer as a bare one before it is given up."""
PATIENCE = 30.0
"""s that a peer may take to end."""
SUSPECTS = frozenset({"logging", "checkpointing", "validation", "waiting", "transfer"})
"""What TraceML names of a large residual: "Inspect work outside traced phases, CPU stalls, logging, checkpointing,
validation, or unobserved transfers." """
MEANINGS: dict[str, dict[str, frozenset[str]]] = {
    TORCH: {  # names of patterns in torch.profiler._pattern_matcher
        "Extra CUDA Copy Pattern": frozenset({"transfer", "copies"}),
        "FP32 MatMul Pattern": frozenset({"slow_matmul_mode"}),
        "Optimizer Single Tensor Pattern": frozenset({"optimizer"}),
        "Synchronized DataLoader Pattern": frozenset({"input"}),
        "Gradient Set To Zero Instead of None Pattern": frozenset({"optimizer"}),
        "Enabling Bias in Conv2d Followed By BatchNorm Pattern": frozenset({"copies"}),
        "Matrix Multiplication Dimension Not Aligned Pattern": frozenset({"slow_matmul_mode"}),
    },
    TRACEML: {  # kinds of `primary_diagnosis` in final_summary.json
        "INPUT_BOUND": frozenset({"input"}),
        "H2D_BOUND": frozenset({"transfer"}),
        "RESIDUAL_HEAVY": SUSPECTS,
        "COMPUTE_BOUND": frozenset({GOOD, "dominating_layer"}),
        "NO_CLEAR_PERFORMANCE_BOTTLENECK": frozenset({GOOD}),
        "STRAGGLER": frozenset({"imbalance"}),
        "INPUT_STRAGGLER": frozenset({"imbalance", "input"}),
        "COMPUTE_STRAGGLER": frozenset({"imbalance"}),
        "H2D_STRAGGLER": frozenset({"imbalance", "transfer"}),
        "LOW_GPU_UTILIZATION_UNEXPLAINED": frozenset(),
        "INSUFFICIENT_STEP_TIME_DATA": frozenset(),
    },
}
"""By peer, what its advice means in our causes; empty: it says that something is the matter, and not what."""


@dataclass(frozen=True)
class Advice:
    """What a peer says of one program: the names of its advice, or why there is none."""

    names: tuple[str, ...]
    failure: str = ""

    def is_right(self, peer: str, truth: Truth) -> bool:
        """Whether any of it means the planted cause; of a good program, whether nothing is advised."""
        meant = frozenset[str]().union(*(MEANINGS[peer].get(name, frozenset()) for name in self.names))
        if truth.cause == GOOD:
            return not self.failure and (not meant or GOOD in meant)
        return bool(meant & truth.accepted)

    def __str__(self) -> str:
        return self.failure or "; ".join(self.names) or "nothing"


def find_traceml() -> str:
    """The command of TraceML; '' where there is none."""
    return os.environ.get(COMMAND, "") or shutil.which("traceml") or ""


def ask_torch(truth: Truth, folder: Path) -> Advice:
    """The anti-patterns that torch.profiler finds in the first steps."""
    failure = _run_program([sys.executable, str(LAUNCHER), TORCH, str(folder), *_program_words(truth)], truth)
    written = folder / "advice.json"
    if not written.exists():
        return Advice((), failure or "no answer")
    return Advice(tuple(json.loads(written.read_text())))


def ask_traceml(truth: Truth, folder: Path) -> Advice:
    """The primary diagnosis of TraceML's final summary."""
    words = [find_traceml(), "run", str(LAUNCHER), "--logs-dir", str(folder), "--run-name", "run",
             "--aggregator-port", str(_find_port()), "--master-port", str(_find_port()), "--args",
             TRACEML, str(folder), *_program_words(truth)]  # fmt: skip
    failure = _run_program(words, truth)
    written = folder / "run" / "final_summary.json"
    if failure or not written.exists():
        return Advice((), failure or "no answer")
    diagnosis = json.loads(written.read_text()).get("primary_diagnosis") or {}
    return Advice((str(diagnosis.get("kind", "nothing")),))


PEERS = {TORCH: ask_torch, TRACEML: ask_traceml}


def _find_port() -> int:
    """A port that nobody uses: what a run before has left behind must not fail this one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _program_words(truth: Truth) -> list[str]:
    return [truth.program.name, *truth.arguments]


def _run_program(words: Sequence[str], truth: Truth) -> str:
    """Run to the end; why it failed, in one line."""
    with compete(truth.competitors), tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            words, cwd=truth.program.parent, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(SLOWER * LONGEST)
        except subprocess.TimeoutExpired:
            _end(process)
            return f"took longer than {SLOWER * LONGEST:g} s"
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
        return f"fails: {lines[-1][:100] if lines else code}" if code else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a peer with what it has started: TraceML ends its own processes when it is asked to."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def _empty_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sonda-peers-") as folder:
        yield Path(folder)


def compare_peers(truths: Sequence[Truth], peers: Sequence[str]) -> None:
    """Ask every peer about every program; print what each says, and the score."""
    right: dict[str, list[tuple[Truth, bool]]] = {peer: [] for peer in peers}
    for truth in truths:
        for peer in peers:
            with _empty_folder() as folder:
                advice = PEERS[peer](truth, folder)
            correct = advice.is_right(peer, truth)
            right[peer].append((truth, correct))
            print(f"{'right' if correct else 'WRONG'}  {truth.name:32} {truth.cause:20} {peer:15} {advice}", flush=True)
    print()
    for peer, judged in right.items():
        planted = [correct for truth, correct in judged if truth.cause != GOOD]
        good = [correct for truth, correct in judged if truth.cause == GOOD]
        print(f"{peer}: cause among its advice {sum(planted)} of {len(planted)}, in peace {sum(good)} of {len(good)}")


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options.add_argument("--peer", action="append", choices=list(PEERS), help="this one only; all without")
    options.add_argument("names", nargs="*", help="domain/name, or a cause; all without")
    given = options.parse_args()
    peers = list(given.peer or PEERS)
    if TRACEML in peers and not find_traceml():
        print(f"TraceML is missing: pip install traceml-ai, or set ${COMMAND} to its command", file=sys.stderr)
        peers.remove(TRACEML)
    truths = [
        truth
        for truth in read_truths(given.device)
        if not given.names or truth.name in given.names or truth.cause in given.names
    ]
    compare_peers(truths, peers)


if __name__ == "__main__":
    main()
