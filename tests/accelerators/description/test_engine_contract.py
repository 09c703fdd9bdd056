"""`Engine`: what every kind keeps to, Sonda's own and those of other packages alike."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from installed_parts import importable
from memory_examples import memory
from places import REPOSITORY
from sonda.accelerators.description.accelerator import Accelerator, load_accelerator, parse_accelerator
from sonda.accelerators.description.engine import OPERATIONS, EngineDescription
from sonda.accelerators.description.fields import DescriptionMistakes
from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.description.settings import with_settings
from sonda.accelerators.designs.work import DesignWork, EngineWork
from sonda.accelerators.engines import contract
from sonda.accelerators.engines.registry import OWN, engine_kinds, engine_of
from sonda.accelerators.mapping.placement import Placed, Placement
from sonda.accelerators.memory.traffic import traffic_of
from sonda.accelerators.operations.program import (
    Bags,
    Call,
    ConvolutionShape,
    MatrixProduct,
    ModelProgram,
    Operation,
    ZeroPattern,
)
from sonda.record.errors import SondaError

SOURCE = REPOSITORY / "src" / "sonda"
MAY_NAME_KINDS = ("accelerators/engines/registry.py", "accelerators/engines/kinds/", "accelerators/formats/")
"""The registry, a kind itself, and the files of simulators that have only some kinds."""
ENGINES = [
    EngineDescription("one", "flexible_dense", Hardware(16, read_ports=4, write_ports=4, accumulators=True)),
    EngineDescription(
        "one", "mesh", Hardware(16, 4, 4, 8, 4, "TEMPORALRN", True, "TPU_OS_DENSE"), tile={"T_M": 2, "T_N": 3}
    ),
    EngineDescription("one", "bitmap_sparse", Hardware(16, read_ports=8, write_ports=8)),
    EngineDescription("one", "compressed_row", Hardware(16, read_ports=8, write_ports=8, accumulators=True)),
    EngineDescription("one", "outer_product", Hardware(16, read_ports=16, write_ports=8)),
    EngineDescription("one", "gustavson", Hardware(16, read_ports=16, write_ports=8)),
]  # fmt: skip


def pattern(shape: tuple[int, ...], seed: int) -> ZeroPattern:
    return ZeroPattern.from_array(np.random.RandomState(seed).random_sample(shape) < 0.6)


OPERATIONS_OF = {
    "linear": Operation("linear", "addmm", -1, MatrixProduct(5, 6, 7), pattern((1, 5, 7), 1), pattern((1, 6, 7), 2)),
    "convolution": Operation(
        "convolution", "conv", -1, ConvolutionShape(3, 3, 2, 4, 1, 2, 5, 5), pattern((2, 2, 5, 5), 3),
        pattern((4, 2, 3, 3), 4),
    ),
    "embedding_bag": Operation("embedding_bag", "bag", -1, Bags(np.array([3, 1, 4]), np.arange(8) % 5, 9, 6)),
}  # fmt: skip
PLACES = [(engine, operation) for engine in ENGINES for operation in OPERATIONS_OF.values()
          if operation.kind in engine_of(engine.kind).operations]  # fmt: skip


def test_every_kind_of_sondas_has_an_engine_here() -> None:
    assert {engine.kind for engine in ENGINES} == set(OWN) == set(engine_kinds()[: len(OWN)])
    for engine in ENGINES:
        assert not list(engine.problems()), engine.kind
        assert engine.simulator is engine_of(engine.kind)
        assert engine.simulator.operations and set(engine.simulator.operations) <= set(OPERATIONS)
    # Dense engines would read whole tables for a bag.
    assert {one.kind for one in ENGINES if one.takes("embedding_bag")} == {
        one.kind for one in ENGINES if one.simulator.zeros_matter
    }


@pytest.mark.parametrize(("engine", "operation"), PLACES, ids=[f"{one.kind} {two.kind}" for one, two in PLACES])
def test_any_mapping_that_an_engine_gives_is_simulated_as_it_says(
    engine: EngineDescription, operation: Operation
) -> None:
    check_mappings(engine, operation)


def check_mappings(engine: EngineDescription, operation: Operation) -> None:
    """The mapping that is chosen, and where there is a choice those that are listed, are simulated alike."""
    simulator = engine.simulator
    for given in (False, True):
        chosen = simulator.choose(engine, operation, given)
        assert chosen.mapping == simulator.choose_mapping(engine, operation, given)
        assert chosen.result == simulator.simulate(engine, operation, chosen.mapping)
    listed = simulator.mappings(engine, operation)
    if listed is None:
        return
    tried = 0
    for options in (*listed.starts, *listed.options):
        for number in range(0, len(options.least), max(1, len(options.least) // 5)):
            if isinstance(options.engine_cycles(number), SondaError):
                continue
            choice = options.choice(number)
            assert choice.result == simulator.simulate(engine, operation, choice.mapping)
            assert options.least[number] <= options.engine_cycles(number) == choice.result.cycles
            tried += 1
    assert tried


@pytest.mark.parametrize(("engine", "operation"), PLACES, ids=[f"{one.kind} {two.kind}" for one, two in PLACES])
def test_designs_at_once_are_those_one_by_one(engine: EngineDescription, operation: Operation) -> None:
    accelerator = Accelerator("one", None, {"one": engine}, {operation.kind: "one"}, "45nm")
    program = ModelProgram((Call("", "", 0, -1, 0),), (operation,), ("forward",))
    designs = [engine, replace(engine, hardware=replace(engine.hardware, write_ports=2))]
    at_once, one_by_one = EngineWork(program), EngineWork(program)
    at_once.prepare(accelerator, designs, "")
    # What no batch takes is left to be simulated one by one.
    batch = engine.simulator.batch([operation])
    assert at_once.simulations == (0 if batch is None else 2)
    for design in designs:
        first, second = (
            at_once.work_on(accelerator, design, "", None),
            one_by_one.work_on(accelerator, design, "", None),
        )
        assert isinstance(first, DesignWork) and isinstance(second, DesignWork)
        assert (first.cycles, first.counts, first.instances) == (second.cycles, second.counts, second.instances)


def test_nothing_but_the_kinds_themselves_tells_kinds_apart() -> None:
    named = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(MAY_NAME_KINDS):
            continue
        constants = {node.value for node in ast.walk(ast.parse(path.read_text("utf-8")))
                     if isinstance(node, ast.Constant) and isinstance(node.value, str)}  # fmt: skip
        if found := constants & set(OWN):
            named[name] = found
    assert not named


def test_an_author_finds_everything_that_methods_of_the_contract_name() -> None:
    assert all(hasattr(contract, name) for name in contract.__all__)
    methods = [method for method in vars(contract.Engine).values() if inspect.isfunction(method)]
    annotations = " ".join(annotation for method in methods for annotation in method.__annotations__.values())
    rooms = {name: str(getattr(vars(contract).get(name), "__module__", "")) for name in re.findall(r"\w+", annotations)}
    ours = {name for name, room in rooms.items() if room.startswith("sonda.accelerators")}
    assert {"Choice", "MappingSpace", "Reuse"} <= ours <= set(contract.__all__)


# ---- engines of other packages -------------------------------------------------------------------------------------

OUTSIDERS = '''
import numpy as np

from sonda.accelerators.engines.contract import (
    UNBOUNDED, Accesses, Choice, Engine, FormMappings, MappingSpace, Result, Reuse, dense_product, rereading,
)


class Columns(Engine):
    """T_N columns of a product at a time, an element of the inputs in every cycle for all of them."""

    operations = ("linear", "gemm")
    moves_memory = True
    product_tile = ("T_N",)

    def problems(self, description, wrong):
        if description.tile and description.tile["T_N"] > description.hardware.multipliers:
            from sonda.record.errors import SondaError

            yield SondaError(f"tile.T_N = {description.tile['T_N']} is too wide", "make it smaller")

    def choose_mapping(self, description, operation, given):
        return dict(description.tile) if given and description.tile else {"T_N": 1}

    def simulate(self, description, operation, mapping):
        shape = operation.shape
        cycles = shape.m * shape.k * -(-shape.n // mapping["T_N"])
        counted = self.counted(shape, mapping["T_N"])
        return Result(cycles, *counted, shape.multiplications, stack={"compute": cycles})

    def counted(self, shape, columns):
        return Accesses(shape.n * shape.k, shape.m * shape.k * -(-shape.n // columns), 0, shape.m * shape.n)

    def mappings(self, description, operation):
        shape, widths = operation.shape, np.arange(1, description.hardware.multipliers + 1)

        def simulated(number):
            mapping = {"T_N": int(widths[number])}
            return Choice(mapping, self.simulate(description, operation, mapping))

        least = shape.m * shape.k * -(-shape.n // widths)
        return MappingSpace([], [FormMappings(least, simulated, {"T_N": widths}, self.counted(shape, widths))])

    def reuse(self, description, shape, mapping, counted, operation):
        operands = (
            rereading(counted.weight_reads),
            rereading(counted.input_reads, (shape.m * shape.k, shape.m * shape.k)),
        )
        return Reuse(operands, counted.writes, 2, mapping["T_N"])


class Plain(Engine):
    def simulate(self, description, operation, mapping):
        product = dense_product(description.kind, operation.shape)
        return Result(product.multiplications, 0, 0, 0, 0, product.multiplications)


class Fixed(Plain):
    def mappings(self, description, operation):
        return MappingSpace([FormMappings(UNBOUNDED, lambda number: self.choose(description, operation, True))], [])


class Failing(Engine):
    def simulate(self, description, operation, mapping):
        return 1 // 0


class Halves(Engine):
    def simulate(self, description, operation, mapping):
        return Result(1.5, 0, 0, 0, 0, 0)


def function(hardware, shape):
    return None
'''
ENTRIES = {
    "columns": "Columns", "plain": "Plain", "fixed": "Fixed", "failing": "Failing", "halves": "Halves",
    "function": "function",
}  # fmt: skip
DESCRIPTION = """
name = "mine"
[engines.mine]
kind = "{kind}"
multipliers = 8
read_ports = 4
write_ports = 4
[route]
linear = "mine"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    place = tmp_path_factory.mktemp("outsiders")
    (place / "outsiders.py").write_text(OUTSIDERS)
    about = place / "outsiders-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outsiders\nVersion: 1.0\n")
    lines = "".join(f"{kind} = outsiders:{name}\n" for kind, name in ENTRIES.items())
    (about / "entry_points.txt").write_text(f"[sonda.engines]\n{lines}")
    with importable(place):
        yield


