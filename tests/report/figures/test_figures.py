import io
import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from sensewise.errors import OutputError
from sensewise.report.figures import curves, one_shot, recording, rows, training
from sensewise.report.figures.examples import examples as draw_examples
from sensewise.report.figures.style import HIDDEN, WRONG, data_uri, marked, measured, rgb, save, tinted, to_bytes
from sensewise.report.methods import info

COLOUR = info("random").colour


def titles(figure):
    return [axes.get_title() for axes in figure.axes]


def texts(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_errors_against_the_budget(rows):
    figure = curves.against_budget(rows, ("errors", "exact"))
    left, right = figure.axes
    assert left.get_yscale() == "log"
    assert right.get_yscale() == "linear"
    assert left.get_xlabel() == right.get_xlabel() == "budget: fraction measured"
    assert left.get_ylabel() == "errors per image"
    assert texts(figure) == [
        "random",
        "variable density",
        "probe + greedy, 1 step",
        "label-greedy, 16 steps",
        "the paper's value",
    ]
    assert left.lines[0].get_ydata().tolist() == [53.0, 39.0]
    assert to_bytes(figure, dpi=50).startswith(b"\x89PNG")
    assert to_bytes(figure, "pdf").startswith(b"%PDF")


def test_no_error_at_all_can_be_drawn(rows):
    figure = curves.against_budget([replace(row, mean=0.0, paper=0.0) for row in rows], ("errors",))
    assert min(figure.axes[0].lines[0].get_ydata()) == 1e-3
    assert "below 0.001" in figure.axes[0].get_ylabel()


def test_the_legend_names_the_papers_value_only_where_one_is_drawn(row):
    shown = [row(metric="errors", paper=20.0), row(metric="psnr", paper=None)]
    assert "the paper's value" in texts(curves.against_budget(shown, ("errors",)))
    assert "the paper's value" not in texts(curves.against_budget(shown, ("psnr",)))


def test_panels_stand_in_columns(row):
    shown = [row(metric=name, mean=0.5) for name in ("nmse", "psnr", "ssim")]
    figure = curves.against_budget(shown, ("nmse", "psnr", "ssim", "psnr"), columns=2)
    assert len(figure.axes) == 4
    assert figure.axes[2].lines[0].get_ydata().tolist() == [50.0]  # SSIM x 100


@pytest.mark.parametrize(("levels", "channels", "panels"), [(2, 1, 2), (8, 3, 3)])
def test_examples_of_digits_and_photographs(examples, levels, channels, panels):
    arrays = examples(levels, channels, images=3)
    figure = draw_examples(arrays, levels)
    assert len(figure.axes) == 3 * panels * 3  # target and two methods, three images
    shown = [title for title in titles(figure) if title]
    assert shown.count("target") == 3
    if levels == 2:
        wrong = (arrays["example/random/1/reconstruction"][0] != arrays["example/target"][0]).sum()
        assert f"{wrong} wrong" in shown
    else:
        assert "25.0 dB" in shown
    assert figure.axes[2 * 3 * panels].get_ylabel() == "label-greedy\n16 steps"
    assert to_bytes(figure, dpi=40)


def test_sheet(recorded):
    taken = recorded()
    figure = recording.sheet(taken, [0, 1, 3])
    assert len(figure.axes) == 9
    assert titles(figure)[:3] == ["start", "step 1", "step 3"]
    assert titles(figure)[5] == "102 measured"
    assert titles(figure)[8] == f"{taken.errors[3]} wrong"
    assert len(recording.sheet(taken).axes) == 12


def test_a_sheet_of_ordered_levels_shows_decibels(recorded):
    found = recorded(levels=8, channels=3)
    assert recording.verdict(found, 1) == f"{found.psnr[1]:.1f} dB"
    assert recording.rebuilt(found, 1).shape == (32, 32, 3)
    assert "wrong" in recording.verdict(replace(found, mean=None), 1)


def test_an_animation_has_a_frame_for_each_step_and_the_start(recorded):
    with Image.open(io.BytesIO(recording.gif(recorded(), width=200))) as picture:
        assert picture.format == "GIF"
        assert picture.n_frames == 4
        assert picture.size == (2 * (3 * 32 + 2), 64)
        assert picture.info["loop"] == 0


def test_png_is_enlarged_by_a_whole_factor():
    with Image.open(io.BytesIO(recording.png(np.eye(3), width=10))) as picture:
        assert picture.size == (9, 9)
        assert np.asarray(picture)[:3, :3].tolist() == [[255] * 3] * 3


def test_tinted_sets_hidden_black_and_white_apart():
    shown = tinted(np.array([[[0, 1, 2]]]), COLOUR, 2)
    assert shown.shape == (1, 3, 3)
    assert shown[0, 0].tolist() == list(HIDDEN)
    assert shown[0, 1].mean() < shown[0, 2].mean() < shown[0, 0].mean()


def test_measured_and_marked():
    tokens = np.array([[[0, 1, 4]]] * 3)
    assert measured(tokens, 4, COLOUR)[0].tolist() == [list(HIDDEN), [0, 0, 0], [1, 1, 1]]
    assert (measured(tokens[:1], 2, COLOUR) == tinted(tokens[:1], COLOUR, 2)).all()
    wrong = marked(np.array([[[1, 2]]]), np.array([[[1, 1]]]), 2)
    assert wrong[0].tolist() == [[0, 0, 0], list(WRONG)]
    assert rgb(np.zeros((2, 4, 5))).shape == (4, 5, 3)


@pytest.fixture
def slices():
    draw = np.random.default_rng(0)
    arrays = {f"rows/{name}/{s}": draw.random(32) < s for name in ("loupe", "energy-oracle") for s in (0.5, 0.25)}
    arrays |= {f"example/median/{name}": draw.random((32, 32)) for name in ("target", "zero-filled", "loupe")}
    arrays |= {"story/a/target": draw.random((32, 32)), "story/a/scores": draw.random((4, 32))}
    return arrays | {"story/a/mask": draw.random((5, 32)) < 0.3, "story/a/reconstruction": draw.random((5, 32, 32))}


def test_rows_by_budget(slices):
    figure = rows.rows_by_budget(slices)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["s = 0.25", "s = 0.5"]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["energy oracle", "LOUPE"]
    assert len(rows.rows_by_budget(slices, ("loupe",)).axes[0].get_yticklabels()) == 1


def test_slices_show_their_quality(slices):
    figure = rows.slice_examples(slices, "median")
    x, x_hat = slices["example/median/target"], slices["example/median/loupe"]
    nmse = ((x_hat - x) ** 2).sum() / (x**2).sum()
    assert titles(figure)[2].startswith("LOUPE\n")
    assert titles(figure)[2].endswith(f"NMSE {nmse:.4f}")
    assert len(figure.axes) == 9


def test_rows_step_by_step(slices):
    figure = rows.step_by_step(slices, "story/a", "sequential-entropy")
    assert titles(figure)[:4] == ["start: ACS alone", "before step 1", "before step 2", "before step 4"]
    assert all(title.startswith("NMSE") for title in titles(figure)[4:])
    assert len({axes.get_ylim() for axes in figure.axes[:4]}) == 1
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()


def test_one_slice(slices):
    x, x_hat = slices["example/median/target"], slices["example/median/loupe"]
    figure = rows.acquisition(x, x_hat, np.arange(32) < 8, "loupe", nmse=0.25, psnr=20.0)
    assert titles(figure)[:2] == ["8 of 32 rows, LOUPE", "reconstruction: 20.0 dB, NMSE 0.2500"]


def test_draw_mask(tmp_path):
    np.save(tmp_path / "mask.npy", np.arange(32) < 8)
    rows.draw_mask(tmp_path)
    assert (tmp_path / "mask.png").read_bytes().startswith(b"\x89PNG")


def test_training_curves():
    log = [{"step": s, "seconds": 1.0, "loss": 1 / s, "a": s, "b": 0, "c": 0, "d": 0} for s in (1, 2)]
    figure = training.training_curves(log)
    assert sum(axes.axison for axes in figure.axes) == 5
    assert figure.axes[0].lines[0].get_ydata().tolist() == [1, 0.5]


def test_draw_log(tmp_path):
    training.draw_log(tmp_path)
    assert list(tmp_path.iterdir()) == []
    lines = [json.dumps({"step": s, "seconds": 1.0, "loss": 1 / s}) for s in (1, 2)]
    (tmp_path / "log.jsonl").write_text("\n".join([*lines, '{"step": 3, "lo']))
    training.draw_log(tmp_path)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_cosines(row):
    shown = [
        row(method=name, metric="cosine", mean=0.5, samples=16, generator=designer, surrogate=surrogate, part="entropy")
        for name in ("disarm", "straight-through")
        for designer in ("untrained", "trained")
        for surrogate in ("all", "all-raw")
    ]
    figure = one_shot.cosines(shown)
    assert titles(figure) == ["surrogate “all”", "surrogate “all-raw”"]
    assert [len(axes.patches) for axes in figure.axes] == [4, 4]
    figure = one_shot.cosines(shown, {"disarm": (0.94, 0.99)})
    assert [len(axes.patches) for axes in figure.axes] == [5, 5]
    assert texts(figure) == ["the paper's range of DisARM"]


def test_divergence():
    arrays = {"checkpoints/step": np.arange(3)}
    for name in ("entropy", "psnr"):
        arrays |= {f"checkpoints/{name}_0.1": np.ones(3), f"checkpoints/{name}_0.1_random": np.full(3, 0.5)}
    course = one_shot.Course("Digits", arrays, 0.1, "psnr", "PSNR")
    figure = one_shot.divergence([course, replace(course, title="Photographs", paper=(0.9, 0.4))])
    assert titles(figure) == ["Digits, s = 0.1", "Photographs, s = 0.1", "", ""]
    assert texts(figure) == ["one-shot", "random", "the paper's last values"]
    assert [len(axes.collections) for axes in figure.axes[2:]] == [0, 1]


def test_pipeline(recorded):
    square = np.ones((32, 32))
    arrays = {f"pipeline/{name}": square for name in ("target", "observation", "summary", "probs", "entropy")}
    old = one_shot.pipeline(arrays, recorded())
    assert "observation Y: 1024 pixels" in titles(old)
    assert "102 measured" in titles(old)
    pair = {"pair": np.stack([square, 0 * square]), "pair-entropy": np.stack([square, 0.5 * square])}
    numbers = {"label": 7, "budget": 0.5, "t": 936, "sparsity": 10.0}
    arrays |= {f"pipeline/{name}": np.array(value) for name, value in (pair | numbers).items()}
    figure = one_shot.pipeline(arrays, recorded())
    assert {"observation Y: 1024 pixels", "observation Y′: 0 pixels", "entropies H′"} <= set(titles(figure))
    shown = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert sum("t(s) = 936" in text for text in shown) == 2
    assert any("= 2.5000" in text and "= 3.5000" in text for text in shown)  # 10 (1 - 0.5)^2, and with the entropy
    assert to_bytes(figure, dpi=40)


def test_bands_and_cuts(row):
    shown = [row(metric="nmse-gain", method=name, mean=mean, sd=0.5) for name, mean in (("a", 1.0), ("b", 0.0))]
    shown.append(row(metric="nmse-gain", method="far", mean=-90.0))
    figure = curves.against_budget(shown, ("nmse-gain",), aside=("far",))
    axes = figure.axes[0]
    assert len(axes.collections) == 2  # bands of the two that have a spread
    band = axes.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == (0.0, 2.0)
    assert axes.get_ylim()[0] > -1
    assert [text.get_text() for text in axes.texts] == ["cut: far, 1 step, -90 to -90"]
    assert len({line.get_marker() for line in axes.lines[:3]}) == 3


def test_the_papers_value_is_drawn_where_ours_is_no_number(row):
    figure = curves.against_budget(
        [row(metric="psnr"), row(metric="psnr", mean=None, paper=3.0, budget=0.7)], ("psnr",)
    )
    assert figure.axes[0].get_xticks().tolist() == [0.1, 0.7]
    assert "the paper's value" in texts(figure)


def test_save(tmp_path):
    save(b"content", tmp_path / "a.gif")
    save(Figure(figsize=(1, 1)), tmp_path / "b.png")
    assert (tmp_path / "a.gif").read_bytes() == b"content"
    with Image.open(tmp_path / "b.png") as picture:
        assert picture.info["dpi"][0] == pytest.approx(300, abs=0.1)
    with pytest.raises(OutputError):
        save(b"", tmp_path / "a.gif" / "below.png")
    assert data_uri(b"abc") == "data:image/png;base64,YWJj"
