"""Microbenchmarks: work whose counts are known beforehand, and the child processes that count it.

`python -m sonda.probes.validation.microbenchmarks KIND REQUEST` does one kind of work and writes one JSON object to
stdout. It is a process of its own, so that counters are opened before PyTorch starts threads, as in an observed
program.

Loops are machine code in an executable page, so that no compiler or interpreter decides what they execute. They run
with two sizes: the difference of the counts has nothing of Python in it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sonda.frameworks.collector.callgrind import START_INSTRUMENTATION, DumpRequests, ValgrindClient
from sonda.frameworks.collector.counters.perf_event import LINUX, Event, EventGroup, KernelCalls, PerfEventError
from sonda.frameworks.collector.counters.perf_event import attach as attach_all
from sonda.frameworks.collector.counters.process import Counting
from sonda.frameworks.collector.counters.system import CLOCK, EVENTS
from sonda.frameworks.collector.phases import Phases
from sonda.frameworks.collector.recorder import Recorder
from sonda.probes.machine_code import MachineCode

PAGE = resource.getpagesize()
FAULTS = next(event for event in EVENTS if event.name == "page_faults")

COUNT = bytes.fromhex("4889f9 48ffc9 75fb c3")
"""mov rcx, rdi; again: dec rcx; jnz again; ret: 2 n + 2 instructions."""
MEMORY = bytes.fromhex("31c0 488b17 48895708 48ffce 75f4 c3")
"""xor eax, eax; again: mov rdx, [rdi]; mov [rdi+8], rdx; dec rsi; jnz again; ret: a turn has 4 instructions, one of
them a load, one a store."""
COPY = bytes.fromhex("488b06 488907 4883c608 4883c708 48ffca 75ed c3")
"""again: mov rax, [rsi]; mov [rdi], rax; add rsi, 8; add rdi, 8; dec rdx; jnz again; ret: a word of 8 bytes takes 6
instructions. Plain stores: a line that is not cached is read before it is written, so 64 bytes move two lines."""
WORD, LINE = 8, 64

Loops = Mapping[str, Callable[[int], object]]
"""Work by name, called with its size."""


def machine_loops(copied: int = 0) -> dict[str, Callable[[int], object]]:
    """The loops by name. `count` and `memory` are called with a number of turns, `copy` with bytes.

    `copied` is the most that `copy` copies; without it there is no such loop.
    """
    count, memory = MachineCode(COUNT, 1), MachineCode(MEMORY, 2)
    words = (ctypes.c_ulong * 2)()

    def touch_words(turns: int) -> None:
        memory(ctypes.addressof(words), turns)

    loops: dict[str, Callable[[int], object]] = {"count": count, "memory": touch_words}
    if copied:
        copy = MachineCode(COPY, 3)
        buffers = [(ctypes.c_char * copied)() for _ in range(2)]

        def copy_bytes(size: int) -> None:
            target, source = buffers
            copy(ctypes.addressof(target), ctypes.addressof(source), size // WORD)

        loops["copy"] = copy_bytes
    return loops


def touch_pages(pages: int) -> None:
    """Fault in fresh pages, `pages` of them."""
    with mmap.mmap(-1, pages * PAGE) as memory:
        for at in range(0, pages * PAGE, PAGE):
            memory[at] = 1


# ---- hardware -----------------------------------------------------------------------------------------------------


def count_work(
    events: Sequence[Event], loops: Loops, sizes: Mapping[str, Sequence[int]], times: int, kernel: KernelCalls = LINUX
) -> dict[str, list[list[Any]]]:
    """Count loops with one group in the calling thread: by loop, a list of [size, time enabled, time running, counts].

    Sizes alternate, each `times` times. Raises PerfEventError where an event cannot be opened.
    """
    group = EventGroup(events, kernel=kernel)
    counted: dict[str, list[list[Any]]] = {}
    try:
        group.enable()
        for name, chosen in sizes.items():
            work = loops[name]
            for size in chosen:
                work(size)  # brings its memory and code in
            counted[name] = []
            for _ in range(times):
                for size in chosen:
                    before = group.read()
                    work(size)
                    after = group.read()
                    counts = [b - a for a, b in zip(before.values, after.values, strict=True)]
                    counted[name].append([size, after.enabled - before.enabled, after.running - before.running, counts])
    finally:
        group.close()
    return counted


def _count_hardware(request: dict[str, Any]) -> dict[str, Any]:
    events = [Event(**event) for event in request["events"]]
    sizes = request["sizes"]
    loops: dict[str, Callable[[int], object]] = {}
    if "product" in sizes:
        loops["product"] = _product_loop(max(sizes["product"]))
    else:
        loops = machine_loops(max(sizes.get("copy", [0])))
    gc.disable()
    try:
        return {"counted": count_work(events, loops, sizes, request["times"])}
    except PerfEventError as error:
        return {"errno": error.errno, "event": error.event}


def _product_loop(largest: int) -> Callable[[int], object]:
    import torch

    torch.set_num_threads(1)
    matrices = {side: torch.ones(side, side) for side in (largest, largest // 2)}
    return lambda side: torch.mm(matrices[side], matrices[side])


# ---- the system ---------------------------------------------------------------------------------------------------


def _count_fills(request: dict[str, Any]) -> dict[str, Any]:
    """Count fills of so many pages as phases, by the collector as in an observed program."""
    early = request["when"] == "early"
    with TemporaryDirectory() as directory:
        counting = Counting(directory) if early else None
        import torch

        torch.set_num_threads(request["threads"])
        torch.ones(1 << 20).mul_(2)  # the pool starts with the first parallel operation
        counting = counting or Counting(directory)
        recorder = Recorder(directory)
        counting.define(recorder)
        phases = Phases(recorder)
        phases.open(counting)
        code = recorder.define(kind="phase", name="forward")

        def fill() -> None:
            stream = recorder.stream()
            torch.empty(1 << 20, dtype=torch.uint8).fill_(1)  # brings the code itself in
            for _ in range(request["times"]):
                memory = torch.empty(request["pages"] * PAGE, dtype=torch.uint8)
                stream.begin(code)
                memory.fill_(1)
                stream.end()
                del memory

        if request["where"] == "main":
            fill()
        else:
            thread = threading.Thread(target=fill)
            thread.start()
            thread.join()
        facts = counting.facts()
        counted = _read_phase_values(directory, recorder, counting, "page_faults")
        return {"counted": counted, "source": facts["counting"]["os"]}


def _read_phase_values(directory: str, recorder: Recorder, counting: Counting, quantity: str) -> list[float]:
    """The counts of a program's phases: its file is written and read again."""
    from sonda.frameworks.reconstruction.assembly import assemble

    recorder.state(finished=True, **counting.facts())
    recorder.close()
    counting.close()
    spans = assemble(Path(directory), 0, 1 << 62).spans
    return [float(value) for value in spans.metric(quantity, "counted")[spans.where(kind="phase")]]


