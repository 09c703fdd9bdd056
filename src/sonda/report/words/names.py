"""Names as sentences and tables have them: frameworks, layers and their families, places of a study."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from sonda.analysis.findings import Finding
from sonda.analysis.layer_families import FAMILIES, family_of
from sonda.analysis.summary import Summary
from sonda.analysis.wording import join

FRAMEWORKS = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "pytensor": "PyTensor"}
"""Frameworks as their makers spell them."""

IRREGULAR = {"loss": "losses", "softmax": "softmaxes"}
"""Families of several layers, where an s does not make them."""


def name_family(family: str, count: int = 2) -> str:
    """`convolution`, `convolutions`; a class that is a family of its own keeps its name."""
    return family if count == 1 or family not in FAMILIES else IRREGULAR.get(family, f"{family}s")


def name_layers(class_name: str, count: int = 2) -> str:
    """What layers of a class are called: `Conv2d` -> `convolutions`; an unknown class keeps its name."""
    return name_family(family_of(class_name), count)


MOST_PLACES = 3
"""Places of a study that are named."""


def at_places(names: Sequence[str], places: int) -> str:
    """` with cnn and with resnet50`, ` in 5 of 8 places`; nothing where it holds everywhere."""
    named = [name for name in dict.fromkeys(names) if name]
    if len(names) == places or not named:
        return ""
    if len(named) > MOST_PLACES:
        return f" in {len(names)} of {places} places"
    return " " + join([f"with {name}" for name in named])


LONGEST_PATH = 48
"""Characters of a layer's path that tables and sentences show."""


def short_path(path: str) -> str:
    """A layer's path as a person can read it: what repeats is counted, and of what is still too long the middle goes.

    `inner.inner.lin` stays as it is; with forty times `inner` it is `inner×40.lin`.
    """
    if len(path) <= LONGEST_PATH:
        return path
    counted = [(name, len(list(group))) for name, group in groupby(path.split("."))]
    first, *others = [name if count == 1 else f"{name}×{count}" for name, count in counted]
    if len(".".join((first, *others))) <= LONGEST_PATH:
        return ".".join((first, *others))
    while len(others) > 1 and len(".".join((first, "…", *others))) > LONGEST_PATH:
        del others[0]
    text = ".".join((first, "…", *others) if others else (first,))
    half = LONGEST_PATH // 2
    return text if len(text) <= LONGEST_PATH else f"{text[:half]}…{text[1 - half :]}"


def layer_label(path: str, name: str) -> str:
    """A layer's path; the model itself, which has none, by its class in brackets."""
    return short_path(path) or f"({name})"


PARTS = {"train": "training", "validate": "validation", "test": "test"}
"""Parts of a run as a reader calls them."""
INFERENCE = "inference"


def name_part(name: str, seen: Sequence[str] = ()) -> str:
    """`training`, `validation`; where nothing but a test was `seen`, it is inference."""
    return INFERENCE if list(seen) == ["test"] else PARTS.get(name, name)


def first_part(summary: Summary) -> str:
    """The part that a first screen is about; '' where there is none."""
    return summary.parts[0].name if summary.parts else ""


def call_inference(findings: Iterable[Finding], seen: Sequence[str]) -> tuple[Finding, ...]:
    """These findings; where nothing but a test was `seen`, what is said of it is said of inference."""
    if list(seen) != ["test"]:
        return tuple(findings)
    about = {"part": INFERENCE}
    return tuple(
        replace(finding, **about) if getattr(finding, "part", "") == "test" else finding for finding in findings
    )


LONGEST_EXPRESSION = 32
"""Characters of an expression that stand beside its line."""


def short_expression(text: str) -> str:
    """The beginning of an expression of the program."""
    return text if len(text) <= LONGEST_EXPRESSION else f"{text[: LONGEST_EXPRESSION - 1]}…"
