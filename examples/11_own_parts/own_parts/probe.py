"""A probe of one's own: what the whole machine does meanwhile, `sonda run mlp --probe machine`."""

from pathlib import Path

from sonda.record.run import ProbeState
from sonda.record.samples import Reading

STAT, LOAD = Path("/proc/stat"), Path("/proc/loadavg")


class Machine:
    """Context switches of all programs, a counter, and the load, a level; `machine:1s` reads them every second."""

    def __init__(self, options: list[str]) -> None:
        self.interval = float(options[0].removesuffix("s")) if options else 0.1

    def state(self) -> ProbeState:
        if not STAT.exists():
            return ProbeState("machine", "missing", "there is no /proc/stat", "run on Linux")
        return ProbeState("machine", "ok")

    def read(self) -> list[Reading]:
        switches = next(line for line in STAT.read_text().splitlines() if line.startswith("ctxt")).split()[1]
        return [
            Reading("context switches", int(switches), "1", source="counted", total=True),
            Reading("load", float(LOAD.read_text().split()[0]), "threads"),
        ]
