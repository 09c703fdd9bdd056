"""Loops around a line, and the lines that its values reach, of functions that are written down here."""

from __future__ import annotations

from sonda.frameworks.reconstruction.source import CALLER, UNKNOWN, FunctionEffects, SourceFile

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


def test_a_loop_that_changes_elements_feeds_what_reads_the_whole() -> None:
    source = SourceFile(b"""\
def align(pieces, labels):
    rows = pieces.tolist()
    for row, given in zip(rows, labels):
        for place, label in enumerate(given):
            row[place] = label
        row = given
        count(place)
    return torch.tensor(rows)
""".splitlines())  # fmt: skip
    assert 8 in source.look_up("align", 1, 5).feeds
    assert 8 not in source.look_up("align", 1, 6).feeds, "another object of the same name"


def test_a_name_that_is_given_another_value_later_is_left_for_the_next_turn() -> None:
    source = SourceFile(b"""\
def follow(labels):
    for sentence in labels:
        before = 0
        for label in sentence:
            if label != before:
                changed = label
            seen.add(changed)
            before = label
    return 1
""".splitlines())  # fmt: skip
    assert 5 in source.look_up("follow", 1, 8).feeds
    assert source.look_up("follow", 1, 3).feeds == (5, 6, 7)


def test_the_last_statement_of_a_loop_stands_for_the_loop() -> None:
    source = SourceFile(b"""\
def fill(rows):
    out = []
    at = 0
    while at < len(rows):
        out.append(rows[at])
        at += 1
    return out
""".splitlines())  # fmt: skip
    assert source.look_up("fill", 1, 5).feeds == source.look_up("fill", 1, 6).feeds
    assert 7 in source.look_up("fill", 1, 6).feeds


def test_what_is_written_to_a_file_reaches_nobody() -> None:
    effects = FunctionEffects()
    record = SourceFile(b"""\
class Record:
    def note(self, step, loss):
        row = {"step": step, "loss": self.round(loss)}
        self.file.write(json.dumps(row))

    def round(self, value):
        return round(value.item(), 3)

    def keep(self, loss):
        self.kept.append(loss)
""".splitlines(), effects)  # fmt: skip
    train = SourceFile(b"""\
def train(net, record, batches):
    for x in batches:
        loss = net(x)
        record.note(x[0], loss)
        record.keep(loss)
        print(loss.item())
        loss.backward()
""".splitlines(), effects)  # fmt: skip
    assert record.look_up("note", 2, 3).feeds == (4,)
    assert train.look_up("train", 1, 4).feeds == ()
    assert CALLER in train.look_up("train", 1, 5).feeds
    assert train.look_up("train", 1, 6).feeds == ()
    assert 7 in train.look_up("train", 1, 3).feeds


def test_a_function_of_the_program_is_known_better_than_its_name() -> None:
    source = SourceFile(b"""\
class Replay:
    def write(self, row):
        self.rows[self.at] = row

def act(replay, net):
    for x in range(9):
        replay.write(net(x))
""".splitlines())  # fmt: skip
    assert CALLER in source.look_up("act", 5, 7).feeds
