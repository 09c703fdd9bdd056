"""Every metric of the chips in Sonda's table, from NVIDIA's own database: `python metric_names.py OUT.json.gz`.

Needs the package nvidia-cuda-cupti and no GPU. A name's number has a bit for every chip that knows it, in the order of
`known_chips`; `kinds` has the names by kind. `passes` are those of the product's own sets on each chip.
"""

import gzip
import json
import sys
from importlib import metadata

from sonda.probes.ncu.chips import known_chips
from sonda.probes.ncu.metric_database import KINDS, PACKAGE, MetricDatabase

names: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
passes = {}
known = [chip.name for chip in known_chips().values()]
for bit, chip in enumerate(known_chips().values()):
    with MetricDatabase(chip.name) as database:
        for name, kind in database.names().items():
            names[kind][name] = names[kind].get(name, 0) | 1 << bit
        passes[chip.name] = [database.passes(chip.core.metrics), database.passes(chip.stalls.metrics)]
kinds = {kind: dict(sorted(found.items())) for kind, found in names.items()}
record = {"package": PACKAGE, "version": metadata.version(PACKAGE), "chips": known, "passes": passes, "kinds": kinds}
with open(sys.argv[1], "wb") as file:
    file.write(gzip.compress(json.dumps(record, indent=0).encode(), mtime=0))
