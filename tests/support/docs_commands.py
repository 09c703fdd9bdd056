"""The commands that README and docs show, and the lighter settings under which tests run them."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from places import REPOSITORY

PAGES = [REPOSITORY / "README.md", REPOSITORY / "SKILL.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Shown:
    """A line `sonda …` of a fenced block."""

    page: str
    line: int
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)


@dataclass(frozen=True)
class Block:
    """A fenced block with its language; lines are numbered as in the page."""

    page: str
    line: int
    language: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        name, inside, begin, language = str(page.relative_to(REPOSITORY)), False, 0, ""
        lines: list[str] = []
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith("```"):
                if inside:
                    yield Block(name, begin, language, tuple(lines))
                inside, begin, language, lines = not inside, number, line[3:].strip(), []
            elif inside:
                lines.append(line)


def own_model() -> Block:
    """The file `mine.py` of somebody's own model, data and optimizer."""
    (found,) = (one for one in blocks() if one.page == "docs/training.md" and one.language == "python")
    return found


def own_options() -> set[str]:
    """Options that the functions of `mine.py` name."""
    functions = [node for node in ast.walk(ast.parse(own_model().text)) if isinstance(node, ast.FunctionDef)]
    named = [one.arg for node in functions for one in node.args.args[len(node.args.args) - len(node.args.defaults) :]]
    return {f"--{name.replace('_', '-')}" for name in named}


def shown() -> list[Shown]:
    """Every `sonda …` line of every block without a language of its own; a line that ends in \\ goes on."""
    found = []
    for block in blocks():
        if block.language not in ("", "sh"):
            continue
        lines = iter(enumerate(block.lines, block.line + 1))
        for number, line in lines:
            text = line.removeprefix("$ ")
            if not text.startswith("sonda "):
                continue
            while text.endswith("\\"):
                text = text[:-1] + next(lines)[1]
            found.append(Shown(block.page, number, text))
    return found


def mentioned() -> list[Shown]:
    """Every `sonda …` between backticks in the text of a page."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        text = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
        for match in re.finditer(r"`(sonda [^`]+)`", text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Shown(str(page.relative_to(REPOSITORY)), line, " ".join(match[1].split())))
    return found


# ---- lighter settings -------------------------------------------------------------------------------------------

SMALLER = {
    "--batch": "4",
    "--image": "32x32",
    "--input": "1x3x16x16",
    "--steps": "2",
    "--repeat": "1",
    "--epochs": "1",
    "--size": "64KiB",
    "--cores": "0,0",
    "--idle": "0",
    "--interval": "50ms",
    "--length": "8",
    "--images": "8",
    "--samples": "2",
    "--latency-bound": "20s",
    "--qps": "50",
    "--max-batch": "4",
    "--seconds": "0.2",
}
"""Values that a shown command has where it is run: the same words, less work."""

ADDED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"^run (?!.*(--epochs|sim:|--input|-- |\.py( |$)))\S", ("--steps", "2", "--warmup", "1")),
    (r"^run (?!.*sim:).*--input", ("--steps", "2", "--warmup", "1")),
    (r"^(run|serve) (?!.*(--on|-- |\.py( |$)))\S", ("--threads", "1")),
    (r"^run (?!.*(-- |\.py )).*--epochs", ("--images", "8")),
    (r"^run resnet34 .*--epochs.*--data (?!.*nodes)", ("--tag", "trained")),
    (r"^(run|serve|explore|verify scalesim) resnet(?!.*(--data|--weights))", ("--image", "32x32")),
    (r"^run (resnet|cnn)(?!.*--data)", ("--batch", "4")),
    (r"^serve", ("--queries", "64", "--percentile", "90")),
    (r"^corun", ("--seconds", "0.2", "--timeout", "120", "--repeat", "1")),
    (r"^energy ", ("--idle", "0")),
    (r"^data make", ("--count", "2", "--image", "60x45")),
    (r"^study (?!dlrm|my-study|$)(?!.*--(plan|show))", ("--plan",)),
    (r"^study dlrm-accelerator(?!.*--(scale|plan|show|on-cluster))", ("--plan",)),
)
"""Options that are added by the form of a command. Measured studies show their plan: they take minutes to hours, and
what measures them is tested with small studies of its own (test_study_engine.py)."""

INSTEAD: dict[str, str] = {
    r"\bID ID\b": "kept another",
    r"(?<!-)\b(ID|last)\b": "kept",
    r"\bRUN\b": "trained",
    r"tcp://10\.0\.0\.1:8786": "tcp://127.0.0.1:9",
    r"^data make fish fish\b": "data make fish drawn-fish",
    r"drawn-fish --count 100": "counted-fish --count 3",
    r"--trace trace\.json\.gz": "--trace again.json.gz",
    r"^study mine\.toml": "study my-study.toml",
    r"^tag (\S+) main": r"tag \1 named",
    r"^data prepare fish --image \S+": "data prepare fish --image 20x15 -o fish-again",
    r"^data prepare mnist\b": "data prepare mnist -o mnist-again",
    r"^data prepare photos .*": "data prepare photos --colour rgb --image 8x8 -o small",
    r"--data /shared/fish": "--data fish-prepared",
    r"cmd:python train\.py'": "cmd:python train.py --epochs 100000'",  # for as long as others are measured
    r"-- python train\.py$": "-- python train.py --epochs 1",  # as another page shows it
    # One program more, so that README's is that of the help.
    r"^corun 'mlp --train' (cnn )?stress-bandwidth": "corun 'mlp --train' 'cnn --batch 4' stress-bandwidth",
    r"-- make$": "-- true",
    r"-- \./a\.out$": "-- true",
    r"latency_cycles=10\.\.200\+2": "latency_cycles=10..200+95",
    r"multipliers=64\.\.1024\*2": "multipliers=64,256",
    r"multipliers(,perceptrons\.read_ports)?=128\.\.1024\*2": r"multipliers\1=128..256*2",
    r"buffer_KiB=64\.\.4096\*2": "buffer_KiB=64,4096",
    r"8:8:16,16:16:32,32:32:64": "8:8:16,16:16:32",
    r"--preset 50-1M-20-100": "--preset 5-1M-20-100",
}
"""Words of a page that stand for something of the reader's, and spaces that would take long."""

