"""A study file: found by path or by the name of a published study, parsed, and checked."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

from sonda.record.errors import SondaError, nearest
from sonda.studies.file.check import Vocabulary, check
from sonda.studies.file.lines import key_lines
from sonda.studies.file.mistakes import StudyMistakes
from sonda.studies.file.study import Study

SUFFIX = ".toml"


def published_studies() -> tuple[str, ...]:
    """Names of the studies that come with Sonda."""
    folder = resources.files("sonda.studies") / "published"
    return tuple(sorted(entry.name.removesuffix(SUFFIX) for entry in folder.iterdir() if entry.name.endswith(SUFFIX)))


def load_study(reference: str, vocabulary: Vocabulary | None = None) -> Study:
    """The study at a path, or the published study of that name.

    Raises StudyMistakes with everything that is wrong in the file, and SondaError when there is no such file or it is
    not TOML. `vocabulary` says which workloads, options and targets there are: those of this Sonda unless told.
    """
    if vocabulary is None:
        from sonda.studies.file.vocabulary import vocabulary_of_sonda

        vocabulary = vocabulary_of_sonda()
    file, text = _find(reference)
    return read_study(text, file, vocabulary)


def read_study(text: str, file: str, vocabulary: Vocabulary) -> Study:
    """The study that the text of a file describes; `file` is its name in messages."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SondaError(f"{file} is not TOML: {error}", "see https://toml.io") from None
    except RecursionError:
        raise SondaError(f"{file} is nested too deeply", "a study needs three levels") from None
    study, mistakes = check(document, key_lines(text), vocabulary)
    if mistakes:
        raise StudyMistakes(file, mistakes)
    return study


def _find(reference: str) -> tuple[str, str]:
    """Name and text of a study's file."""
    names = published_studies()
    if reference in names:
        file = resources.files("sonda.studies") / "published" / f"{reference}{SUFFIX}"
        return file.name, file.read_text(encoding="utf-8")
    path = Path(reference)
    if not path.exists() and path.suffix != SUFFIX and len(path.parts) == 1:
        raise SondaError(f"there is no study {reference!r}", nearest(reference, names))
    try:
        return str(path), path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise SondaError(f"{path} is not UTF-8 text (byte {error.start})", "save it as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SondaError(f"cannot read the study {path}: {reason}", nearest(path.stem, names)) from None
