"""Imports the user's file and calls the factory in it. Every failure becomes a one-line error."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch import nn

from sonda.record.errors import SondaError, nearest
from sonda.workloads.description import SWITCH

if TYPE_CHECKING:
    from sonda.workloads.own_model import OwnModel

TAKES_A_WORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def make_model(own: OwnModel, module: ModuleType) -> tuple[nn.Module, Any]:
    """The model of an imported file, and its inputs where the factory returns them; else None."""
    if not hasattr(module, own.factory):
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise SondaError(f"{own.path.name} has no {own.factory!r}", nearest(own.factory, known))
    factory = getattr(module, own.factory)
    if isinstance(factory, nn.Module):
        made: Any = factory
    elif callable(factory):
        made = call_function(own, factory)
    else:
        raise SondaError(
            f"{own.name} is of type {type(factory).__name__}", "name a function that returns a torch.nn.Module"
        )
    model, inputs = made if isinstance(made, (tuple, list)) and len(made) == 2 else (made, None)
    if not isinstance(model, nn.Module):
        raise SondaError(
            f"{own.name} returns a {type(made).__name__}, not a model",
            "return a torch.nn.Module, or a module and its inputs",
        )
    return model, inputs


def import_file(path: Path, digest: str) -> ModuleType:
    """Import the file as a module. Its directory is put first on sys.path and stays there, as for a script."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    # A unique name: a file called torch.py must not replace another module.
    name = f"sonda_own_{path.stem}_{digest[:8]}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SondaError(f"{path.name} cannot be imported", "use a file that ends in .py")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise SondaError(f"{path.name} does not import: {explain_error(error, path)}", "mend the file") from error
    return module


def call_function(own: OwnModel, function: Callable[..., Any], name: str = "", *arguments: Any) -> Any:
    """Call the factory, or another function `name` of the file, with these arguments and the options that it takes."""
    title = f"{own.path.name}: {name}" if name else own.name
    named, takes_any = named_parameters(function, len(arguments))
    words = {
        key: convert_option(own, key, text, named.get(key))
        for key, text in own.options.items()
        if key in named or takes_any
    }
    missing = [key for key, entry in named.items() if entry.default is inspect.Parameter.empty and key not in words]
    if missing:
        raise SondaError(f"{title} needs {', '.join(missing)}", f"set {missing[0]}=..., or give it a default")
    try:
        return function(*arguments, **words)
    except (Exception, SystemExit) as error:
        raise SondaError(f"{title} raises {explain_error(error, own.path)}", f"mend {name or 'the factory'}") from error


def refuse_unknown_options(own: OwnModel, functions: Sequence[Any]) -> None:
    """Raise SondaError for an option that none of these functions takes. The first of them is the factory."""
    if functions[0] is None:
        return  # a missing factory is reported elsewhere
    signatures = [named_parameters(function) for function in functions if not isinstance(function, nn.Module)]
    if any(takes_any for _, takes_any in signatures):
        return
    known = [name for named, _ in signatures for name in named]
    for key in own.options:
        if key not in known:
            if not known and isinstance(functions[0], nn.Module):
                raise SondaError(f"{own.name} is a module, not a factory", f"leave out {', '.join(own.options)}")
            raise SondaError(f"{own.name} takes no option {key!r}", nearest(key, [*known, "input", "loss"]))


def named_parameters(function: Any, given: int = 0) -> tuple[dict[str, inspect.Parameter], bool]:
    """The parameters that a function takes by name after `given` positional ones, and whether it takes any name."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[given:]
    except (TypeError, ValueError):
        parameters = []
    named = {parameter.name: parameter for parameter in parameters if parameter.kind in TAKES_A_WORD}
    return named, any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


def convert_option(own: OwnModel, key: str, text: str, parameter: inspect.Parameter | None) -> Any:
    """An option's text in the type of the parameter's annotation or default; without either, a number if it is one."""
    wanted: Any = None
    if parameter is not None:
        wanted = parameter.annotation
        if wanted is inspect.Parameter.empty:
            wanted = type(parameter.default)
        wanted = getattr(wanted, "__name__", wanted)
    try:
        match wanted:
            case "str":
                return text
            case "bool":
                return SWITCH.parse(text)
            case "int":
                return int(text)
            case "float":
                return float(text)
    except ValueError:
        raise SondaError(f"{own.name}: {key}={text} is not {wanted}", f"give a value of type {wanted}") from None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def explain_error(error: BaseException, path: Path) -> str:
    """The exception's type and message, and the last line of the user's file in its traceback."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(path) else None
    if line is None:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = lines[-1] if lines else None
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    where = f" (line {line} of {path.name})" if line else ""
    return f"{type(error).__name__}: {message}{where}" if message else f"{type(error).__name__}{where}"
