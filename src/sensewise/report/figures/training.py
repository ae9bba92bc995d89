"""How a training run went."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from sensewise.report.figures.style import save, style


def training_curves(log: Sequence[Mapping[str, float]]) -> Figure:
    """One small panel per number of the log, against the step."""
    names = [name for name in log[-1] if name not in ("step", "seconds")]
    columns = max(1, min(4, len(names)))
    lines = max(1, -(-len(names) // columns))
    with style():
        figure = Figure(figsize=(3.2 * columns, 2.4 * lines), layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for axes, name in zip(grid.flat, names, strict=False):
            known = [entry for entry in log if name in entry]
            axes.set_axis_on()
            axes.plot([entry["step"] for entry in known], [entry[name] for entry in known], color="#3d5a98", marker=".")
            axes.set_title(name.replace("_", " "), fontsize=9)
            axes.set_xlabel("step", fontsize=8)
            axes.tick_params(labelsize=8)
    return figure


def draw_log(folder: Path) -> None:
    """Draw `log.jsonl` of a run folder as `loss.png` beside it; nothing where nothing has been logged yet."""
    path = folder / "log.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    log = []
    for line in lines:
        try:
            log.append(json.loads(line))
        except json.JSONDecodeError:  # a kill has cut the last line short
            break
    log = [entry for entry in log if "step" in entry]
    if log:
        save(training_curves(log), folder / "loss.png")
