"""`pictures`: pictures of any size that no prior was trained on, against FAST, gpCAM, interpolation and scan
lines.

Every picture is a task of its own, at three sizes. PSNR and SSIM are against the picture itself, not quantised; seconds
are of the processor, reconstruction included; travel is the length of the path through the readings, in pixels.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sensewise import hub
from sensewise.beyond import peers
from sensewise.beyond.peers import Peer, Tool
from sensewise.beyond.scan_lines import ColumnSensor, LineEntropy
from sensewise.data.gallery import CAMERA, load_pictures
from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError
from sensewise.evaluate.evaluate import spend
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.journal import Value, digest_of
from sensewise.evaluate.judges import Judge
from sensewise.evaluate.method import Method, reading_methods
from sensewise.evaluate.readings import InterpolationJudge, PictureJudge, picture_metrics
from sensewise.evaluate.results import Arrays, Results
from sensewise.evaluate.rows import Row
from sensewise.evaluate.task import Task
from sensewise.files import fingerprint, identity
from sensewise.policies import travel
from sensewise.policies.simple import Random, Raster
from sensewise.priors.base import Prior
from sensewise.reconstruct.interpolate import Interpolation, inverse_distance, linear
from sensewise.reconstruct.prior import PosteriorMean
from sensewise.report import metrics
from sensewise.report.figures.gallery import gallery
from sensewise.report.figures.style import SHEET_DPI
from sensewise.report.methods import info
from sensewise.report.section import Picture, Section
from sensewise.report.table import Cell, Table, table
from sensewise.sensors.readings import Readings, ReadingSensor

SIDES = (64, 128, 256)
GPCAM_SIDES, LINE_SIDES = (64,), (64, 128)
BUDGETS = (0.02, 0.05, 0.1, 0.2)
STEPS, SEEDS = 32, 3
SHOWN, SHOWN_SIDE, SHOWN_BUDGET = ("wse2", "coins", "afm-jpk", "retina", "astronaut"), 128, 0.1
OURS = "spread-variance-greedy"
LINES = "line-entropy"


def tasks(prior: Prior, picture: Scenes, name: str) -> list[tuple[Task, list[Method]]]:
    """Who measures a picture and who judges it."""
    columns = {"picture": name, "side": picture.shape[1]}
    both = ("seconds", "travel")

    def task(judge: Judge) -> Task:
        return Task("pictures", picture, ReadingSensor, {"own": judge}, columns=columns, also=both)

    lines = Task(
        "pictures",
        picture,
        ColumnSensor,
        {"own": PictureJudge(prior, Readings())},
        columns=columns,
        also=("seconds",),
    )
    return [
        (task(PictureJudge(prior, Readings())), [reading_methods(prior, STEPS)[OURS], Method("random", Random())]),
        (task(InterpolationJudge(Interpolation(inverse_distance))), [Method("random-idw", Random())]),
        (
            task(InterpolationJudge(Interpolation(linear))),
            [Method("random-linear", Random()), Method("raster", Raster())],
        ),
        (lines, [Method(LINES, LineEntropy(prior), picture.shape[2])] if picture.shape[2] in LINE_SIDES else []),
    ]


def _peer_value(peers: Sequence[Peer], truth: Tensor) -> Value:
    """Every metric of a tool at every budget."""
    value: Value = {}
    for budget, peer in zip(BUDGETS, peers, strict=True):
        drawn = torch.from_numpy(peer.picture).float()[None, None]
        found = {name: float(number[0]) for name, number in picture_metrics(drawn, truth).items()}
        places = travel.places(peer.order.astype(np.int64), tuple(truth.shape[2:]))
        found |= {"seconds": peer.seconds, "travel": travel.length(places), "density": len(peer.order) / truth.numel()}
        value |= {f"{metric} {budget:g}": number for metric, number in found.items()}
    return value


def peer_rows(setup: Setup, tool: Tool, picture: Scenes, name: str) -> list[Row]:
    """Another tool on one picture; FAST's rows say so where its network was trained on it."""
    truth = picture.values

    def measure() -> Value:
        return _peer_value(tool(truth[0, 0].numpy(), BUDGETS), truth)

    value = setup.journal.recall(f"{tool.name} {name} {digest_of([tool.version, identity(truth)])}", measure)
    if value is None:
        return []
    base = Row(
        dataset="pictures",
        method=tool.name,
        steps=1,
        budget=0.0,
        density=0.0,
        metric="",
        mean=None,
        sd=0.0,
        images=1,
        seeds=1,
        picture=name,
        side=picture.shape[1],
        form="its training picture" if (tool.name, name) == ("fast", CAMERA) else None,
    )
    return [
        replace(
            base,
            steps=max(1, round(budget * picture.shape[1] ** 2 / tool.batch)),
            budget=budget,
            density=round(value[f"density {budget:g}"], 6),
            metric=metric,
            mean=round(value[f"{metric} {budget:g}"], 6),
        )
        for budget in BUDGETS
        for metric in ("psnr", "ssim", "seconds", "travel")
    ]


