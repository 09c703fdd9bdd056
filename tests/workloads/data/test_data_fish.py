"""Drawn fish: the same by seed, at any size, in the layout of the photographed ones, and no easy prey."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from sonda.record.errors import SondaError
from sonda.workloads.data import drawn_fish as fish_set
from sonda.workloads.data import make_fish, prepare
from sonda.workloads.data.drawn_fish import HEIGHT, KINDS, WIDTH, draw_fish
from sonda.workloads.data.image_file import read_image
from sonda.workloads.data.resize import resize


def test_each_image_is_its_own_seed_s() -> None:
    first = draw_fish(3, 7, seed=1, width=148, height=112)
    assert first.shape == (112, 148) and first.dtype == bool
    assert np.array_equal(first, draw_fish(3, 7, seed=1, width=148, height=112))
    for other in (draw_fish(3, 8, 1, 148, 112), draw_fish(4, 7, 1, 148, 112), draw_fish(3, 7, 2, 148, 112)):
        assert not np.array_equal(first, other)


def test_the_same_fish_at_any_size() -> None:
    for kind in range(9):
        fine = draw_fish(kind, 1).astype(np.float32)
        coarse = draw_fish(kind, 1, width=148, height=112)
        assert fine.shape == (HEIGHT, WIDTH)
        # 590x445 and 148x112 are not quite the same shape: a few pixels at the outline differ.
        shrunk = resize(fine[None, None], 148, 112)[0, 0] > 0.5
        assert (shrunk != coarse).sum() < 0.2 * coarse.sum()


def test_every_fish_is_one_to_see() -> None:
    shares = [draw_fish(kind, number, 0, 118, 89).mean() for kind in range(9) for number in range(40)]
    assert min(shares) > 0.01 and max(shares) < 0.35
    assert len({kind.name for kind in KINDS}) == 9


def invariants(image: np.ndarray) -> list[float]:
    """What neither place, size nor angle changes: a few ratios of moments (Hu, 1962), and of the hull's side."""
    rows, columns = np.nonzero(image)
    points = np.stack([columns - columns.mean(), rows - rows.mean()])
    area = float(len(rows))
    values, vectors = np.linalg.eigh(points @ points.T / area)
    along, across = vectors[:, 1] @ points, vectors[:, 0] @ points
    skew = abs((along**3).mean()) / values[1] ** 1.5
    tails = (along**4).mean() / values[1] ** 2, (across**4).mean() / values[0] ** 2
    return [float(np.log(values[1] / values[0])), skew, *tails, values[1] / area, values[0] / area]


def right_by_least_squares(features: np.ndarray, labels: np.ndarray, known: np.ndarray) -> float:
    """Share of the unknown ones that a ridge regression on the known ones names rightly."""
    features = (features - features[known].mean(0)) / (features[known].std(0) + 1e-3)
    features = np.hstack([features, np.ones((len(features), 1))])
    matrix = features[known]
    weights = matrix.T @ np.linalg.solve(matrix @ matrix.T + 10.0 * np.eye(len(matrix)), np.eye(9)[labels[known]])
    return float((np.argmax(features[~known] @ weights, axis=1) == labels[~known]).mean())


def test_kinds_are_in_the_shape_and_not_in_the_pixels() -> None:
    count = 60
    drawn = [draw_fish(kind, number, 0, 118, 89) for kind in range(9) for number in range(count)]
    labels = np.repeat(np.arange(9), count)
    known = np.tile(np.arange(count) < 40, 9)
    shapes = np.array([invariants(image) for image in drawn])
    shapes = np.hstack([shapes, shapes**2, shapes[:, :1] * shapes])
    pixels = np.stack([resize(image[None, None].astype(np.float32), 30, 22).reshape(-1) for image in drawn])
    by_shape = right_by_least_squares(shapes, labels, known)
    by_pixels = right_by_least_squares(pixels, labels, known)
    # One in nine is chance. Six numbers of the shape tell more than 660 pixels do, and are far from telling all.
    assert by_shape > 2 * by_pixels
    assert by_pixels < 0.3
    assert 0.4 < by_shape < 0.9


def test_the_layout_is_the_photographed_fish_s(tmp_path: Path) -> None:
    make_fish(tmp_path / "fish", count=2, image=(59, 44), seed=4)
    assert sorted(path.name for path in (tmp_path / "fish").iterdir()) == sorted(
        [*(kind.name for kind in KINDS), "drawn.json"]
    )
    file = tmp_path / "fish" / "Hourse Mackerel" / "Hourse Mackerel GT" / "00002.png"
    assert np.array_equal(read_image(file)[..., 0] == 255, draw_fish(2, 2, 4, 59, 44))
    made = prepare(tmp_path / "fish", tmp_path / "out")
    assert made.manifest.made.layout == "fish"
    assert made.manifest.made.origin["seed"] == "4"
    assert made.images.shape == (18, 1, 44, 59)
    assert set(np.unique(made.images)) == {0, 1}
    assert made.manifest.counts == (2,) * 9


def test_wrong_wishes_are_one_line(tmp_path: Path) -> None:
    for options, message in (
        ({"count": 0}, "0 fish of each kind"),
        ({"image": (5, 5)}, "fish of 5x5 pixels"),
        ({"seed": -1}, "seed -1 is below 0"),
    ):
        with pytest.raises(SondaError, match=message):
            make_fish(tmp_path / "fish", **options)  # type: ignore[arg-type]
    with pytest.raises(SondaError, match="exists; give another directory"):
        make_fish(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_drawing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(text: str) -> None:
        if text.startswith("drew 12 of 27 fish"):
            raise KeyboardInterrupt

    monkeypatch.setattr(fish_set, "SAY_EVERY_S", -1)
    with pytest.raises(KeyboardInterrupt):
        make_fish(tmp_path / "fish", count=3, image=(59, 44), say=stop)
    assert not list(tmp_path.iterdir())


def test_what_a_killed_drawing_left_is_cleared_away(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    left = tmp_path / f".partial-{os.uname().nodename}-{child}-abcdef"
    left.mkdir()
    (left / "drawn.json").write_text(json.dumps({}))
    make_fish(tmp_path / "fish", count=1, image=(59, 44))
    assert [path.name for path in tmp_path.iterdir()] == ["fish"]