BETWEEN, FIRST, SECOND = 500, 1000, 2000
"""Pages touched in a turn: outside of phases, in one phase, in another."""


def _count_sums(request: dict[str, Any]) -> dict[str, Any]:
    """Count phases with work between them, and all of it by a counter that is opened independently."""
    with TemporaryDirectory() as directory:
        counting = Counting(directory)
        recorder = Recorder(directory)
        counting.define(recorder)
        phases = Phases(recorder)
        phases.open(counting)
        # Not forward and backward: what lies between those is the loss, a phase of its own.
        first, second = (recorder.define(kind="phase", name=name) for name in ("forward", "optimizer"))
        stream = recorder.stream()

        def turn() -> None:
            touch_pages(BETWEEN)
            for code, pages in ((first, FIRST), (second, SECOND)):
                stream.begin(code)
                touch_pages(pages)
                stream.end()

        turn()
        groups, _ = attach_all([FAULTS])
        for group in groups:
            group.enable()
        begin = counting.totals()["page_faults"]
        independent = sum(group.read().values[0] for group in groups)
        for _ in range(request["times"]):
            turn()
        whole = sum(group.read().values[0] for group in groups) - independent
        end = counting.totals()["page_faults"]
        for group in groups:
            group.close()
        values = _read_phase_values(directory, recorder, counting, "page_faults")[2:]
        return {"phases": values, "whole": whole, "collector": end - begin}


SLEEPS, MOVES = 50, 20
BUSY_S, WINDOWS, ENOUGH = 1.0, 6, 3
"""A second is a hundred of the ticks in which the kernel counts stolen time. Of windows from which nothing was stolen
three are enough: the one in the middle counts."""


