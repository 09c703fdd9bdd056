"""How the runs of the corpus were made: `python tests/corpus/record.py FOLDER [NAME …]` makes them anew in a folder.

They were recorded once and are not recorded again: what they hold is what the answers are held against. A run that is
added later is recorded with its name alone and copied to `runs/`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
FEW = "--steps 5 --warmup 1 --redact --threads 1"
OF_RANKS = "--train --steps 5 --warmup 1 --redact"

WORKLOADS = {
    "ops": f"run ops --size 64KiB {FEW}",
    "mlp-inference": f"run mlp --layers 32-64-8 --batch 16 {FEW}",
    "mlp-train": f"run mlp --layers 32-64-8 --batch 16 --train {FEW}",
    "mlp-repeated": "run mlp --layers 32-64-8 --batch 16 --train --repeat 3 --steps 5 --warmup 1 --threads 1 --redact",
    "mlp-two-threads": "run mlp --layers 256-512-8 --batch 64 --train --steps 8 --warmup 1 --redact",
    "cnn-train": f"run cnn --train --batch 4 {FEW}",
    "cnn-bfloat16": f"run cnn --train --batch 4 --precision bfloat16 {FEW}",
    "cnn-channels-last": f"run cnn --batch 4 --channels-last {FEW}",
    "cnn-callgrind": f"run cnn --batch 1 --probe callgrind {FEW}",
    "cnn-os": f"run cnn --train --batch 4 --probe os {FEW}",
    "cnn-energy-model": f"run cnn --train --batch 4 --probe energy-model:cpu=20..95 {FEW}",
    "cnn-no-sensor": f"run cnn --batch 4 --probe energy --probe pmu {FEW}",
    "cnn-epochs": "run cnn --train --batch 8 --image 28x28 --channels 1 --classes 9 --data drawn --epochs 2 "
    "--images 12 --threads 1 --redact",
    "cnn-tried": f"run cnn --train --batch 2 --try {FEW}",
    "resnet18-train": "run resnet18 --train --batch 2 --image 32x32 --steps 3 --warmup 1 --redact",
    "lstm-train": f"run lstm --train --batch 4 {FEW}",
    "transformer-train": f"run transformer --train --batch 2 {FEW}",
    "transformer-generate": f"run transformer --batch 2 {FEW}",
    "dlrm-inference": f"run dlrm --batch 8 {FEW}",
    "stress-cache": f"run stress-cache {FEW}",
    "own-model": f"run programs/own_model.py:build --input 2x3x16x16 --train {FEW}",
    "tensorflow-cnn": f"run cnn --framework tensorflow --train --batch 4 {FEW}",
    "jax-cnn": f"run cnn --framework jax --train --batch 4 {FEW}",
    "pytensor-mlp": f"run mlp --framework pytensor --layers 32-64-8 --train --batch 16 {FEW}",
}
PROGRAMS = {
    "program-train": "run --redact -- PYTHON programs/train.py",
    "program-lengths": "run --redact -- PYTHON programs/lengths.py",
    "program-children": "run --redact -- PYTHON programs/children.py",
    "program-failing": "run --redact -- PYTHON programs/failing.py",
    "program-waiting": "run --redact -- PYTHON programs/waiting.py",
    "program-by-hand": "run --redact -- PYTHON programs/by_hand.py",
    "program-no-network": "run --redact -- PYTHON programs/no_network.py",
    "program-interval": "run --redact --interval 100ms --probe os -- PYTHON programs/waiting.py",
    "program-max-time": "run --redact --max-time 0.2 -- PYTHON programs/waiting.py",
    "program-energy-model": "run --redact --probe energy-model:cpu=20..95 -- PYTHON programs/train.py",
    "program-jax": "run --redact -- PYTHON programs/jax_program.py",
    "program-keras": "run --redact -- PYTHON programs/keras_program.py",
    "program-ranks": "run --redact -- PYTHON -m torch.distributed.run --nproc-per-node 2 programs/ranks.py",
}
RANKS = {
    "ranks-ddp": f"run mlp --layers 32-64-8 --batch 16 --on ddp=cpu/1+cpu/1 {OF_RANKS}",
    "ranks-pipeline": f"run cnn --batch 8 --on pipeline=cpu/1+cpu/1 {OF_RANKS}",
    "ranks-localsgd": f"run mlp --layers 32-64-8 --batch 16 --on localsgd=cpu/1+cpu/1 {OF_RANKS}",
    "ranks-hybrid": f"run mlp --layers 32-64-8 --batch 16 --on hybrid=cpu/1+cpu/1 {OF_RANKS}",
    "ranks-mirrored": "run mlp --framework tensorflow --layers 32-64-8 --batch 16 --on mirrored=cpu/1+cpu/1 "
    f"{OF_RANKS}",
}
SEVERAL = {
    "corun-two": "corun 'mlp --layers 32-64-8 --batch 16' stress-bandwidth --cores 0,1 --seconds 0.5 --repeat 2",
    "corun-command": "corun 'cmd:PYTHON programs/no_network.py' stress-cache --cores 0,1 --seconds 1 --repeat 1",
    "serving-single": "serve mlp --layers 32-64-8 --queries 200 --threads 1 --redact",
    "serving-rate": "serve mlp --layers 32-64-8 --scenario server --qps 200 --queries 400 --latency-bound 10ms "
    "--max-batch 4 --batch-wait 1ms --threads 1 --redact",
    "serving-found": "serve cnn --scenario server --find-qps --latency-bound 50ms --seconds 1 --threads 1 --redact",
    "serving-offline": "serve mlp --layers 32-64-8 --scenario offline --queries 500 --threads 1 --redact "
    "--probe energy-model:cpu=20..95",
    "energy-command": "energy --redact --model cpu=20..95+ram=4..12 --interval 50ms --idle 0 "
    "-- PYTHON programs/no_network.py",
}
SIMULATED = {
    "sim-tpu": "run mlp --layers 32-64-8 --batch 4 --on sim:tpu-16x16 --redact",
    "sim-maeri": "run mlp --layers 32-64-8 --batch 4 --on sim:maeri-256 --redact",
    "sim-sigma": "run mlp --layers 32-64-8 --batch 4 --on sim:sigma-128 --redact",
    "sim-magma": "run mlp --layers 32-64-8 --batch 4 --on sim:magma-128 --redact",
    "sim-memory": "run cnn --batch 1 --on sim:tpu-16x16 --set clock_GHz=1 --set memory.buffer_KiB=64 "
    "--set memory.dram=hbm2 --redact",
    "sim-hybrid": "run dlrm --batch 2 --on sim:dlrm-hybrid --mapping best --redact",
    "sim-and-cpu": f"run mlp --layers 32-64-8 --batch 4 --on sim:tpu-16x16 --on cpu {FEW}",
    "explored": "explore mlp --layers 32-64-8 --batch 4 --on sim:tpu-16x16 --vary rows,columns=8,16,32 --vary "
    "clock_GHz=0.5,1",
    "searched": "explore mlp --layers 32-64-8 --batch 4 --vary multipliers=64..512*2 "
    "--vary dn_bw=16..256*2 --search 30%",
}
IMPORTED = {
    "import-kineto": "import DATA/gpu/kineto/resnet18.json.gz",
    "import-waits": "import DATA/gpu/kineto/waits.json.gz",
    "import-streams": "import DATA/gpu/kineto/streams.json.gz",
    "import-ranks": "import DATA/ranks/rank0.json.gz DATA/ranks/rank1.json.gz DATA/ranks/rank2.json.gz "
    "DATA/ranks/rank3.json.gz",
    "import-chrome": "import DATA/chrome/torch_compile.json",
    "import-keras": "import DATA/xplane/keras_fit.xplane.pb.gz",
    "import-jax": "import DATA/xplane/jax_marked.xplane.pb.gz",
    "import-jax-gpu": "import DATA/gpu/jax/h200.xplane.pb",
    "import-ncu": "import DATA/gpu/ncu/raw.csv",
    "import-ncu-details": "import DATA/gpu/ncu/details.csv",
    "import-perf": "import DATA/perf_stat/whole.json",
}
STUDIES = {"study-widths": "study studies/widths.toml", "study-meshes": "study studies/meshes.toml"}
COMMANDS = {**WORKLOADS, **PROGRAMS, **RANKS, **SEVERAL, **SIMULATED, **IMPORTED, **STUDIES}


DAMAGED = {
    "damaged-spans": ("mlp-train", "00000000da01", lambda run: _shorten(run / "spans.parquet")),
    "damaged-description": ("mlp-train", "00000000da02", lambda run: _shorten(run / "run.json")),
    "damaged-newer": (
        "mlp-train",
        "00000000da03",
        lambda run: _replace(run / "run.json", '"schema": 1', '"schema": 99'),
    ),
    "damaged-no-spans": ("cnn-train", "00000000da04", lambda run: (run / "spans.parquet").unlink()),
    "damaged-no-description": ("cnn-train", "00000000da05", lambda run: (run / "run.json").unlink()),
    "damaged-points": ("explored", "00000000da06", lambda run: _shorten(run / "points.parquet")),
}
"""Constructed: the run that is copied, the copy's id, and what is done to it."""


