"""Complete programs of many styles, run bare and observed: the same to the last bit, and seen for what they are.

The counts are made by reading the programs. A layer's backward is counted where its output has an autograd node of its
own; what lies between two modules is the backward of the module around them (path '' is the model itself).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from observed import Nursery, Seen, check_structure, seen

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


def each(count: int, *paths: str) -> dict[str, int]:
    return dict.fromkeys(paths, count)


BLOCK = ("conv1", "bn1", "conv2", "bn2")
ENCODER = ("self_attn", "dropout1", "norm1", "linear1", "dropout", "linear2", "dropout2", "norm2")
TRAINED = {"forward": 5, "loss": 5, "backward": 5, "optimizer": 10}

PROGRAMS = {
    # 2 epochs of 5 batches; data: 10 batches and 2 iterators.
    "plain": Seen([("train", 10)], 2, 1, {"data": 12, "optimizer": 20, "forward": 10, "loss": 10, "backward": 10},
                  each(10, "", "0", "1", "2", "CrossEntropyLoss"), each(10, "0", "1", "2", "CrossEntropyLoss")),
    # 3 epochs of 4 batches, 3 validations of 2, a test of 3: 21 forwards; data: 21 batches and 7 iterators.
    # Each block's backward comes back between its modules: at its last relu and at its first.
    "evaluating": Seen([("train", 4), ("validate", 2)] * 3 + [("test", 3)], 7, 2,
                       {"data": 28, "forward": 21, "loss": 12, "backward": 12, "optimizer": 24},
                       each(21, "", "stem", "blocks", "head", *(f"blocks.{i}" for i in range(2)),
                            *(f"blocks.{i}.{name}" for i in range(2) for name in BLOCK)),
                       {**each(12, "", "stem", "head", *(f"blocks.{i}.{name}" for i in range(2) for name in BLOCK)),
                        **each(24, "blocks.0", "blocks.1")}),
    "functional": Seen([("train", 7)], 0, 1, {"forward": 7, "loss": 7, "backward": 7, "optimizer": 14},
                       each(7, ""), each(7, "")),
    # A step: the generator once, the critic three times, two backwards; the last one reaches the generator.
    "gan": Seen([("train", 6)], 0, 1, {"forward": 24, "loss": 18, "backward": 12, "optimizer": 24},
                {**each(6, "Generator", *(f"Generator.net{i}" for i in ("", ".0", ".1", ".2"))),
                 **each(18, "BCEWithLogitsLoss", "Critic", *(f"Critic.net{i}" for i in ("", ".0", ".1", ".2")))},
                {**each(6, *(f"Generator.net.{i}" for i in range(3))),
                 **each(18, "BCEWithLogitsLoss", *(f"Critic.net.{i}" for i in range(3)))}),
    # 12 batches, a step for every 3; zero_grad once before the first.
    "accumulation": Seen([("train", 4)], 1, 1,
                         {"data": 13, "forward": 12, "loss": 12, "backward": 12, "optimizer": 9},
                         each(12, "", "0", "1", "2", "MSELoss"), each(12, "0", "1", "2", "MSELoss")),
    # The closure runs three times a step, and its nine phases cut the optimizer's into ten. The first step is over when
    # it is known that there is something to count, so the second is counted.
    "lbfgs": Seen([("train", 4)], 0, 1, {"optimizer": 40, "forward": 12, "loss": 12, "backward": 12},
                  each(12, "", "0", "1", "2", "MSELoss"), each(12, "0", "1", "2", "MSELoss")),
    # Four optimizer phases a step: zero_grad, unscale_, step, update; the step with an infinite gradient is one too.
    "amp": Seen([("train", 6)], 0, 1, {"forward": 6, "loss": 6, "backward": 6, "optimizer": 24},
                each(6, "", "0", "1", "2", "3", "CrossEntropyLoss"), each(6, "0", "1", "2", "3", "CrossEntropyLoss")),
    # Checkpointed layers run forward twice; the reentrant checkpoint's own node lies between two modules.
    "checkpointing": Seen([("train", 5)], 0, 1, TRAINED,
                          {**each(5, "", "stem", "head"), **each(10, "reentrant", "reentrant.0", "reentrant.1",
                                                                 "modern", "modern.0", "modern.1")},
                          each(5, "", "stem", "head", "reentrant.0", "reentrant.1", "modern.0", "modern.1")),
    "compiled": Seen([("train", 5)], 0, 1, TRAINED, each(5, "", "body", "head"), each(5, "body", "head")),
    "compiled_in_place": Seen([("train", 4), ("test", 1)], 0, 2,
                              {"forward": 5, "loss": 4, "backward": 4, "optimizer": 8}, each(5, ""), each(4, "")),
    "workers": Seen([("train", 4)], 1, 1, {"data": 5, "forward": 4, "loss": 4, "backward": 4, "optimizer": 8},
                    each(4, ""), each(4, "")),
    # `left.first` is `right.first`; `act` and `twice` are called twice.
    "shared": Seen([("train", 4)], 0, 1, {"forward": 4, "loss": 4, "backward": 4, "optimizer": 8},
                   {**each(4, "", "left", "right", "left.second", "right.second"),
                    **each(8, "left.first", "act", "twice")},
                   {**each(4, "left.second", "right.second"), **each(8, "left.first", "act", "twice")}),
    # The head exchanged after three steps is the head all the same; a Tanh made anew takes the place of the last one.
    "unlisted": Seen([("train", 6)], 0, 1, {"forward": 6, "loss": 6, "backward": 6, "optimizer": 12},
                     {**each(6, "", "Linear", "Linear#2", "heads.0", "MSELoss"), "Tanh": 12},
                     {**each(6, "Linear", "Linear#2", "heads.0", "MSELoss"), "Tanh": 12}),
    # Eight forwards, one fails; seven backwards, one fails before it reaches a layer; six steps, one fails.
    # `1` returns its input, so it has no node of its own.
    # The step in which a forward failed has two, as no counted one has: one more is counted, which has two as well.
    "failing": Seen([("train", 6)], 0, 2, {"optimizer": 14, "forward": 8, "loss": 7, "backward": 7},
                    {**each(8, "", "0", "1"), "2": 7}, each(6, "0", "2")),
    # The residual sum and the flattened logits lie between modules.
    "dictionary": Seen([("train", 5)], 0, 1, TRAINED,
                       each(5, "", "embed", "attention", "attention.query", "attention.key", "attention.value", "norm",
                            "head", "loss"),
                       {**each(5, "embed", "attention", "attention.query", "attention.key", "attention.value", "norm",
                               "head", "loss"), "": 10}),
    "recurrent": Seen([("train", 5)], 0, 1, TRAINED, each(5, "", "lstm", "out"), each(5, "", "lstm", "out")),
    # A gradient inside forward (5 each), then two backwards over it (10), of which the model's result is the node and
    # which reach the first layer through what the cube saved; then per-sample gradients of that layer (1).
    "custom": Seen([("train", 5)], 0, 1, {"forward": 5, "loss": 5, "backward": 10, "optimizer": 10},
                   {**each(5, "", "potential", "potential.1", "potential.2"), "potential.0": 6},
                   {**each(5, "potential.1", "potential.2"), "potential.0": 16, "": 10}),
    "patching": Seen([("train", 4)], 0, 1, {"forward": 4, "loss": 4, "backward": 4, "optimizer": 8},
                     each(4, "", "0", "1"), each(4, "0", "1")),
    # Without gradients an encoder layer takes its fused path and calls no module.
    "inferring no_grad": Seen([("test", 9)], 0, 1, {"forward": 9}, each(9, "", "layers.0", "layers.1")),
    "inferring inference_mode": Seen([("test", 9)], 0, 1, {"forward": 9}, each(9, "", "layers.0", "layers.1")),
    # With gradients on and no backward, two forwards pass before it is clear that nothing is trained.
    "inferring grad": Seen([("test", 9)], 0, 2, {"forward": 9},
                           each(9, "", *(f"layers.{i}" for i in range(2)),
                                *(f"layers.{i}.{name}" for i in range(2) for name in ENCODER))),
    "leaving exit": Seen([("train", 5)], 0, 1, TRAINED, each(5, ""), each(5, "")),
    "leaving raise": Seen([("train", 5)], 0, 1, TRAINED, each(5, ""), each(5, "")),
    "leaving hard": Seen([("train", 5)], 0, 1, TRAINED, each(5, ""), each(5, "")),
    "leaving replace": Seen([("train", 5)], 0, 1, TRAINED, each(5, ""), each(5, "")),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_the_same_observed_and_seen_for_what_it_is(nursery: Nursery, tmp_path: Path, name: str) -> None:
    program, *arguments = name.split()
    bare = nursery.run(program, *arguments, directory=tmp_path / "bare", observe=False)
    observed = nursery.run(program, *arguments, directory=tmp_path / "observed", observe=True)
    assert observed.output == bare.output
    codes = {"leaving exit": 3, "leaving raise": 1, "leaving hard": 4, "leaving replace": 6}
    assert observed.code == bare.code == codes.get(name, 0)
    assert len(bare.output.splitlines()) > 2
    assert observed.assembly is not None
    check_structure(observed.assembly.spans)
    assert seen(observed.assembly.spans) == PROGRAMS[name]
    assert not observed.assembly.truncated


def test_training_in_a_second_thread_is_seen_beside_the_first(nursery: Nursery, tmp_path: Path) -> None:
    bare = nursery.run("threaded", directory=tmp_path / "bare", observe=False)
    observed = nursery.run("threaded", directory=tmp_path / "observed", observe=True)
    assert observed.output == bare.output
    assert observed.assembly is not None
    spans = observed.assembly.spans
    check_structure(spans)
    found = seen(spans)
    assert sorted(found.parts) == [("test", 20), ("train", 20)]
    assert found.phases == {"forward": 40, "loss": 20, "backward": 20, "optimizer": 40}
    assert found.forward == each(20, "Sequential", "Sequential.0", "Sequential.1", "Linear")
    assert found.backward == each(20, "Sequential.0", "Sequential.1")
    assert len(set(spans.number("thread")[spans.where(kind="step")].tolist())) == 2


@pytest.mark.parametrize(("how", "code"), [("kill", -9), ("terminate", -15)])
def test_a_killed_program_keeps_what_was_written(nursery: Nursery, tmp_path: Path, how: str, code: int) -> None:
    observed = nursery.run("leaving", how, directory=tmp_path, observe=True)
    assert observed.code == code
    assert observed.assembly is not None and observed.assembly.truncated
    check_structure(observed.assembly.spans)
    # It waited before its fourth step, longer than anything stays in memory.
    [(part, steps)] = seen(observed.assembly.spans).parts
    assert part == "train" and 3 <= steps <= 5


def test_steps_outside_the_range_have_phases_and_no_layers(nursery: Nursery, tmp_path: Path) -> None:
    observed = nursery.run("plain", directory=tmp_path, observe=True, first=3, last=7)
    assert observed.assembly is not None
    check_structure(observed.assembly.spans)
    found = seen(observed.assembly.spans)
    assert found.parts == [("train", 10)]
    assert found.phases["forward"] == 10
    assert found.forward["0"] == found.backward["0"] == 4


def test_a_worker_of_a_data_loader_writes_nothing(nursery: Nursery, tmp_path: Path) -> None:
    nursery.run("workers", "fork", directory=tmp_path, observe=True)
    assert len(list(tmp_path.glob("*.events"))) == 1
