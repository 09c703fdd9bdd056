"""An instrument of one's own: how long the same takes a second time, `sonda run mlp --probe warm`."""

import os
import subprocess
from time import perf_counter

from sonda.record.run import ProbeState
from sonda.record.samples import Sample
from sonda.targets.instrument import AGAIN, Contribution, EndedRun, Instrument, Rerun


class Warm(Instrument):
    """Starts the program once more, unobserved, when its files have been read from the disk already."""

    needs = frozenset({AGAIN})

    def __init__(self, options: list[str]) -> None:
        self.limit = float(options[0].removesuffix("s")) if options else 600.0

    def collect(self, ended: EndedRun) -> Contribution:
        with ended.plan.store.scratch() as directory:
            command = ended.again(Rerun(directory, observed=False))
            begin = perf_counter()
            try:
                subprocess.run(command.words, input=command.given or b"", stdout=subprocess.DEVNULL, check=True,
                               env={**os.environ, **command.environment}, timeout=self.limit)  # fmt: skip
            except (OSError, subprocess.SubprocessError) as error:
                return Contribution(states=[ProbeState("warm", "dead", str(error), "give it longer: warm:600s")])
            second = perf_counter() - begin
        first = (ended.observation.end - ended.observation.begin) * 1e-9
        return Contribution(
            target={"warm": {"first_s": first, "second_s": second}},
            states=[ProbeState("warm", "ok")],
            notes=[f"a second run took {second:.3g} s, the observed one {first:.3g} s"],
            samples=[Sample(0, "warm: second run", second, "s", "measured")],
        )