def read_stolen_ticks(cpu: int, root: Path = Path("/")) -> int:
    """Ticks that the hypervisor took from a processor since the machine started; 0 where it does not show."""
    for line in (root / "proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name == f"cpu{cpu}" and len(fields) > 7:
            return int(fields[7])
    return 0


def _count_clock(request: dict[str, Any]) -> dict[str, Any]:
    """Count processor time against the clock of the process, switches of sleeps and migrations of forced moves."""
    events = list(EVENTS)
    try:
        group = EventGroup(events)
    except PerfEventError:  # an ordinary user may count the clock only
        events = list(CLOCK)
        group = EventGroup(events)
    group.enable()

    def between(work: Callable[[], None]) -> dict[str, Any]:
        usage, clock, first = resource.getrusage(resource.RUSAGE_SELF), time.process_time_ns(), group.read().values
        work()
        last, end = group.read().values, time.process_time_ns()
        now = resource.getrusage(resource.RUSAGE_SELF)
        counts = {event.name: b - a for event, a, b in zip(events, first, last, strict=True)}
        switches = now.ru_nvcsw + now.ru_nivcsw - usage.ru_nvcsw - usage.ru_nivcsw
        return {**counts, "process_time": end - clock, "getrusage_switches": switches}

    def busy() -> None:
        until = time.process_time() + BUSY_S
        while time.process_time() < until:
            sum(range(1000))

    def sleep() -> None:
        for _ in range(SLEEPS):
            time.sleep(1e-4)

    allowed = sorted(os.sched_getaffinity(0))

    def move() -> None:
        for turn in range(MOVES):
            os.sched_setaffinity(0, {allowed[turn % 2]})

    # On one processor, whose stolen time is then known. The task clock runs on while the hypervisor has the processor;
    # the clock of the process does not. So the two agree only where nothing was stolen.
    os.sched_setaffinity(0, {allowed[0]})
    windows = []
    for _ in range(WINDOWS):
        before = read_stolen_ticks(allowed[0])
        windows.append({**between(busy), "stolen": read_stolen_ticks(allowed[0]) - before})
        if sum(not window["stolen"] for window in windows) == ENOUGH:
            break
    os.sched_setaffinity(0, allowed)
    answer: dict[str, Any] = {"busy": windows, "sleep": between(sleep)}
    if len(allowed) > 1:
        os.sched_setaffinity(0, {allowed[1]})
        answer["move"] = between(move)
    group.close()
    return answer


def _count_children(request: dict[str, Any]) -> dict[str, Any]:
    """Count the faults of a child process by a group that leaves child processes out and by one that counts them."""
    faults = {}
    for wanted in (False, True):
        group = EventGroup([FAULTS], children=wanted)
        group.enable()
        subprocess.run(touch_command(request["pages"]), check=True)
        faults["in" if wanted else "out"] = group.read().values[0]
        group.close()
    return faults


def touch_command(pages: int) -> list[str]:
    """A command that touches `pages` pages and does nothing else."""
    program = f"import mmap\nm = mmap.mmap(-1, {pages} * {PAGE})\nfor p in range({pages}): m[p * {PAGE}] = 1"
    return [sys.executable, "-I", "-S", "-c", program]


# ---- second sources -----------------------------------------------------------------------------------------------


def _count_by_papi(request: dict[str, Any]) -> dict[str, Any]:
    """Count page faults of commands and of the calling thread by PAPI."""
    from sonda.probes.counters.papi import Papi
    from sonda.record.errors import SondaError

    papi = Papi()
    answer: dict[str, Any] = {"state": papi.state().state, "reason": papi.state().reason, "remedy": papi.state().remedy}
    if answer["state"] != "ok":
        return answer
    for name, count in (
        ("command", lambda pages: papi.count(touch_command(pages), ["page-faults"]).counts),
        ("here", lambda pages: papi.count_in_thread(lambda: touch_pages(pages), ["page-faults"])),
    ):
        try:
            answer[name] = [[pages, count(pages)["page-faults"].value]
                           for _ in range(request["times"]) for pages in request["pages"]]  # fmt: skip
        except SondaError as error:
            answer[f"{name}_reason"] = error.cause
    return answer


# ---- callgrind ----------------------------------------------------------------------------------------------------


ROUNDS = 5
"""The interpreter executes more in the first rounds: medians leave these out."""


def modelled_parts(sizes: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    """The loop and size of every part that callgrind writes, in order: the first only clears the counters."""
    return [("", 0), *((name, size) for _ in range(ROUNDS) for name, chosen in sizes.items() for size in chosen)]


def _run_modelled(request: dict[str, Any]) -> dict[str, Any]:
    """Run the loops under callgrind, which writes a part for each size. It must be started under valgrind."""
    client = ValgrindClient()
    if not client.running():
        return {"running": False}
    sizes = request["sizes"]
    parts = modelled_parts(sizes)
    loops = machine_loops(max(sizes["copy"]))
    dumps = DumpRequests(client, len(parts))
    call, addresses = dumps.call, dumps.addresses
    steps = [(loops[name], size, addresses[number]) for number, (name, size) in enumerate(parts) if name]
    for work, size, _ in steps:
        work(size)
    gc.disable()
    client.request(START_INSTRUMENTATION)
    call(addresses[0], 0)
    for work, size, address in steps:
        work(size)
        call(address, 0)
    return {"running": True, "process": os.getpid()}


KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "hardware": _count_hardware,
    "fill": _count_fills,
    "sums": _count_sums,
    "clock": _count_clock,
    "children": _count_children,
    "papi": _count_by_papi,
    "modelled": _run_modelled,
}


if __name__ == "__main__":
    try:
        answer = KINDS[sys.argv[1]](json.loads(sys.argv[2]))
    except PerfEventError as error:
        answer = {"refused": error.errno}
    sys.stdout.write(json.dumps(answer))
