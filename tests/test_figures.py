import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from sensewise.errors import OutputError
from sensewise.experiments.results import read_arrays, read_results
from sensewise.figures import pixels
from sensewise.figures.style import COLOURS, HIDDEN, data_uri, name_of, save, tinted, to_bytes
from sensewise.figures.training import training_curves


@pytest.fixture(scope="module")
def arrays(tiny_results):
    return read_arrays(tiny_results)


@pytest.fixture(scope="module")
def story(arrays):
    return pixels.read_story(arrays)


def test_errors_against_budget(tiny_results):
    figure = pixels.errors_against_budget(read_results(tiny_results)["rows"])
    left, right = figure.axes
    assert left.get_yscale() == "log"
    assert left.get_xlabel() == right.get_xlabel() == "budget: fraction of pixels measured"
    assert left.get_ylabel().startswith("errors per image")
    assert "random" in {line.get_label() for line in left.lines}
    assert to_bytes(figure).startswith(b"\x89PNG")


def test_no_error_at_all_can_be_drawn(tiny_results):
    rows = [line | {"mean": 0.0, "paper": 0.0} for line in read_results(tiny_results)["rows"]]
    figure = pixels.errors_against_budget(rows)
    assert min(figure.axes[0].lines[0].get_ydata()) == pixels.FLOOR


@pytest.mark.parametrize(
    ("draw", "shown"), [(pixels.errors_against_budget, "errors"), (pixels.psnr_against_budget, "psnr")]
)
@pytest.mark.parametrize("known", ["errors", "psnr"])
def test_the_legend_names_the_papers_value_only_where_one_is_drawn(draw, shown, known):
    line = {"method": "random", "steps": 1, "budget": 0.1, "mean": 20.0, "sd": 0.0}
    rows = [line | {"metric": name, "paper": 20.0 if name == known else None} for name in ("errors", "exact", "psnr")]
    names = draw(rows).axes[0].get_legend_handles_labels()[1]
    assert ("the paper's value" in names) == (shown == known)


def test_examples(arrays):
    target, methods, budget = pixels.read_examples(arrays)
    assert budget == pytest.approx(0.1)
    assert [(m.method, m.steps) for m in methods] == [("random", 1), ("variable-density", 1)]
    for method in methods:
        assert method.errors.tolist() == [(a != b).sum() for a, b in zip(method.reconstruction, target, strict=True)]
    figure = pixels.examples(target, methods, budget)
    assert len(figure.axes) == (len(methods) + 1) * 2 * len(target)


def test_step_by_step(story):
    figure = pixels.step_by_step(story, [0, 1, 3])
    assert len(figure.axes) == 9
    assert [axes.get_title() for axes in figure.axes[:3]] == ["start", "step 1", "step 3"]
    assert figure.axes[5].get_title() == "102 measured"


def test_animation_has_a_frame_for_each_step_and_the_start(story):
    with Image.open(io.BytesIO(pixels.animation(story, scale=2))) as picture:
        assert picture.format == "GIF"
        assert picture.n_frames == len(story.entropy) == 4
        assert picture.size == (2 * (3 * 32 + 2), 64)
        assert picture.info["loop"] == 0


def test_story_counts_its_errors(story):
    assert story.errors.shape == (4,)
    assert story.errors[0] == (story.reconstruction[0] != story.target).sum()


def test_tinted_tells_hidden_black_and_white_apart():
    shown = tinted(np.array([[0, 1, 2]]), COLOURS["random"])
    assert shown.shape == (1, 3, 3)
    assert shown[0, 0].tolist() == list(HIDDEN)
    assert shown[0, 1].mean() < shown[0, 2].mean() < shown[0, 0].mean()


@pytest.mark.parametrize(
    ("method", "steps", "name"),
    [
        ("random", 1, "random"),
        ("label-greedy", 1, "label-greedy, 1 step"),
        ("probe-greedy", 16, "probe + greedy, 16 steps"),
        ("something-new", 1, "something-new"),
    ],
)
def test_names(method, steps, name):
    assert name_of(method, steps) == name


def test_training_curves():
    log = [{"step": s, "seconds": 1.0, "loss": 1 / s, "a": s, "b": 0, "c": 0, "d": 0} for s in (1, 2)]
    figure = training_curves(log)
    assert sum(axes.axison for axes in figure.axes) == 5
    assert figure.axes[0].lines[0].get_ydata().tolist() == [1, 0.5]


def test_save(tmp_path):
    save(b"content", tmp_path / "a.gif")
    save(Figure(figsize=(1, 1)), tmp_path / "b.png")
    assert (tmp_path / "a.gif").read_bytes() == b"content"
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(OutputError):
        save(b"", tmp_path / "a.gif" / "below.png")
    assert data_uri(b"abc") == "data:image/png;base64,YWJj"
