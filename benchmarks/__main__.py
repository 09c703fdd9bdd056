"""Runs the benchmarks that are named, or all; the exit code is 1 when a bar is missed."""

from __future__ import annotations

import sys

from benchmarks import (
    auto,
    cluster,
    counters,
    deterministic,
    dlrm_study,
    energy,
    explore,
    gpu,
    growth,
    hybrid,
    importing,
    keras_overhead,
    mapping,
    observing,
    overhead,
    ranks,
    resnet50,
    scalesim_peer,
    spans,
    startup,
    stonne,
    store,
    xplane,
)
from benchmarks.bar import Bar, machine_line
from benchmarks.verdicts import score as verdicts

ALL = {
    "cluster": cluster.run,
    "auto": auto.run,
    "counters": counters.run,
    "deterministic": deterministic.run,
    "dlrm_study": dlrm_study.run,
    "energy": energy.run,
    "explore": explore.run,
    "gpu": gpu.run,
    "growth": growth.run,
    "hybrid": hybrid.run,
    "hybrid_auto": hybrid.run_auto,
    "hybrid_follow": hybrid.run_follow,
    "importing": importing.run,
    "keras_overhead": keras_overhead.run,
    "mapping": mapping.run,
    "observing": observing.run,
    "observing_programs": observing.run_programs,
    "overhead": overhead.run,
    "ranks": ranks.run,
    "resnet50": resnet50.run,
    "scalesim": scalesim_peer.run,
    "spans": spans.run,
    "startup": startup.run,
    "stonne": stonne.run,
    "store": store.run,
    "verdicts": verdicts.run,
    "xplane": xplane.run,
}


def main() -> int:
    names = sys.argv[1:] or list(ALL)
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(ALL)}", file=sys.stderr)
        return 2
    print(machine_line())
    bars: list[Bar] = []
    for name in names:
        print(f"\n---- {name} ----")
        bars += ALL[name]()
    print("\n---- bars ----")
    for bar in bars:
        print(bar)
    return 1 if any(bar.state == "FAIL" for bar in bars) else 0


if __name__ == "__main__":
    sys.exit(main())
