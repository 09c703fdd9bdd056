"""`run.json` of schema 2: kinds as types, schema 1 read the same, and nothing of a wrong type behind the reader."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from answers import RUNS
from sonda.record.errors import SondaError
from sonda.record.run import SCHEMA, Run, RunInfo, decode_info
from sonda.record.store import Store
from sonda.record.target import AnyTarget, Kind, WorkloadTarget
from sonda.report.blocks import Detail
from sonda.report.views.kinds import view_of

STORED = sorted(path.parent for path in RUNS.glob("*/run.json"))
UNREADABLE = {"00000000da02", "00000000da03"}
"""Cut in the middle, and of a schema that is to come."""
ONE_OF_EACH = {
    "workload": "cnn-epochs", "program": "program-train", "ranks": "ranks-hybrid", "corun": "corun-command",
    "serving": "serving-found", "energy": "energy-command", "simulated": "sim-memory", "exploration": "explored",
    "imported": "import-ranks",
}  # fmt: skip


def readable() -> Iterator[Path]:
    return (path for path in STORED if path.name.rpartition("-")[2] not in UNREADABLE)


def tagged(name: str) -> Path:
    return Store(RUNS).one(name).directory


def test_every_kind_has_a_target_of_its_own() -> None:
    assert sorted(target.kind for target in get_args(AnyTarget)) == sorted(get_args(Kind))
    assert all(target.__struct_config__.tag == target.kind for target in get_args(AnyTarget))


def test_every_stored_run_of_schema_1_reads_as_if_written_in_schema_2() -> None:
    """All that follows from a run follows from this, its spans and its samples."""
    kinds: Counter[str] = Counter()
    for directory in readable():
        old = json.loads((directory / "run.json").read_bytes())
        info = Run.load(directory).info
        again = decode_info(msgspec.json.encode(info), directory.name)
        assert (old["schema"], info.schema, again) == (1, SCHEMA, info), directory.name
        kinds[info.kind] += 1
    assert set(kinds) == set(ONE_OF_EACH) and sum(kinds.values()) == len(STORED) - len(UNREADABLE)


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_what_is_shown_of_a_run_is_the_same_in_both_schemas(kind: str, tmp_path: Path) -> None:
    first = Run.load(tagged(ONE_OF_EACH[kind]))
    copy = tmp_path / first.directory.name
    shutil.copytree(first.directory, copy)
    (copy / "run.json").write_bytes(msgspec.json.encode(first.info))
    second = Run.load(copy)
    assert first.info.kind == second.info.kind == kind
    views = view_of(first), view_of(second)
    texts = [view.text(100, color=False, detail=Detail.ALL) for view in views]
    assert texts[0] == texts[1]
    assert json.dumps(views[0].document(), default=str) == json.dumps(views[1].document(), default=str)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything in a document; of a list the first item stands for all."""
    items = value.items() if isinstance(value, dict) else [(0, value[0])] if isinstance(value, list) and value else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = changed(copy[path[0]], path[1:], value)
    return copy


def documents(kind: str) -> list[dict[str, Any]]:
    """A run of a kind as schema 1 and schema 2 write it."""
    directory = tagged(ONE_OF_EACH[kind])
    info = Run.load(directory).info
    return [json.loads((directory / "run.json").read_bytes()), json.loads(msgspec.json.encode(info))]


@pytest.mark.parametrize("kind", ONE_OF_EACH)
@pytest.mark.parametrize("wrong", [{"a": [1]}, ["a"], "a", -1.5, True, None], ids=repr)
def test_a_value_of_a_wrong_type_is_refused_and_never_a_crash(kind: str, wrong: Any) -> None:
    refused = 0
    for document in documents(kind):
        for path in places(document):
            data = json.dumps(changed(document, path, wrong)).encode()
            try:
                assert isinstance(decode_info(data, "x"), RunInfo)
            except (ValueError, SondaError) as error:
                refused += 1
                assert len(str(error).splitlines()) == 1, path
    assert refused > 20


@pytest.mark.parametrize("path", ["status", "target.threads", "machine.ceilings.threads", "workload.samples"])
def test_a_damaged_run_names_the_value(path: str, tmp_path: Path) -> None:
    first = tagged("mlp-train")
    shutil.copytree(first, tmp_path / first.name)
    document = json.loads((first / "run.json").read_bytes())
    (tmp_path / first.name / "run.json").write_text(json.dumps(changed(document, tuple(path.split(".")), "nonsense")))
    with pytest.raises(SondaError) as caught:
        Run.load(tmp_path / first.name)
    assert f"$.{path}" in caught.value.cause and caught.value.remedy.startswith("remove it")


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_keys_of_later_versions_are_passed_over(kind: str) -> None:
    info = Run.load(tagged(ONE_OF_EACH[kind])).info
    document = json.loads(msgspec.json.encode(info))
    for part in ("target", "machine", "workload"):
        later = {**document, part: {**document[part], "of_a_later_version": {"a": [1, None]}}, "also": 1}
        assert decode_info(json.dumps(later).encode(), "x") == info


def test_a_run_without_a_kind_or_of_an_unknown_one_is_damaged() -> None:
    _, document = documents("serving")
    del document["target"]["kind"]
    with pytest.raises(ValueError, match="kind"):
        decode_info(json.dumps(document).encode(), "x")
    document["target"]["kind"] = "dancing"
    with pytest.raises(ValueError, match="dancing"):
        decode_info(json.dumps(document).encode(), "x")


def test_a_network_may_have_parameters_that_are_called_like_facts_of_files() -> None:
    """`groups` of a convolution are no groups of ranks."""
    _, document = documents("workload")
    old = {**document, "schema": 1, "workload": {"name": "own", "groups": 4, "ranks": 2, "batch": 8}}
    info = decode_info(json.dumps(old).encode(), "x")
    assert info.workload.parameters == {"groups": 4, "ranks": 2, "batch": 8}
    assert (info.workload.batch, info.workload.groups, info.workload.ranks) == (8, None, None)


def test_several_instruments_may_add_what_they_probed() -> None:
    target = WorkloadTarget(spec="cpu", device="cpu")
    both = target.extended({"probed": [{"probe": "a", "sensor": "x"}]}).extended(
        {"probed": [{"probe": "b", "sensor": "y"}]}
    )
    assert [(sensor.probe, sensor.sensor) for sensor in both.probed or []] == [("a", "x"), ("b", "y")]
    assert both.extended({"added": {"z": 1}}).probed == both.probed