def measure(setup: Setup, prior: Prior, galleries: Mapping[int, Scenes], tools: Sequence[Tool] = ()) -> list[Row]:
    """Rows of every picture at every size."""
    rows: list[Row] = []
    few = replace(setup, seeds=setup.seeds[:SEEDS])
    bar = setup.progress.add_task(
        "pictures", total=sum(len(scenes) * len(scenes.values[0, 0]) ** 2 for scenes in galleries.values())
    )
    for side, scenes in galleries.items():
        for number, name in enumerate(scenes.sources):
            picture = scenes.part(slice(number, number + 1))
            setup.progress.update(bar, description=f"pictures: {name} {side}")
            for task, methods in tasks(prior, picture, name):
                rows += few.evaluate(task, methods, BUDGETS)
            for tool in tools:
                if tool.sides is None or side in tool.sides:
                    rows += peer_rows(setup, tool, picture, name)
            setup.progress.advance(bar, side**2)
    setup.progress.remove_task(bar)
    return rows


def shown(prior: Prior, scenes: Scenes, fast: Tool | None) -> Arrays:
    """What the figure shows."""
    names = [name for name in SHOWN if name in scenes.sources]
    arrays: Arrays = {"gallery/names": np.array(names)}
    for name in names:
        number = scenes.sources.index(name)
        picture = scenes.part(slice(number, number + 1))
        place, truth = f"gallery/{name}", picture.values[0, 0].numpy()
        arrays[f"{place}/target"] = truth.astype(np.float16)
        (ours, (best, _)), _, (plain, (random, _)), _ = tasks(prior, picture, name)
        for method, task, chosen, rebuild in (
            ("ours", ours, best, PosteriorMean(prior)),
            ("linear", plain, random, Interpolation(linear)),
        ):
            taken = spend(task, chosen, SHOWN_BUDGET, 0)
            arrays[f"{place}/{method}/mask"] = taken.mask.view(truth.shape).numpy()
            mean = rebuild(taken.observation, taken.mask)[0, 0].clamp(0, 1)
            arrays[f"{place}/{method}/mean"] = mean.numpy().astype(np.float16)
        if fast is not None:
            peer = fast(truth, BUDGETS)[BUDGETS.index(SHOWN_BUDGET)]
            mask = np.zeros(truth.size, dtype=bool)
            mask[peer.order] = True
            arrays[f"{place}/fast/mask"] = mask.reshape(truth.shape)
            arrays[f"{place}/fast/mean"] = peer.picture.astype(np.float16)
    return arrays


def run(setup: Setup) -> Results:
    """Every picture of the gallery at every size; FAST if there is a clone of it, gpCAM if it is installed."""
    galleries = {side: load_pictures(side) for side in SIDES}
    prior, notes, fast, tools = hub.load_prior("any-grey"), list[str](), None, list[Tool]()
    folder = os.environ.get("SENSEWISE_FAST")
    if folder:
        fast = peers.fast(Path(folder))
        tools.append(fast)
    else:
        notes.append("FAST was left out: give a clone of github.com/saugatkandel/fast_smart_scanning with --fast.")
    try:
        tools.append(peers.gpcam(GPCAM_SIDES))
        notes.append("gpCAM was run at 64 px: larger ones take an hour or more.")
    except ConfigError as error:
        notes.append(f"gpCAM was left out: {error}.")
    notes.append("Scan lines were run at 64 and 128 px: larger ones take an hour or more.")
    rows = measure(setup, prior, galleries, tools)
    arrays = shown(prior, galleries[SHOWN_SIDE], fast) if rows and not setup.journal.is_shard else {}
    return Results("pictures", setup.preset, "pictures", rows, {"any-grey": fingerprint(prior)}, notes, arrays)


Key = tuple[str, float]
"""A picture and a budget."""


def _values(rows: Sequence[Row], method: str, metric: str, side: int) -> dict[Key, float]:
    found = metrics.pick(rows, method=method, metric=metric, side=side)
    return {(str(row.picture), row.budget): row.mean for row in found if row.mean is not None}


def interpolated(rows: Sequence[Row], side: int) -> dict[Key, float]:
    """The better of both interpolations of random points, in dB."""
    linear, idw = (_values(rows, name, "psnr", side) for name in ("random-linear", "random-idw"))
    return {key: max(value, idw[key]) for key, value in linear.items()}


def _above(ours: Mapping[Key, float], others: Mapping[Key, float], lowest: float, *without: str) -> tuple[float, float]:
    """Mean and worst of how far ours are above others, in dB."""
    keys = [key for key in ours if key in others and key[1] >= lowest and key[0] not in without]
    gains = [ours[key] - others[key] for key in keys]
    return sum(gains) / len(gains), min(gains)


