"""`sonda data`: what a user meets."""

from __future__ import annotations

import json
from pathlib import Path

from command_line import run_command
from data_examples import grey_png, write_folder


def test_make_prepare_and_show(tmp_path: Path) -> None:
    made = run_command(tmp_path, "data", "make", "fish", "fish", "--count", "2", "--image", "59x44")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout == "9 kinds, 2 fish each, in fish. Next: sonda data prepare fish --image 197x148\n"
    prepared = run_command(tmp_path, "data", "prepare", "fish", "--image", "20x15", "--seed", "3")
    assert prepared.returncode == 0
    lines = prepared.stdout.splitlines()
    # 128 bytes of header and 18 images of 20 x 15 values of 2 bytes.
    assert lines[0] == "fish-prepared"
    assert lines[2] == "  18 images of 20x15, grey, float16 in [0, 1], 0.0 MB."
    assert lines[3].startswith("  From fish (fish), seed 3, sonda ")
    assert "  Black Sea Sprat           2" in lines
    shown = run_command(tmp_path, "data", "show", "fish-prepared", "--verify", "--split", "0.5/0.5")
    rows = [line.rsplit(maxsplit=3) for line in shown.stdout.splitlines()]
    assert ["  Black Sea Sprat", "2", "1", "1"] in rows and ["  together", "18", "9", "9"] in rows
    assert "0.0 MB. Its checksums are right." in shown.stdout
    assert shown.stdout.splitlines()[-1] == "  Train on it: sonda run resnet18 --train --epochs 2 --data fish-prepared"
    document = json.loads(run_command(tmp_path, "data", "show", "fish-prepared", "--json").stdout)
    assert document["shape"] == [18, 1, 15, 20]
    assert document["files"]["images.npy"]["bytes"] == 128 + 18 * 20 * 15 * 2
    assert document["verified"] is False


def test_skipped_images_are_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set", {"a\x1b[31m": [1, 2, 3]})
    for number in range(7):
        (folder / "a\x1b[31m" / f"bad{number}.png").write_bytes(grey_png(1)[:50])
    done = run_command(tmp_path, "data", "prepare", "set", "-o", "out")
    assert "  Skipped 7\n" in done.stdout
    assert "bad0.png: " in done.stdout
    assert "bad5" not in done.stdout and "    and 2 more, in manifest.json" in done.stdout
    assert "\x1b" not in done.stdout
    assert len(json.loads((tmp_path / "out" / "manifest.json").read_text())["skipped"]) == 7


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    for words, message in (
        (["prepare", "missing"], "there is no folder missing; give a folder of images"),
        (["prepare", "x", "--image", "197"], "--image '197' is not WIDTHxHEIGHT in pixels; write it like 197x148"),
        (["make", "cats", "x"], "there is nothing to draw called 'cats'; known: fish"),
        (["show", "."], ". is no prepared data set: it has no manifest.json; make one with: sonda data prepare FOLDER"),
    ):
        done = run_command(tmp_path, "data", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"sonda: {message}")
