"""Loops around a line, and the lines that its values reach, of functions that are written down here."""

from __future__ import annotations

from sonda.frameworks.reconstruction.source import CALLER, UNKNOWN, SourceFile

TRAIN = SourceFile(b'''\
def train(net, opt, loader, meter, ema):
    history = []
    for x, y in loader:
        out = net(x)
        hits = score(out, y)
        weights = [weigh(row) for row in out]
        loss = mix(out, weights)
        loss.backward()
        opt.step()
        if hits:
            history.append(hits)
        ema.update(net)
        x = ema(x)
        meter["hits"] = hits
    return net
'''.splitlines())  # fmt: skip
LOOP = SourceFile(b'''\
class Batches:
    def pad(self, rows):
        while short(rows):
            rows = [row + [0] for row in rows]
        self.size = len(rows)
        return list(map(bytes, rows))

    @property
    def width(self):
        for row in self.rows:
            yield row * self.size
'''.splitlines())  # fmt: skip


def test_a_metric_reaches_neither_backward_nor_forward() -> None:
    metric = TRAIN.look_up("train", 1, 5)
    assert metric.statement == 5 and metric.loops == (3,)
    assert not {4, 7, 8, 9} & set(metric.feeds)
    assert {10, 11, 14} <= set(metric.feeds), "it is kept"


def test_what_a_loss_is_made_of_reaches_backward() -> None:
    assert {7, 8} <= set(TRAIN.look_up("train", 1, 6).feeds)
    assert {5, 6, 7, 8} <= set(TRAIN.look_up("train", 1, 4).feeds)


def test_the_next_turn_reads_what_this_one_has_left() -> None:
    update = TRAIN.look_up("train", 1, 12).feeds
    assert {13, 4} & set(update), "the call changes what it is given, the model among it"
    # `x` has another value in the next turn.
    assert 4 not in TRAIN.look_up("train", 1, 13).feeds


def test_what_is_written_into_an_argument_reaches_the_caller() -> None:
    assert CALLER in TRAIN.look_up("train", 1, 14).feeds
    assert CALLER not in TRAIN.look_up("train", 1, 8).feeds


def test_loops_of_all_kinds() -> None:
    assert LOOP.look_up("Batches.pad", 2, 4, 12).loops == (3,)
    assert LOOP.look_up("Batches.pad", 2, 4, 20).loops == (3, 4), "inside of the comprehension"
    assert LOOP.look_up("Batches.pad", 2, 3).loops == (3,), "the condition is computed in each turn"
    assert LOOP.look_up("Batches.pad", 2, 5).loops == ()
    assert LOOP.look_up("Batches.pad", 2, 6, 20).loops == (6,)
    assert LOOP.look_up("Batches.pad.<locals>.<listcomp>", 4, 4).loops == (4,)


def test_a_property_begins_at_its_decorator_and_a_generator_gives_to_its_caller() -> None:
    facts = LOOP.look_up("Batches.width", 8, 11)
    assert facts.loops == (10,) and CALLER in facts.feeds


def test_what_has_no_source_is_unknown() -> None:
    assert SourceFile([]).look_up("train", 1, 5) == UNKNOWN
    assert SourceFile([b"def broken(:"]).look_up("broken", 1, 1) == UNKNOWN
    assert TRAIN.look_up("other", 1, 5) == UNKNOWN and TRAIN.look_up("train", 1, 0) == UNKNOWN