def goals(rows: Sequence[Row]) -> Table:
    """What is wanted at 128 x 128, and what was reached."""
    ours, expected = _values(rows, OURS, "psnr", 128), _values(rows, OURS, "expected-psnr", 128)
    lines: list[tuple[str, str, str, bool]] = []
    fast = _values(rows, "fast", "psnr", 128)
    for name, others, wanted, without in (
        ("FAST", fast, 3.5, (CAMERA,)),
        ("the better interpolation", interpolated(rows, 128), 3.0, ()),
    ):
        if others:
            mean, worst = _above(ours, others, 0.05, *without)
            lines.append((f"above {name}, mean, s >= 0.05 (dB)", f">= {wanted:g}", f"{mean:.2f}", mean >= wanted))
            lines.append((f"above {name}, worst, s >= 0.05 (dB)", ">= -0.3", f"{worst:.2f}", worst >= -0.3))
    gaps = [expected[key] - ours[key] for key in ours if key[1] == 0.02]
    worst, mean = max(map(abs, gaps)), sum(gaps) / len(gaps)
    lines.append(("expected - true PSNR, s = 0.02, mean (dB)", "within 1", f"{mean:+.2f}", abs(mean) <= 1))
    lines.append(("expected - true PSNR, s = 0.02, largest (dB)", "within 3", f"{worst:.2f}", worst <= 3))
    if fast:
        own, theirs = (_values(rows, name, "seconds", 128) for name in (OURS, "fast"))
        time, other = (sum(found.values()) / len(found) for found in (own, theirs))
        lines.append(("seconds of the processor per picture", f"< {other:.2f} (FAST)", f"{time:.2f}", time < other))
    words = {True: "yes", False: "no"}
    return Table(
        "What is wanted at 128 x 128, and what was reached",
        ("wanted", "reached", "holds"),
        [(name, (Cell(wanted), Cell(value), Cell(words[ok]))) for name, wanted, value, ok in lines],
        "goal",
    )


def _picture_line(row: Row) -> str:
    return f"{row.picture}, s = {row.budget:g}" + (" *" if row.picture == CAMERA else "")


def _method_head(row: Row) -> str:
    return "ours" if row.method == OURS else info(row.method).label


def averages(rows: Sequence[Row]) -> list[Row]:
    """Means over the pictures, as rows without a picture; `camera`, which FAST was trained on, is left out."""
    groups: dict[tuple[str, int, float, str, int | None], list[Row]] = {}
    for row in rows:
        if row.picture != CAMERA and row.mean is not None:
            groups.setdefault((row.method, 0, row.budget, row.metric, row.side), []).append(row)
    return [
        replace(
            found[0], mean=sum(row.mean or 0 for row in found) / len(found), sd=None, images=len(found), picture=None
        )
        for found in groups.values()
    ]


def section(results: Results) -> Section:
    """Goals, means over the pictures at every size, PSNR of every picture, and pictures to look at."""
    rows = results.rows
    means = averages(rows)
    tables = [goals(rows)]
    for side in SIDES:
        for metric in ("psnr", "ssim", "seconds", "travel"):
            part = metrics.pick(means, side=side, metric=metric)
            if part and (metric == "psnr" or side == SHOWN_SIDE):
                caption = f"{metrics.info(metric).axis}, {part[0].images} pictures of {side} x {side}"
                tables.append(table(part, caption, line=_method_head, corner="method"))
    psnr = metrics.pick(rows, side=SHOWN_SIDE, metric="psnr")
    tables.append(
        table(psnr, f"PSNR of every picture, {SHOWN_SIDE} x {SHOWN_SIDE}", line=_picture_line, column=_method_head,
              mark_best=False, corner="picture")
    )  # fmt: skip
    figures = []
    if "gallery/names" in results.arrays:
        caption = (
            f"What was measured of {SHOWN_SIDE} x {SHOWN_SIDE} pixels at s = {SHOWN_BUDGET:g}, and what became of it."
        )
        figures.append(Picture("pictures.png", gallery(results.arrays), caption, SHEET_DPI))
    paragraphs = [
        f"No prior was trained on any of these pictures. Ours: variance-greedy with room, {STEPS} steps, prior "
        "any-grey. FAST runs unmodified, with its own network, trained on camera (*), which means over pictures leave "
        "out. gpCAM, a Gaussian process, decides point by point. Raster is interpolated linearly. Seconds are of the "
        "processor, with the reconstruction. Travel is the way through the readings of each step on a short path; "
        "that of FAST and gpCAM in the order in which they ask for them.",
        *results.notes,
    ]
    return Section("Pictures of any size", paragraphs, tables, figures, results)


EXPERIMENT = Experiment("pictures", run, section)