LACKING = ("cuda:", "slurm:", "tcp://", "energy ", "--probe energy", "--record", "perf-stat", "papi", "--probe ncu",
           "--mlflow", "--wandb")  # fmt: skip
"""Words of commands that need something a machine, or a new store, may lack. There they must end with one line and exit
code 2; 125 where they would have wrapped a program."""

ELSEWHERE = {
    r"^run .*--try": "test_job_trial.py::test_base_and_remedies_take_turns",
    r"^doctor --validate": "test_validation.py::test_the_command_says_what_differs_in_its_exit_code",
    r"^run .*@nodes=2,at=": "test_parallel_nodes.py::test_two_nodes_train_and_the_first_keeps_one_run",
    r"^run .*--on-cluster local": "test_training_jobs.py::test_a_command_trains_on_nodes_that_submitit_starts",
    r"^run .*--on (ddp|hybrid)=cpu/": "test_parallel_spans.py::test_ranks_of_a_hybrid_become_one_run",
    r"^run .*--probe callgrind": "test_modelled_pass.py::test_an_unmodified_program_is_modelled_layer_by_layer",
    r"^study dlrm-accelerator --scale small": "test_docs_outputs.py::"
    "test_what_no_machine_changes_comes_out_as_it_is_shown",
    r"^run mlp --probe warm": "test_extending.py::test_a_workload_and_ranks_are_run_again_by_the_own_instrument",
    r"^run --probe warm -- ": "test_extending.py::"
    "test_an_unmodified_program_is_read_by_the_own_probe_and_the_own_instrument_too",
    r"autoencoder|sim:small-mesh": "test_extending.py::test_the_own_workload_has_the_table_of_any_other",
}
"""Commands that take minutes, two machines or a package of one's own, and the test that runs what they do."""

FIRST = {
    r"^(compare|report) main head": ("--tag main", "--tag head"),
    r"^compare before after": ("--tag before", "--tag after"),
    r"^compare slow mended": ("--tag slow", "--tag mended"),
    r"--weights trained": ("--tag trained",),
}
"""What must have been run before, as words of other shown commands."""

MAY_FAIL = r"^compare (main head|before after|slow mended)"
"""Exit code 1 is an answer there: the runs of a busy machine may differ."""

FRAMEWORKS = r"--framework (tensorflow|jax|pytensor)|keras_fit\.py|tf-models:"
"""Commands that need another framework than PyTorch: tests/frameworks runs them."""


def lacks_test(name: str, tests: Path = REPOSITORY / "tests") -> str:
    """Why a test `file.py::function` that is said to run something does not; '' where it is there and may run."""
    file, _, function = name.partition("::")
    place = next(tests.rglob(file), None)
    if place is None:
        return f"there is no {file}"
    for node in ast.walk(ast.parse(place.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            skipped = any("mark.skip(" in ast.unparse(mark) for mark in node.decorator_list)
            return f"{name} is skipped" if skipped else ""
    return f"{file} has no {function}"


def _place_of_program(words: list[str]) -> int:
    """Where a program begins, behind `--` or without it; the end where none is named."""
    named = (place for place, word in enumerate(words) if word in ("--", "python") or word.endswith(".py"))
    return next(named, len(words)) if {"run", "energy"} & set(words[:2]) else len(words)


def lighter(words: list[str]) -> list[str]:
    """The words after `sonda` as they are run: the same options, smaller values."""
    cut = _place_of_program(words)
    ours, theirs = words[1:cut], words[cut:]
    if ours[0] not in ("study", "data"):
        for place, word in enumerate(ours[:-1]):
            if word in SMALLER and not (word == "--image" and "x" not in ours[place + 1]):
                ours[place + 1] = SMALLER[word]
    text = shlex.join([*ours, *theirs])
    for pattern, word in INSTEAD.items():
        text = re.sub(pattern, word, text)
    words = shlex.split(text)
    cut = _place_of_program(words)
    for pattern, more in ADDED:
        if re.search(pattern, text):
            new = [w for pair in zip(more[::2], more[1::2], strict=False) if pair[0] not in words for w in pair]
            words[cut:cut] = new if len(more) > 1 else list(more)
            cut = _place_of_program(words)
    return words
