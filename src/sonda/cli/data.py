"""`sonda data`: data sets for training, prepared from images or drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sonda.cli import completion
from sonda.cli.application import Application, Json, app, hush, put, say, write_json

if TYPE_CHECKING:
    from sonda.workloads.data import Prepared

data = Application(
    help="""Data sets for training: prepare, make, show.

    \b
    sonda data make fish fish --count 100
    sonda data prepare fish --image 197x148
    sonda run resnet18 --train --data fish-prepared --epochs 2
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(data, name="data")


@data.command(short_help="Turn a folder of images into arrays that training maps.")
def prepare(
    folder: Annotated[
        str, typer.Argument(help="One directory per class; or the fish data set, MNIST's or CIFAR-10's files.")
    ],
    out: Annotated[str, typer.Option("--out", "-o", help="Folder to write; FOLDER-prepared by default.")] = "",
    image: Annotated[
        str, typer.Option(help="WIDTHxHEIGHT in pixels, e.g. 197x148; by default the most frequent size.")
    ] = "",
    colour: Annotated[str, typer.Option(help="grey or rgb.", autocompletion=completion.colours)] = "grey",
    seed: Annotated[int, typer.Option(help="Seed of the order of images.")] = 0,
    layout: Annotated[
        str,
        typer.Option(
            help="auto, folder, fish (silhouettes), fish-photos, idx, cifar10.", autocompletion=completion.layouts
        ),
    ] = "auto",
    stretch: Annotated[float, typer.Option(help="Skip images whose width/height is further off the usual.")] = 1.5,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an older data set.")] = False,
    json: Json = False,
) -> None:
    """Turn a folder of images into memory-mapped arrays for training.

    \b
    sonda data prepare fish --image 197x148
    sonda data prepare mnist -o mnist-prepared
    """
    from sonda.workloads.data.preparation import prepare

    place = out or f"{Path(folder).resolve().name}-prepared"
    made = prepare(
        folder, place, image=_parse_size(image) if image else None, colour=colour, seed=seed, layout=layout,
        stretch=stretch, replace=replace, say=say,
    )  # fmt: skip
    hush()
    _show_data_set(made, json)


@data.command(short_help="Draw a data set: silhouettes of nine kinds of fish.")
def make(
    what: Annotated[str, typer.Argument(help="What to draw: fish.", autocompletion=completion.drawn)],
    directory: Annotated[str, typer.Argument(help="Folder to write; it must not exist yet.")],
    count: Annotated[int, typer.Option(help="Images of each kind.")] = 1000,
    image: Annotated[str, typer.Option(help="WIDTHxHEIGHT in pixels.")] = "590x445",
    seed: Annotated[int, typer.Option(help="Another seed draws other fish.")] = 0,
    json: Json = False,
) -> None:
    """Draw a data set: silhouettes of nine kinds of fish, as PNG files in one directory per kind.

    \b
    sonda data make fish fish --count 100
    sonda data prepare fish --image 197x148
    """
    from sonda.record.errors import SondaError, nearest
    from sonda.workloads.data.drawn_fish import KINDS, make_fish

    if what not in completion.DRAWN:
        raise SondaError(f"there is nothing to draw called {what!r}", nearest(what, completion.DRAWN))
    place = make_fish(directory, count=count, image=_parse_size(image), seed=seed, say=say)
    hush()
    if json:
        classes = [kind.name for kind in KINDS]
        write_json({"directory": str(place), "classes": classes, "count": count, "seed": seed}, "drawn data set")
    else:
        put(f"{len(KINDS)} kinds, {count:,} fish each, in {place}. Next: sonda data prepare {place} --image 197x148")


@data.command()
def show(
    directory: Annotated[str, typer.Argument(help="A prepared data set.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read all of it and compare checksums.")] = False,
    split: Annotated[str, typer.Option(help="Say how many images shares have, e.g. 0.85/0.02/0.13.")] = "",
    json: Json = False,
) -> None:
    """Show what a prepared data set contains and how it was made.

    \b
    sonda data show fish-prepared --split 0.85/0.02/0.13
    sonda data show fish-prepared --verify
    """
    from sonda.report.quantities import whole
    from sonda.workloads.data.prepared import load

    data_set = load(directory)
    if verify:
        data_set.verify(lambda done, size: say(f"checksums, {whole(done / 1e6)} of {whole(size / 1e6)} MB"))
        hush()
    _show_data_set(data_set, json, verified=verify, fractions=_parse_fractions(split) if split else [])


def _show_data_set(
    data_set: Prepared, json: bool, verified: bool = False, fractions: list[float] | None = None
) -> None:
    shares = [data_set.labels[share] for share in data_set.split(fractions)] if fractions else []
    tables = [[int((share == kind).sum()) for kind in range(len(data_set.classes))] for share in shares]
    manifest = data_set.manifest
    if json:
        extra: dict[str, Any] = {"shares": tables} if shares else {}
        fields = {"directory": str(data_set.directory), "verified": verified, **_plain(manifest), **extra}
        write_json(fields, "data set")
        return
    from sonda.report.screen import render
    from sonda.report.views.data_set import data_set_blocks

    put(render(data_set_blocks(str(data_set.directory), manifest, tables, verified)))


def _plain(manifest: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(manifest)


def _parse_size(text: str) -> tuple[int, int]:
    from sonda.record.errors import SondaError

    width, cross, height = text.partition("x")
    if not (cross and width.isascii() and width.isdigit() and height.isascii() and height.isdigit()):
        raise SondaError(f"--image {text!r} is not WIDTHxHEIGHT in pixels", "write it like 197x148")
    return int(width[:9]), int(height[:9])


def _parse_fractions(text: str) -> list[float]:
    from sonda.record.errors import SondaError

    try:
        return [float(word) for word in text.split("/")]
    except ValueError:
        raise SondaError(f"--split {text!r} is not a row of fractions", "write it like 0.85/0.02/0.13") from None
