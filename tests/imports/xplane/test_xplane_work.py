"""Steps of profiles that mark none, where calls hand work over: whose work it is, and what is nobody's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sonda.analysis.traces.profile import StepTimes, summarise_profile
from sonda.imports.xplane import steps as xplane_work
from sonda.imports.xplane.steps import ModuleWork, StepFinder
from sonda.targets.imported.launcher import import_files
from xplane_examples import PlaneMaker, space

US = 1000


def steps_of(place: Path, *planes: PlaneMaker) -> list[StepTimes]:
    path = place / "made.xplane.pb"
    path.write_bytes(space(*planes))
    return list(summarise_profile(import_files([path], place / "runs")).steps)


def us(steps: StepTimes) -> list[float]:
    return [one / US for one in steps.durations]


def worked(plane: PlaneMaker, module: str, *times: tuple[int, int]) -> list[bytes]:
    return [plane.event("dot.1", at * US, long * US, hlo_op="dot.1", hlo_module=module) for at, long in times]


def test_a_call_that_hands_work_over_ends_with_that_work(tmp_path: Path) -> None:
    """Four calls of 10 us, whose work takes 300 us and once 5,000; then a validation, whose work is none of theirs."""
    plane = PlaneMaker("/host:CPU")
    main = [plane.event("PjitFunction(step)", at * US, 10 * US) for at in (0, 400, 800, 6000)]
    main += [plane.event("PjitFunction(score)", 6500 * US, 10 * US)]
    work = worked(plane, "jit_step", (20, 200), (225, 95), (420, 300), (820, 5000), (6020, 300))
    plane.line(1, "python", main).line(2, "tf_XLAEigen/2", [*work, *worked(plane, "jit_score", (6520, 100))])
    (steps,) = steps_of(tmp_path, plane)
    assert (steps.name, us(steps)) == ("step", [400, 400, 5200, 320])
    assert steps.parts["operations"].value == (295 + 300 + 5000 + 300) * US


def test_work_between_epochs_that_no_call_handed_over_is_in_no_step(tmp_path: Path) -> None:
    """TensorFlow on a GPU: two epochs of five steps, 98 ms apart; kernels of eager operations behind each of them."""
    host, device = PlaneMaker("/host:CPU"), PlaneMaker("/device:GPU:0", own={"gpu_device_name": "Toy"})
    begins = [epoch + 400 * step for epoch in (0, 100_000) for step in range(5)]
    main = [host.event("train_step", at * US, 390 * US, tf_function_call="notTraced-nonXla") for at in begins]
    kernels = [device.event("gemm", (at + 50) * US, 300 * US) for at in begins]
    kernels += [device.event("mean", (at + 100 * one) * US, 60 * US) for at in (2500, 102_500) for one in range(900)]
    host.line(1, "python", main)
    device.line(14, "Stream #14(Compute)", kernels)
    (steps,) = steps_of(tmp_path, host, device)
    assert us(steps) == [400, 400, 400, 400, 390] * 2


def test_work_of_other_threads_and_functions_ends_no_call(tmp_path: Path) -> None:
    """Another thread scores images, and calls `step` itself 2 ms after the last call: its work is not that call's."""
    plane = PlaneMaker("/host:CPU")
    main = [plane.event("PjitFunction(step)", at * US, 10 * US) for at in (0, 400, 800)]
    other = [plane.event("PjitFunction(score)", at * US, 5 * US) for at in (1000, 1300)]
    other += [plane.event("PjitFunction(step)", 2800 * US, 10 * US)]
    work = worked(plane, "jit_step", (20, 300), (420, 300), (820, 300), (2820, 300))
    work += worked(plane, "jit_score", (1010, 100), (1310, 100)) + worked(plane, "jit_stepping", (1120, 5000))
    work += [plane.event("dot.1", 1150 * US, 9000 * US, hlo_op="dot.1")]  # of no module
    plane.line(1, "python", main).line(2, "python2", other).line(3, "tf_XLAEigen/2", work)
    (steps,) = steps_of(tmp_path, plane)
    assert us(steps) == [400, 400, 320]


@pytest.mark.parametrize(("function", "module"), [
    ("<lambda>", "jit__lambda"), ("<lambda>", "jit__lambda_"), ("_a.b", "jit__a.b"),
    ("<unnamed function>", "jit__unnamed_function"),
])  # fmt: skip
def test_a_module_has_the_name_of_its_function(function: str, module: str) -> None:
    """As JAX 0.10 writes them, and older ones, with the sign at the end."""
    work = ModuleWork()
    work.add(np.array([5]), np.array([9]), np.array([0]), [module])
    nothing = np.iinfo(np.int64).min
    assert work.until(function, np.array([5, 6])).tolist() == [nothing, 9]
    assert work.until("a", np.array([6])).tolist() == [nothing]


def test_what_is_remembered_of_work_is_bounded_and_keeps_the_longest_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of 10 us, 30 us apart; every hundredth pause is 10 ms. At most 64 are kept, of 1,000."""
    monkeypatch.setattr(xplane_work, "MOST", 64)
    pauses = np.where(np.arange(1000) % 100 == 99, 10_000, 30) * US
    start = np.concatenate(([0], np.cumsum(pauses + 10 * US)[:-1]))
    work = ModuleWork()
    for part in np.split(start, 20):
        work.add(part, part + 10 * US, np.zeros(len(part), np.int64), ["jit_step"])
        assert sum(len(begin) for known in work._parts.values() for begin, _ in known) <= 64
    behind = start[99::100] + 11 * US
    assert (work.until("step", behind) == start[99::100] + 10 * US).all()


def test_where_steps_are_marked_no_work_is_remembered() -> None:
    rows = np.array([(0, 10)], np.dtype([("start", np.int64), ("duration", np.int64)]))
    finder = StepFinder()
    finder.add_work(rows, np.array([0]), ["jit_step"])
    assert finder._work._parts
    finder.mark()
    finder.add_work(rows, np.array([0]), ["jit_step"])
    assert not finder._work._parts
