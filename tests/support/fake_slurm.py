"""A stand-in for Slurm: commands that take what the real ones take, and run jobs at once as processes of this machine.

`sbatch` refuses options that the real one does not have, and leaves every script it was given as `job-NUMBER.sh`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from places import SUPPORT

SBATCH = r"""#!/bin/sh
for last; do :; done
if [ "$1" = "--test-only" ]; then
    last=FOLDER/asked
    cat >"$last"
fi
while read -r first option; do
    [ "$first" = "#SBATCH" ] || continue
    case "${option%%[= ]*}" in
        -J|-p|-A|-n|-t|-o|-e|-N|--job-name|--partition|--account|--ntasks|--time|--output|--error|--nodes) ;;
        --cpus-per-task|--mem|--exclusive|--constraint|--ntasks-per-node|--gpus-per-node|--open-mode) ;;
        --signal|--wckey) ;;
        *) echo "sbatch: unrecognized option '$option'" >&2; exit 1 ;;
    esac
done < "$last"
[ "$1" = "--test-only" ] && { echo "sbatch: Job 4242 to start at 2026-11-15T12:00:00" >&2; exit 0; }
number=$((4242 + $(ls FOLDER/job-*.sh 2>/dev/null | wc -l)))
cp "$last" FOLDER/job-$number.sh
SLURM_JOB_ID=$number SLURM_JOB_NODELIST=localhost,127.0.0.1 SLURM_JOB_NUM_NODES=2 \
    setsid sh FOLDER/job-$number.sh >FOLDER/job-$number.log 2>&1 &
echo $! >FOLDER/job-$number.pid
echo "Submitted batch job $number"
"""
SRUN = r"""#!/bin/sh
while [ "${1#--}" != "$1" ]; do
    case "$1" in
        --output) output=$2; shift 2 ;;
        --error) error=$2; shift 2 ;;
        *) shift ;;
    esac
done
for task in 0 1; do
    out=$(echo "$output" | sed "s/%j/$SLURM_JOB_ID/; s/%t/$task/")
    err=$(echo "$error" | sed "s/%j/$SLURM_JOB_ID/; s/%t/$task/")
    SLURM_PROCID=$task SLURM_NODEID=$task SLURM_LOCALID=0 SLURM_NTASKS=2 sh -c "$*" >"$out" 2>"$err" &
done
wait
"""
SACCT = r"""#!/bin/sh
echo "JobID|State|NodeList"
for file in FOLDER/job-*.pid; do
    number=$(basename "$file" .pid)
    kill -0 "$(cat "$file")" 2>/dev/null && state=RUNNING || state=COMPLETED
    echo "${number#job-}|$state|localhost,127.0.0.1"
done
"""
SCANCEL = r"""#!/bin/sh
kill -- -"$(cat FOLDER/job-$1.pid)"
"""


def fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the commands into `folder` and into the path."""
    for name, text in {"sbatch": SBATCH, "srun": SRUN, "sacct": SACCT, "scancel": SCANCEL}.items():
        (folder / name).write_text(text.replace("FOLDER", str(folder)))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    monkeypatch.setenv("TMPDIR", str(folder))  # jobs wait for nobody who measures on this machine


def directives(script: Path) -> set[str]:
    """What a script asks Slurm for."""
    lines = script.read_text().splitlines()
    return {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")}