def described(kind: str) -> Accelerator:
    return parse_accelerator(DESCRIPTION.format(kind=kind), "mine.toml")


PRODUCT = Operation("linear", "addmm", -1, MatrixProduct(m=3, n=20, k=5))


def placed(accelerator: Accelerator, mapping: str = "") -> Placed:
    found = Placement(accelerator, mapping).place_operation(PRODUCT)
    assert isinstance(found, Placed)
    return found


@pytest.mark.usefixtures("installed")
class TestOutsiders:
    def test_one_may_have_tiles_that_descriptions_give_and_settings_change(self) -> None:
        columns = described("columns")
        assert placed(columns).mapping == {"T_N": 1} and placed(columns).cycles == 3 * 5 * 20
        assert placed(with_settings(columns, "tile.T_N=4")).cycles == 3 * 5 * 5
        assert placed(with_settings(columns, "tile.T_N=4"), "stonne").cycles == 3 * 5 * 20
        with pytest.raises(DescriptionMistakes, match=r"tile.T_N = 9 is too wide"):
            with_settings(columns, "tile.T_N=9")

    def test_one_may_be_searched(self) -> None:
        best = placed(described("columns"), "best")
        # ceil(20 / 7) = ceil(20 / 8) = 3 blocks, and no more than 8 fit.
        assert best.cycles == 3 * 5 * 3 and best.proved

    @pytest.mark.parametrize("kind", ["columns", "plain", "fixed"])
    def test_one_may_list_mappings_or_not(self, kind: str) -> None:
        accelerator = described(kind)
        check_mappings(accelerator.engines["mine"], PRODUCT)
        assert placed(accelerator, "best").cycles <= placed(accelerator).cycles

    def test_one_may_have_a_memory_behind_it(self) -> None:
        found = placed(with_settings(described("columns"), "tile.T_N=4"))
        words = 20 * 5 + 5 * (3 * 5)
        small = traffic_of(found.engine, PRODUCT.shape, found.mapping, found.result, memory(8), PRODUCT)
        # One word stays of the 15 that are read for each of the 5 blocks: it crosses once and not five times.
        assert small.read_bytes == 4 * (words - (5 * 15 - 15) // 15)
        whole = traffic_of(found.engine, PRODUCT.shape, found.mapping, found.result, memory(1 << 20), PRODUCT)
        assert whole.read_bytes == 4 * (20 * 5 + 3 * 5)

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("failing", "the engine failing of outsiders:Failing fails: ZeroDivisionError"),
            ("halves", "the engine halves of outsiders:Halves gives Result(cycles=1.5"),
        ],
    )
    def test_one_that_fails_is_named(self, kind: str, expected: str) -> None:
        with pytest.raises(SondaError) as raised:
            placed(described(kind))
        assert expected in raised.value.cause and "uninstall the package" in raised.value.remedy

    def test_a_function_is_no_engine(self) -> None:
        with pytest.raises(SondaError, match=r"the engine function of outsiders:function is no .*contract\.Engine"):
            described("function")

    def test_it_takes_only_its_operations(self) -> None:
        with pytest.raises(DescriptionMistakes, match="columns does not take it"):
            parse_accelerator(DESCRIPTION.format(kind="columns") + 'convolution = "mine"\n', "mine.toml")


def test_an_engine_that_is_gone_is_said(installed: None) -> None:
    engine = load_accelerator("maeri-256").engines
    (first,) = engine.values()
    with pytest.raises(SondaError, match="there is no engine 'gone' any more"):
        _ = replace(first, kind="gone").simulator
