"""Work that other processes do in tests of executors: found by its name, so it stands in a module of its own."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import msgspec

from sonda.record.errors import SondaError


def square(number: int) -> int:
    return number * number


def refuse(number: int) -> int:
    raise SondaError(f"{number} cannot be", "give another")


def fail(number: int) -> int:
    raise ValueError(f"number {number}")


def die(number: int) -> int:
    """Dies of 3."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_once(order: tuple[int, str]) -> int:
    """Dies of 3 the first time: the file says that it was there."""
    number, file = order
    if number == 3 and not Path(file).exists():
        Path(file).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def full(number: int) -> int:
    raise OSError(number, os.strerror(number), "spans.parquet")


def when(order: tuple[str, float]) -> tuple[str, float, float, int]:
    """Where it ran, from when to when, and in which process."""
    from sonda.record.files.partial import node_name

    begin = time.monotonic()  # of the machine, the same for all of its processes
    time.sleep(order[1])
    return node_name(), begin, time.monotonic(), os.getpid()


def together(order: tuple[str, int]) -> int:
    """Waits until it is begun in that many processes, which note it in a folder."""
    folder, count = Path(order[0]), order[1]
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < count:
        time.sleep(0.02)
    return os.getpid()


def until(path: str) -> str:
    """Waits until there is such a file."""
    while not Path(path).exists():
        time.sleep(0.02)
    return path


def append_and_wait(order: tuple[str, float]) -> int:
    """Notes that it began, then takes its time."""
    with open(order[0], "a", encoding="utf-8") as file:
        file.write("begun\n")
    time.sleep(order[1])
    return os.getpid()


def slow(order: tuple[str, int]) -> int:
    """Gives its number back; waits until there is a file that ends in `.quick`."""
    file, number = Path(order[0]), order[1]
    file.touch()
    until(str(file.with_suffix(".quick")))
    return number


def explore_or_die(order: Any) -> Any:
    """Explores a batch; the first to come to 16 ports is killed when it has explored it. The mark stands in the folder
    where the exploration was asked for."""
    from sonda.studies.explore.parts import explore_part

    part = explore_part(order)
    mark = Path("killed")
    if ("16",) in order.axes.values() and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def measure_by_hand(folder: str) -> None:
    """Have this process make the runs of studies by hand: what it begins is appended to `begun`, and it waits as long
    as there is a file `hold-BATCH`."""
    from builders import stepped
    from sonda.record.files.partial import node_name
    from sonda.record.run import Run, now, write_run
    from sonda.record.store import Store
    from sonda.studies.engine import remote as elsewhere
    from sonda.studies.engine.plan import StudyPoint
    from sonda.studies.file.study import Study

    def measuring(store: Store, study: Study) -> Any:
        def measure(point: StudyPoint) -> Run:
            batch = point.configuration["batch"]
            with open(Path(folder) / "begun", "a", encoding="utf-8") as file:
                file.write(f"{batch} {node_name()}\n")
            while (Path(folder) / f"hold-{batch}").exists():
                time.sleep(0.02)
            made = stepped([2.0, 2.0, 2.0])
            info = msgspec.structs.replace(
                made.info, id=point.identity, created=now(), study=point.study, point=point.record(),
                machine=msgspec.structs.replace(made.info.machine, host=node_name()),
            )  # fmt: skip
            return write_run(store.root, info, made.spans)

        return measure

    elsewhere.measuring = measuring  # type: ignore[assignment]
