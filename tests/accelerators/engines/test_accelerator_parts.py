"""The parts that the engines share, counted by hand on small machines."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.golden import runs
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines import flexible_folding as folding_kernel
from sonda.accelerators.engines import flexible_packages as packages_kernel
from sonda.accelerators.engines import flexible_streaming as streaming_kernel
from sonda.accelerators.engines.fabric import distribution, instances, reduction


def neurons(*sizes: int) -> tuple[np.ndarray, np.ndarray]:
    """First and last multipliers of VNs of these sizes, side by side."""
    ends = np.cumsum(sizes)
    return ends - np.array(sizes), ends - 1


def wiring(levels: int, lines: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Line and input of the collection bus by adder (level, index), as the reference lists them: pairs, then others."""
    pairs = [((level, index - 1), (level, index)) for level in range(2, levels) for index in range(2, 1 << level, 2)]
    single = [(0, 0), *((level, index) for level in range(1, levels) for index in (0, (1 << level) - 1))]
    wired = {}
    for number, pair in enumerate(pairs):
        for place, adder in enumerate(pair):
            wired[adder] = (number % lines, 2 * (number // lines) + place)
    for number, adder in enumerate(single):
        wired[adder] = ((2 * len(pairs) + number) % lines, 2 * len(pairs) // lines + 1 + number // lines)
    return wired


class TestReduction:
    def test_an_aligned_neuron_is_a_plain_tree(self) -> None:
        paths = reduction.reduce(Hardware(multipliers=16, read_ports=4, write_ports=4), *neurons(8, 8))
        assert paths.hops.tolist() == [3] * 16
        assert (paths.level.tolist(), paths.index.tolist()) == ([1, 1], [0, 1])
        assert (paths.nodes.tolist(), paths.two.tolist(), paths.three.tolist()) == ([7, 7], [7, 7], [0, 0])
        assert paths.configured == 15

    def test_a_straggler_goes_sideways(self) -> None:
        """Five on 16: leaves 0, 1, 2; leaf 2 holds one product and hands it to leaf 1, which adds three operands."""
        paths = reduction.reduce(Hardware(multipliers=16, read_ports=4, write_ports=4), *neurons(5))
        assert paths.hops[:6].tolist() == [2, 2, 2, 2, 3, 0]
        assert (paths.level[0], paths.index[0]) == (2, 0)
        assert (paths.nodes[0], paths.two[0], paths.three[0]) == (4, 2, 1)
        # Three leaves, the adder above, and the two between it and the root of the tree.
        assert paths.configured == 3 + 1 + 2

    def test_the_smaller_half_goes_to_the_larger(self) -> None:
        """Multipliers 7, 8, 9 lie on the leaves 3 and 4, which share no parent; leaf 4 has two of them."""
        paths = reduction.reduce(Hardware(multipliers=16, read_ports=4, write_ports=4), np.array([7]), np.array([9]))
        assert (paths.level[0], paths.index[0]) == (3, 4)
        assert paths.hops[7:10].tolist() == [2, 1, 1]
        assert (paths.two[0], paths.three[0]) == (0, 1)

    def test_lines_of_the_bus(self) -> None:
        """Of 8 multipliers: the pair (2,1), (2,2) has line 0; then (0,0), (1,0), (1,1), (2,0), (2,3) from line 2 on."""
        hardware = Hardware(multipliers=8, read_ports=8, write_ports=4)
        assert reduction.reduce(hardware, *neurons(2, 2, 2, 2)).line.tolist() == [(2 + 3) % 4, 0, 0, (2 + 4) % 4]
        assert reduction.reduce(hardware, *neurons(2, 2, 2, 2)).slot.tolist()[1:3] == [0, 1]
        assert reduction.reduce(hardware, *neurons(8)).line.tolist() == [2]
        assert reduction.reduce(hardware, *neurons(4, 4)).line.tolist() == [3, 0]

    @pytest.mark.parametrize(
        ("network", "accumulators", "sizes", "delay"),
        [
            ("ASNETWORK", False, (4, 4), [1, 1]),
            ("ASNETWORK", True, (4, 4), [2, 2]),
            ("FENETWORK", False, (4, 4), [2, 2]),
            ("FENETWORK", False, (8,), [1]),
            ("TEMPORALRN", True, (1, 1), [2, 2]),
        ],
    )
    def test_way_from_the_root_to_the_bus(
        self, network: str, accumulators: bool, sizes: tuple[int, ...], delay: list[int]
    ) -> None:
        hardware = Hardware(multipliers=8, read_ports=8, write_ports=8, reduction=network, accumulators=accumulators)
        assert reduction.reduce(hardware, *neurons(*sizes)).delay.tolist() == delay

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.integers(3, 20), min_size=1, max_size=12))
    def test_adding_n_products_takes_n_minus_one_additions(self, sizes: list[int]) -> None:
        sizes = [size for size, end in zip(sizes, np.cumsum(sizes), strict=True) if end <= 64] or [64]
        paths = reduction.reduce(Hardware(multipliers=64, read_ports=8, write_ports=8), *neurons(*sizes))
        assert (paths.two + 2 * paths.three).tolist() == [size - 1 for size in sizes]
        assert paths.totals == (paths.nodes.sum(), paths.two.sum(), paths.three.sum())
        roots = list(zip(paths.level.tolist(), paths.index.tolist(), strict=True))
        assert len(set(roots)) == len(sizes)
        # Two adders may share an input: the reference wires its last pair and its first single one to the same.
        wired = wiring(6, 8)
        assert [wired[root] for root in roots] == list(zip(paths.line.tolist(), paths.slot.tolist(), strict=True))


class TestDistribution:
    hardware = Hardware(multipliers=16, read_ports=4, write_ports=4)

    def test_a_package_to_all(self) -> None:
        """Four ports, each a tree of three switches that copy to both sides, over 1 + 2 + 4 wires."""
        routing = distribution.route(self.hardware, np.zeros(16, np.int64), np.arange(16))
        assert routing == (4, 4 * 7, 0, 4 * 3)

    def test_two_destinations_under_one_port(self) -> None:
        """Multipliers 4 and 6 part at the first switch; then one switch each with one child used."""
        assert distribution.route(self.hardware, np.array([3, 3]), np.array([4, 6])) == (1, 1 + 2 + 2, 2, 1)

    def test_packages_apart_share_nothing(self) -> None:
        apart = distribution.route(self.hardware, np.arange(16), np.arange(16))
        assert apart == distribution.unicast(self.hardware, 16) == (16, 16 * 3, 16 * 2, 0)

    def test_without_a_tree_there_are_no_switches(self) -> None:
        hardware = Hardware(multipliers=4, read_ports=4, write_ports=4)
        assert distribution.arrival_delay(hardware) == 0
        assert distribution.activity(hardware, distribution.unicast(hardware, 5)) == {
            "DN_WIRE": {"entries": 4, "WRITE": 5, "READ": 0}
        }


@pytest.mark.parametrize(
    "run", [run for run in runs() if "energy" in run], ids=lambda run: f"{run['id']}-{run['mode']}"
)
def test_instances_are_those_of_the_reference(run: dict) -> None:  # type: ignore[type-arg]
    config = run["config"]
    hardware = Hardware(
        multipliers=config.get("num_ms", 64),
        read_ports=config["dn_bw"],
        write_ports=config["rn_bw"],
        reduction=config["rn_type"],
        accumulators=bool(config["accumulation_buffer"]),
        rows=config.get("ms_rows", 0),
        columns=config.get("ms_cols", 0),
    )
    counters = run["counters"]
    for section, found in (("MSNetwork", instances.multipliers), ("ReduceNetwork", instances.reduction)):
        assert found(hardware) == {name: counts["entries"] for name, counts in counters[section].items()}


@pytest.mark.parametrize(
    "kernel",
    [reduction._gather, packages_kernel.packages, streaming_kernel.stream, folding_kernel.fold],
    ids=lambda kernel: kernel.__name__,
)
def test_kernels_of_the_dense_engine_allocate_nothing_and_name_each_counter_a_whole_number(
    kernel: Callable[..., None],
) -> None:
    """Both are what compiling them costs: an allocation brings in other functions, a plain 0 that a loop changes types
    the kernel once more for every loop around it."""
    tree = ast.parse(inspect.getsource(kernel))
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert {name for name in calls if name.startswith("np.")} <= {"np.int64"}
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
    grown = {
        ast.unparse(node.target)
        for loop in loops
        for node in ast.walk(loop)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    plain = {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
    }
    assert grown & plain == set()
