"""Where a step goes, as figures of a study: on a processor from phases, on a GPU from kernels; nothing is made up."""

from __future__ import annotations

import dataclasses

import pytest

from builders import RunBuilder
from plain_runs import target_of
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import DeviceSide, PartSummary, Summary, Value
from sonda.studies.figures.registry import parse_figure


def on_processor() -> Summary:
    """Steps of 20 ms: 3 of data, 6 forward, 1 loss, 7 backward, 2 optimizer, and 1 that nobody claims."""
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(8):
        builder.step(part, 20, {"data": 3, "forward": 6, "loss": 1, "backward": 7, "optimizer": 2})
    return summarise(builder.run())


def on_gpu() -> Summary:
    """The same on a GPU that works 10 ms of each step, of which 2 are copies and 1 is an exchange."""

    def ms(value: float) -> Value:
        return Value(value * 1e6, "ns", "measured")

    summary = on_processor()
    device = DeviceSide(
        busy=ms(10), idle=ms(10), share=0.5, host=ms(18), overlapped=ms(0), launches=Value(40, "1", "counted"),
        latency=ms(0.02), copies=ms(2), collectives=ms(1), phases={}, steps=3,
    )  # fmt: skip
    part: PartSummary = dataclasses.replace(summary.parts[0], device=device)
    return dataclasses.replace(summary, parts=(part,))


@pytest.mark.parametrize(
    ("figure", "processor", "gpu"),
    [
        ("input_ms", 3.0, 3.0),
        ("operations_ms", 16.0, "on a GPU its kernels are shown"),
        ("host_ms", 1.0, 18.0),
        ("device_compute_ms", "the processor is the only device", 7.0),
        ("device_transfer_ms", "the processor is the only device", 2.0),
        ("launch_us", "the processor is the only device", 20.0),
        ("idle_ms", "the processor is the only device", 10.0),
        ("on_device_percent", 0.0, 100 * 10 / 13),
        ("on_host_percent", 100.0, 100 * 3 / 13),
        ("input_ms@features.0", "it is of the whole step", "it is of the whole step"),
    ],
)
def test_every_part_is_known_or_says_why_not(figure: str, processor: float | str, gpu: float | str) -> None:
    for summary, expected in ((on_processor(), processor), (on_gpu(), gpu)):
        found = parse_figure(figure).value_of(summary)
        if isinstance(expected, str):
            assert found.value is None and found.reason == expected
        else:
            assert found.value == pytest.approx(expected)


@pytest.mark.parametrize("target", [{"device": "cuda", "spec": "cuda:0"}, {"device": "cuda", "spec": "cuda:0,cuda:1"}])
def test_a_gpu_whose_kernels_were_not_recorded_is_no_processor(target: dict[str, str]) -> None:
    summary = dataclasses.replace(on_processor(), target=target_of(target))
    of_device = ("device_compute_ms", "device_transfer_ms", "launch_us", "idle_ms")
    for name in (*of_device, "operations_ms", "host_ms", "on_device_percent", "on_host_percent"):
        found = parse_figure(name).value_of(summary)
        assert found.value is None and found.reason == "no kernels were recorded", name
    assert parse_figure("input_ms").value_of(summary).value == pytest.approx(3.0)


def test_the_parts_of_a_step_on_a_processor_add_up() -> None:
    summary = on_processor()
    parts = [parse_figure(name).value_of(summary).value or 0.0 for name in ("input_ms", "operations_ms", "host_ms")]
    assert sum(parts) == pytest.approx(parse_figure("step_ms").value_of(summary).value)


def test_a_compiled_training_step_is_operations() -> None:
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(8):
        builder.step(part, 10, {"data": 2, "fused": 8})
    assert parse_figure("operations_ms").value_of(summarise(builder.run())).value == pytest.approx(8.0)