def damage(folder: Path) -> None:
    """Make the damaged runs of whole ones."""
    for name, (of, identity, break_run) in DAMAGED.items():
        (whole,) = (folder / "tags" / of).iterdir()
        (source,) = folder.glob(f"*-{whole.name}")
        copy = folder / f"{source.name.partition('-')[0]}-{identity}"
        shutil.copytree(source, copy)
        _replace(copy / "run.json", whole.name, identity)
        break_run(copy)
        (folder / "tags" / name).mkdir()
        (folder / "tags" / name / identity).touch()


def _shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def record(folder: Path, names: list[str]) -> None:
    """Carry out the commands of these names, or all; every run has its name as a tag."""
    environment = {**os.environ, "SONDA_HOME": str(folder)}
    for name in names or COMMANDS:
        words = shlex.split(COMMANDS[name].replace("PYTHON", sys.executable).replace("DATA", str(DATA)))
        at = words.index("--") if "--" in words else len(words)
        tagged = [*words[:at], *([] if words[0] == "study" else ["--tag", name]), *words[at:]]
        ended = subprocess.run([sys.executable, "-m", "sonda", *tagged], cwd=HERE, env=environment, capture_output=True)
        print(f"{name}: {ended.returncode}")
        if ended.returncode and name != "program-failing":
            print((ended.stdout + ended.stderr).decode()[-1500:])


if __name__ == "__main__":
    record(Path(sys.argv[1]).resolve(), sys.argv[2:])
