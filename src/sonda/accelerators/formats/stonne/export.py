"""A simulated run as the files that STONNE would have written: a `.counters` and a `.txt` for each operation.

Sums over the files are those of the run, because an operation that came several times has several pairs. Cycles are
the engine's own, without waiting for a memory that STONNE does not have.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sonda.accelerators.description.hardware import Hardware
from sonda.accelerators.engines.result import Result
from sonda.accelerators.formats.stonne.files import STONNE_KINDS, counters_size, write_stonne_files
from sonda.accelerators.operations.layer import StonneLayer, Tile
from sonda.accelerators.operations.program import ConvolutionShape, MatrixProduct
from sonda.record.errors import SondaError, nearest
from sonda.record.progress import Say
from sonda.record.run import Run
from sonda.record.simulated import DescribedEngine, MappedOperation
from sonda.record.stored import plain
from sonda.record.target import ExplorationTarget, SimulatedTarget

MOST_OPERATIONS = 20_000
TEXT_BYTES = 2_500
"""About, of a `.txt` file."""
PRODUCT = re.compile(r"(?:(\d+) of )?(\d+)x(\d+) by \d+x(\d+)")
BAGS = re.compile(r"(\d+) bags, \d+ rows of (\d+)x(\d+)")
CONVOLUTION = re.compile(
    r" ".join(rf"{letter}=(\d+)" for letter in "RSCKGNXY") + r" stride=(\d+)x(\d+) padding=(\d+)x(\d+)"
)


def export_run(run: Run, folder: Path, layers: Sequence[str] = (), say: Say = lambda text: None) -> list[Path]:
    """Write the pairs of all operations of a simulated run; returns their paths in the run's order.

    `layers` are modules, each with all below it, or patterns such as `stages.0.*`; all unless given. How much will be
    written is said before. Raises SondaError, and writes nothing, where the run was measured or does not hold counters,
    where STONNE does not have the engine, where a layer is not there, or where there is no room.
    """
    engines, entries = _read_operations(run, layers)
    results = [_result(entry) for entry in entries]
    counts = [entry.count for entry in entries]
    size = sum(count * (counters_size(result) + TEXT_BYTES) for count, result in zip(counts, results, strict=True))
    _refuse_without_room(folder, size)
    say(f"writing {2 * sum(counts):,} files, {size / 1e6:,.1f} MB")
    alike = Counter((entry.path, entry.operation) for entry in entries)
    seen: Counter[tuple[str, str]] = Counter()
    written: list[Path] = []
    for entry, result, count in zip(entries, results, counts, strict=True):
        key = entry.path, entry.operation
        several = alike[key] > 1 or count > 1
        about = _describe_operation(entry, engines[entry.engine])
        for _ in range(count):
            name = ".".join(part for part in key if part) + (f"_{seen[key]}" if several else "")
            seen[key] += 1
            written += write_stonne_files(folder, name, result=result, **about)
    return written


def _select_layers(entries: list[MappedOperation], layers: Sequence[str]) -> list[MappedOperation]:
    paths = list(dict.fromkeys(str(entry.path) for entry in entries))
    kept: set[str] = set()
    for layer in layers:
        matching = [path for path in paths if fnmatchcase(path, layer) or path.startswith(f"{layer}.")]
        if not matching:
            parts = [path.split(".") for path in paths]
            known = {".".join(names[:depth]) for names in parts for depth in range(1, len(names) + 1)}
            raise SondaError(f"no operation on an engine is in layer {layer!r}", nearest(layer, known))
        kept.update(matching)
    return [entry for entry in entries if not layers or entry.path in kept]


def _refuse_without_room(folder: Path, size: int) -> None:
    existing = next((parent for parent in (folder, *folder.absolute().parents) if parent.is_dir()), None)
    room = shutil.disk_usage(existing).free if existing is not None else size
    if size > room:
        raise SondaError(
            f"the files take {size / 1e6:,.0f} MB, {folder} has room for {room / 1e6:,.0f} MB",
            "choose layers with --layers",
        )


def _read_operations(run: Run, layers: Sequence[str]) -> tuple[dict[str, Hardware], list[MappedOperation]]:
    """Hardware by engine, and the operations of these layers."""
    target = run.info.target
    if isinstance(target, ExplorationTarget):
        raise SondaError(
            f"run {run.id} is an exploration, which keeps no counters of its points",
            "simulate the point that you want: sonda run MODEL --on sim:NAME --set …",
        )
    if not isinstance(target, SimulatedTarget):
        raise SondaError(
            f"run {run.id} was measured on {target.spec or 'a machine'}, not simulated",
            "STONNE's files describe a simulated accelerator: sonda run MODEL --on sim:NAME",
        )
    entries = target.mapping or []
    if not entries:
        raise SondaError(f"run {run.id} has no operation on an engine", "route its operations to an engine")
    entries = _select_layers(entries, layers)
    described = target.description.engines if target.description is not None else {}
    _refuse_foreign_engines(run.id, [described[entry.engine] for entry in entries if entry.engine in described])
    try:
        engines = {name: Hardware(**plain(engine.hardware)) for name, engine in described.items()}
        for entry in entries:
            if entry.engine not in engines:
                raise KeyError(entry.engine)
            _result(entry)
    except (KeyError, TypeError) as missing:
        raise SondaError(
            f"run {run.id} does not hold what STONNE's files need ({missing})", "run it again with this Sonda"
        ) from None
    operations = sum(entry.count for entry in entries)
    if operations > MOST_OPERATIONS:
        raise SondaError(
            f"run {run.id} has {operations} operations, more than {MOST_OPERATIONS} pairs of files", "run a smaller one"
        )
    return engines, entries


def _refuse_foreign_engines(run_id: str, engines: Sequence[DescribedEngine]) -> None:
    for engine in engines:
        if engine.kind not in STONNE_KINDS:
            raise SondaError(
                f"run {run_id} has operations on {engine.name}, of kind {engine.kind}: STONNE has no such engine",
                f"choose layers on other engines with --layers; STONNE has {', '.join(STONNE_KINDS)}",
            )


def _result(entry: MappedOperation) -> Result:
    counters, reads = entry.counters, entry.reads
    return Result(
        cycles=entry.cycles - entry.stall_cycles,
        weight_reads=reads["weight"],
        input_reads=reads["input"],
        psum_reads=reads["psum"],
        writes=counters["GlobalBuffer"]["GLOBALBUFFER"]["WRITE"],
        multiplications=0,
        counters=counters,
    )


def _describe_operation(entry: MappedOperation, hardware: Hardware) -> dict[str, Any]:
    """Hardware, layer, tile and dataflow of an operation, as STONNE's front end would load them.

    Which front end that is, the letters of the mapping say.
    """
    mapping, shape = entry.mapping, entry.shape
    tile = {name: size for name, size in mapping.items() if isinstance(size, int)}
    about: dict[str, Any] = {"hardware": hardware, "dataflow": mapping.get("dataflow")}
    convolution = _convolution(shape)
    if "T_R" in mapping:
        if convolution is not None:
            about |= {"layer": convolution.layer(), "layer_type": "CONV"}
        sizes = {letter: tile[f"T_{letter}"] for letter in "RSCKGN"}
        return about | {"tile": Tile(**sizes, X=tile["T_X_"], Y=tile["T_Y_"])}
    product = _product(entry, shape, convolution)
    if product is None:
        return about
    m, n, k = product.m, product.n, product.k
    if "T_K" in mapping and "T_M" not in mapping:
        if mapping.get("rows") == "weights by rows":
            m, n = n, m
        return about | {"layer": StonneLayer(1, 1, C=k, K=n, G=1, N=m, X=1, Y=1), "layer_type": "SPARSE_DENSE"}
    if "T_M" not in mapping:
        if entry.kind == "convolution":
            m, n = n, m
        return about | {"layer": StonneLayer(1, k, C=1, K=m, G=1, N=1, X=n, Y=k), "layer_type": "GEMM"}
    product_tile = Tile.product(tile["T_M"], tile["T_N"], tile.get("T_K", 1))
    layer_type = "FC" if entry.kind == "linear" else "GEMM"
    return about | {"layer": StonneLayer.product(m, n, k), "tile": product_tile, "layer_type": layer_type}


def _convolution(shape: str) -> ConvolutionShape | None:
    match = CONVOLUTION.fullmatch(shape)
    if match is None:
        return None
    numbers = [int(group) for group in match.groups()]
    sizes = dict(zip("RSCKGNXY", numbers[:8], strict=True))
    return ConvolutionShape(**sizes, stride=(numbers[8], numbers[9]), padding=(numbers[10], numbers[11]))  # type: ignore[arg-type]


def _product(entry: MappedOperation, shape: str, convolution: ConvolutionShape | None) -> MatrixProduct | None:
    """The product of matrices that was computed; nothing where the words of the shape do not tell it."""
    if match := PRODUCT.fullmatch(shape):
        count, m, k, n = (int(group or 1) for group in match.groups())
        return MatrixProduct(m, n, k, count)
    if match := BAGS.fullmatch(shape):
        m, k, n = (int(group) for group in match.groups())
        return MatrixProduct(m, n, k)
    if convolution is None or min(convolution.outputs) < 1:
        return None
    product = convolution.product()
    # The words do not say how far a filter is dilated; where it is, there are fewer outputs.
    outputs = product.m * product.n * product.count
    return product if entry.counters["GlobalBuffer"]["GLOBALBUFFER"]["WRITE"] == outputs else None
