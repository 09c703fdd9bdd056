"""Help: examples that parse, names that are suggested, words that a shell completes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from builders import stepped
from command_line import run_command
from help_cases import ALL, WHOLE, examples
from sonda.cli import app
from sonda.cli.building import build_command
from sonda.cli.completion import answer_shell
from sonda.cli.help import GROUPS
from sonda.cli.program_words import split_program
from sonda.record.run import write_run
from sonda.record.store import Store


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that examples run are there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")


@pytest.mark.parametrize("name", ALL)
def test_every_help_has_examples_of_itself_that_the_command_line_takes(name: str) -> None:
    found = examples(ALL[name])
    assert found, f"sonda {name} --help has no example"
    assert any(words[1 : 1 + len(name.split())] == name.split() for words in found)
    for words in found:
        parse(words[1:])


@pytest.mark.parametrize("words", [(), ("data",)])
def test_a_list_of_commands_cuts_no_sentence(
    place: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = run_command(place, *words, "--help").stdout.partition("Commands:")[2]
    assert len(listed.strip().splitlines()) == len(ALL[" ".join(words)].commands)
    assert "..." not in listed


def parse(words: list[str]) -> None:
    """Take these words as the command line does, without running anything. Raises what a user would be told."""
    line, program = list(words), None
    command: Any = WHOLE
    while getattr(command, "commands", None):
        command = command.commands[line.pop(0)]
    if command.name in ("run", "energy"):
        line, program = split_program(line, command)
    check_workload(command.make_context(command.name, line, obj=program))


def check_workload(context: Any) -> None:
    """Options that belong to a workload are known to it; targets can be read, studies and accelerators are there."""
    from sonda.targets.job import parse_options
    from sonda.targets.target import parse_target
    from sonda.workloads.catalogue import describe
    from sonda.workloads.own_model import is_own

    workload = context.params.get("workload") or ""
    if workload and not is_own(workload):
        describe(workload, parse_options(context.args, {}))
    on = context.params.get("on") or []
    for target in [on] if isinstance(on, str) else on:
        for device in parse_target(target).devices:
            if device.kind == "sim":
                from sonda.accelerators.description.accelerator import load_accelerator

                load_accelerator(device.name)


def test_an_example_that_is_wrong_would_be_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["ls", "--al"])
    with pytest.raises(Exception, match="no option 'bach'"):
        parse(["run", "mlp", "--bach", "3"])


UNKNOWN = {
    "a command": (("rnu", "mlp"), "there is no command 'rnu'; did you mean 'run'?"),
    "a command of a group": (("data", "prepair"), "there is no command 'prepair'; did you mean 'prepare'?"),
    "a command like nothing": (("zzz",), "there is no command 'zzz'; see: sonda --help"),
    "an option": (("ls", "--al"), "there is no option '--al'; did you mean '--all'?"),
    "an option of run": (("run", "mlp", "--trian"), "mlp has no option 'trian'; did you mean '--train'?"),
    "an option of a workload": (("run", "mlp", "--bach", "3"), "mlp has no option 'bach'; did you mean 'batch'?"),
    "an option of an exploration": (("explore", "mlp", "--varry", "x=1"), "did you mean '--vary'?"),
    "a workload": (("run", "resnt34"), "there is no workload 'resnt34'; did you mean 'resnet34'?"),
    "a workload of several": (("corun", "mpl", "cnn"), "there is no workload 'mpl'; did you mean 'mlp'?"),
    "a device": (("run", "mlp", "--on", "cup/2"), "'cup/2' is not a device; did you mean 'cpu'?"),
    "a mode": (("run", "mlp", "--on", "hybird=cpu/1+cpu/1"), "unknown mode 'hybird'; did you mean 'hybrid'?"),
    "an accelerator": (("run", "mlp", "--on", "sim:maery-256"), "did you mean 'maeri-256'?"),
    "a field of an accelerator": (("run", "dlrm", "--on", "sim:maeri-256", "--set", "multiplers=8"), "'multipliers'?"),
    "a mapping": (("run", "dlrm", "--on", "sim:maeri-256", "--mapping", "beste"), "did you mean 'best'?"),
    "a study": (("study", "sixoperations"), "there is no study 'sixoperations'; did you mean 'six-operations'?"),
    "a scale": (("study", "six-operations", "--scale", "smal", "--plan"), "did you mean 'small'?"),
    "a probe": (("run", "mlp", "--on", "cpu/1", "--probe", "calgrind"), "did you mean 'callgrind'?"),
    "a framework": (("run", "mlp", "--framework", "torhc"), "framework 'torhc' is not there; did you mean 'torch'?"),
    "a precision": (("run", "mlp", "--precision", "flaot32"), "did you mean 'float32'?"),
    "a scenario": (("serve", "mlp", "--scenario", "sever"), "there is no scenario 'sever'; did you mean 'server'?"),
    "a run": (("show", "bsae"), "no run, tag or path 'bsae' in store; did you mean 'base'?"),
    "a tag to take off": (("tag", "base", "bsae", "--remove"), "base has no tag 'bsae'; did you mean 'base'?"),
    "the newest run": (("show", "lats"), "did you mean 'last'?"),
    "a simulator": (("verify", "ston"), "nothing is known of 'ston'; did you mean 'stonne'?"),
    "a data set": (("data", "make", "fich", "here"), "there is nothing to draw called 'fich'; did you mean 'fish'?"),
    "a layout": (("data", "prepare", "store", "--layout", "fisch"), "there is no layout 'fisch'; did you mean 'fish'?"),
    "a colour": (("data", "prepare", "store", "--colour", "gray"), "there is no colour 'gray'; did you mean 'grey'?"),
    "a binding": (("run", "mlp", "--bind", "sprad"), "did you mean 'spread'? Or a list: 0,2,4-7"),
    "a transfer": (("run", "mlp", "--train", "--epochs", "1", "--transfer", "upfront"), "did you mean 'up-front'?"),
    "a backend": (("run", "mlp", "--train", "--on", "ddp=cpu/1+cpu/1@backend=glo"), "did you mean 'gloo'?"),
    "a type of an input": (("run", "model.py:build", "--input", "8x4:int46"), "did you mean 'int64'?"),
    "a statistic": (("study", "six-operations", "--show", "--statistics", "meen"), "did you mean 'mean'?"),
    "a preset": (
        ("run", "dlrm", "--preset", "5-1M-20-10"),
        "did you mean '5-1M-20-100'?",
    ),
    "an operation": (
        ("run", "ops", "--op", "add,sigmod"),
        "cannot be read; did you mean 'sigmoid'?",
    ),
    "a figure": (("study", "mine.toml", "--plan"), "'cycels@top' is not a metric; did you mean 'cycles@top'?"),
    "a participant": (("corun", "mlp", "cnn", "--partition", "mpl=0xf"), "'mpl' takes no part; did you mean 'mlp'?"),
    "a workload like nothing": (("run", "zzz"), "or sonda run mlp"),
}


MISSPELT = """
[study]
name = "mine"
metrics = ["cycels@top"]
[workload]
name = "mlp"
on = "sim:maeri-256"
[axes]
batch = [1, 2]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A directory with a model and a study, whose store has one run with a tag."""
    directory = tmp_path_factory.mktemp("place")
    (directory / "model.py").write_text("def build(): ...\n")
    (directory / "mine.toml").write_text(MISSPELT)
    made = stepped([10.0, 10.0, 10.0], id="7f3a9c21d04e")
    write_run(directory / "store", made.info, made.spans)
    Store(directory / "store").tag(made.id, "base")
    return directory


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_name_is_answered_with_the_nearest(place: Path, case: str) -> None:
    words, expected = UNKNOWN[case]
    done = run_command(place, *words, home=Path("store"))
    assert done.returncode == 2, done.stdout
    assert expected in done.stderr and len(done.stderr.strip().splitlines()) == 1


COMPLETED = {
    "a command": (("re",), {"report"}),
    "an option": (("run", "mlp", "--fr"), {"--framework"}),
    "an option of the workload": (("run", "dlrm", "--pre"), {"--precision", "--prefetch", "--preset"}),
    "an option of a workload to serve": (("serve", "cnn", "--im"), {"--image"}),
    "an option of a workload that is none": (("run", "none", "--im"), {"--images"}),
    "a workload": (("run", "res"), {"resnet18", "resnet34", "resnet50"}),
    "a workload to serve": (("serve", "tr"), {"transformer"}),
    "a workload to explore": (("explore", "dl"), {"dlrm"}),
    "a target": (("run", "mlp", "--on", "cp"), {"cpu", "cpu/"}),
    "an accelerator, as bash splits it": (("run", "mlp", "--on", "sim", ":", "tpu-1"), {"tpu-16x16", "tpu-128x128"}),
    "an option and its value in one": (("run", "mlp", "--framework", "=", "j"), {"jax"}),
    "a study": (("study", "six"), {"six-operations"}),
    "a tag": (("show", "ba"), {"base"}),
    "a run": (("compare", "base", "7"), {"7f3a"}),
    "a probe": (("run", "mlp", "--probe", "call"), {"callgrind"}),
    "a scenario": (("serve", "mlp", "--scenario", "s"), {"single-stream", "server"}),
    "a scale of the study": (("study", "six-operations", "--scale", "g"), {"gpu"}),
    "a mapping": (("explore", "dlrm", "--mapping", ""), {"stonne", "best"}),
    "a binding": (("run", "mlp", "--bind", "sp"), {"spread"}),
    "a transfer": (("run", "mlp", "--transfer", "up"), {"up-front"}),
    "a backend": (("serve", "mlp", "--backend", "l"), {"loadgen"}),
    "a precision to serve with": (("serve", "mlp", "--precision", "mixed_f"), {"mixed_float16"}),
    "a tag to give": (("run", "mlp", "--tag", ""), {"base"}),
    "a tag to take off": (("tag", "7f3a", ""), {"base"}),
    "a simulator": (("verify", "sc"), {"scalesim"}),
    "a model to verify": (("verify", "scalesim", "resnet5"), {"resnet50"}),
    "a program to run beside others": (("corun", "stress-c"), {"stress-cache", "stress-compute"}),
    "a data set": (("data", "make", ""), {"fish"}),
    "a layout": (("data", "prepare", "x", "--layout", "f"), {"folder", "fish", "fish-photos"}),
    "nothing like it": (("run", "qqq"), set()),
}


@pytest.mark.parametrize("case", COMPLETED)
def test_a_shell_completes_names(place: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    words, expected = COMPLETED[case]
    monkeypatch.setenv("_SONDA_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(("sonda", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    done = run_command(place, home=Path("store"))
    assert set(done.stdout.split()) == expected


def test_zsh_is_given_whole_words(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_SONDA_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "sonda run mlp --on sim:maer")
    assert r"sim\\:maeri-256" in run_command(place, home=Path("store")).stdout


def test_words_after_the_one_that_is_completed_are_left_alone() -> None:
    asked = {"_SONDA_COMPLETE": "complete_bash", "COMP_WORDS": "sonda\nrun\nmlp\n--on\nsim\n:\nm\n--set\na\n=\n1"}
    asked["COMP_CWORD"] = "6"
    answer_shell(lambda: None, asked)
    words = asked["COMP_WORDS"].split("\n")
    assert words[int(asked["COMP_CWORD"])] == "sim:m" and words[:4] == ["sonda", "run", "mlp", "--on"]


def test_only_the_command_that_is_asked_for_is_built_whole() -> None:
    listing, running = build_command(app, ["--help"]), build_command(app, ["run", "mlp"])
    assert list(listing.commands) == list(WHOLE.commands) == list(running.commands)
    assert not [one for one in listing.commands["run"].params if one.name != "help"]
    assert [one.name for one in running.commands["run"].params] == [one.name for one in ALL["run"].params]
    assert listing.commands["run"].get_short_help_str() == ALL["run"].get_short_help_str()


def test_the_version_is_said(place: Path) -> None:
    from sonda.version import VERSION

    done = run_command(place, "--version")
    assert (done.returncode, done.stdout) == (0, f"sonda {VERSION}\n")


@pytest.mark.parametrize("words", [(), ("data",)])
def test_nothing_asked_is_help(place: Path, words: tuple[str, ...]) -> None:
    done = run_command(place, *words)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("Usage: sonda")


def options_named(name: str, option: str) -> str:
    (found,) = (one for one in ALL[name].params if option in one.opts)
    return found.help


def test_the_help_of_run_names_everything_that_there_is() -> None:
    """What a shell would offer after Tab is in the text too, for whoever has no completion."""
    from sonda.targets.adapters.registry import FRAMEWORKS
    from sonda.targets.instruments.registry import probe_names
    from sonda.targets.job import PRECISIONS
    from sonda.targets.target import KINDS, MODES
    from sonda.workloads.catalogue import BUILT_IN

    for option, names in (
        ("workload", BUILT_IN), ("--on", (*KINDS, *MODES)), ("--framework", FRAMEWORKS), ("--probe", probe_names()),
        ("--precision", PRECISIONS),
    ):  # fmt: skip
        words = set(re.findall(r"[\w-]+", options_named("run", option)))
        assert [name for name in names if name not in words] == [], option


@pytest.mark.parametrize("words", [("run", "mlp", "--help"), ("serve", "--help", "mlp"), ("explore", "mlp", "--help")])
def test_help_beside_a_workload_lists_its_options(place: Path, words: tuple[str, ...]) -> None:
    done = run_command(place, *words)
    usual, _, own = done.stdout.partition("\nOptions of mlp, with their defaults:\n")
    assert done.returncode == 0 and usual.startswith(f"Usage: sonda {words[0]}")
    # By hand: the perceptron of the MNIST study, 784 inputs, 192 hidden, 10 classes, batches of 50.
    assert "  --layers 784-192-10\n" in own and "  --batch 50\n" in own and "  --learning-rate 0.5\n" in own


def test_help_lists_the_presets_of_dlrm_and_nothing_beside_no_workload(place: Path) -> None:
    own = run_command(place, "run", "dlrm", "--help").stdout.partition("Options of dlrm")[2]
    assert "--arch-interaction-itself false" in own and "5-1M-20-100" in own
    for words in (("run", "--help"), ("ls", "--help"), ("--help",)):
        assert "Options of " not in run_command(place, *words).stdout


TYPES = re.compile(r"<\w|\b(str|int|float|bool|list|path|TEXT|INTEGER|FLOAT|PATH|RANGE)\b(?!\.)")
MOST_OPTIONS = 10


@pytest.mark.parametrize("name", [name for name in ALL if name])
def test_help_names_values_by_what_they_are_and_lists_what_a_newcomer_needs(place: Path, name: str) -> None:
    for asked in ("--help", "--help-all"):
        text = run_command(place, *name.split(), asked).stdout
        options = [line.split("  ")[1] for line in text.splitlines() if line.startswith("  -")]
        assert text.startswith("Usage: sonda")
        assert [line for line in options if TYPES.search(line)] == []
        known = {option for param in ALL[name].params for option in getattr(param, "opts", ()) if option[:2] == "--"}
        shown = {word.rstrip(",") for line in options for word in line.split() if word.startswith("--")}
        if asked == "--help":
            assert len(options) <= MOST_OPTIONS + 1, "and --help-all"
        elif not getattr(ALL[name], "commands", None):
            assert known - {"--help"} <= shown


def test_options_of_run_stand_below_the_question_that_they_answer(place: Path) -> None:
    text = run_command(place, "run", "--help").stdout
    titles = [line.rstrip(":") for line in text.splitlines() if re.fullmatch(r"[A-Z][\w ]+:", line)]
    assert titles == ["Arguments", "What", "Where", "How long", "What to count", "Output", "More"]


def test_every_group_names_options_that_there_are() -> None:
    for name, groups in GROUPS.items():
        known = {param.name for param in ALL[name].params}
        assert {option for options in groups.values() for option in options} <= known
