"""The report's MRI sections: tables and figures from results files alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sensewise.experiments.results import read_arrays, read_results
from sensewise.figures import mri
from sensewise.tables import Rows, Section

JUDGE = "unet-b"
_RULE = (
    "Bold: the lowest NMSE of a budget, and whatever is within two standard deviations of it, measured by the seed "
    "spread of ACS + variable density. A margin inside two standard deviations is no win."
)


def _shown(rows: Rows, reconstructor: str, metric: str, **wanted: Any) -> Rows:
    """Rows of one reconstructor and metric, with the form and the scout in the method's name."""
    found = []
    for row in rows:
        if row["reconstructor"] != reconstructor or row["metric"] != metric:
            continue
        if any(row.get(key) != value for key, value in wanted.items()):
            continue
        more = [row[key] for key in ("form",) if key in row]
        more += ["another slice's scout"] if "scout" in row else []
        found.append(row | {"method": f"{row['method']} ({', '.join(more)})"} if more else row)
    return found


def _plain(rows: Rows, reconstructor: str) -> Rows:
    """What the curves show: one line a method, controls left out."""
    return [r for r in rows if r["reconstructor"] == reconstructor and "scout" not in r]


def gains(rows: Rows) -> Rows:
    """The relative NMSE reduction from zero filling to U-Net B, in per cent: Table recon-gain at every budget."""
    before = {(r["method"], r["steps"], r["budget"]): r for r in _shown(rows, "zero-filled", "nmse")}
    found = []
    for row in _shown(rows, JUDGE, "nmse"):
        base = before[row["method"], row["steps"], row["budget"]]
        reference = None
        if base["paper"] is not None and row["paper"] is not None:
            reference = 100 * (1 - row["paper"] / base["paper"])
        gain = 100 * (1 - row["mean"] / base["mean"])
        found.append(row | {"metric": "gain", "mean": gain, "sd": 0.0, "paper": reference})
    return found


def _hundredfold(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"mean": 100 * row["mean"], "sd": 100 * row["sd"]}


def _data(results: dict[str, Any]) -> str:
    name = results["dataset"]
    count = max(row["images"] for row in results["rows"])
    ours = f"Data: {name}, {count} held-out slices; the paper's numbers are on fastMRI and stand there for comparison."
    return f"{ours} k-space of {name} is simulated from magnitudes." if name != "fastmri" else ours


def mri_masks(path: Path) -> Section:
    """Tables recon-gain and mri-main; Figures mri-rows, mri-examples, mri-zf, mri-judge and their larger versions."""
    results, arrays = read_results(path), read_arrays(path)
    rows = results["rows"]
    tables = [
        ("NMSE under the judge, U-Net B", _shown(rows, JUDGE, "nmse")),
        ("NMSE under zero filling", _shown(rows, "zero-filled", "nmse")),
        ("Gain from zero filling to U-Net B, per cent", gains(rows)),
        ("PSNR under U-Net B, dB", _shown(rows, JUDGE, "psnr")),
        ("SSIM x 100 under U-Net B", [_hundredfold(row) for row in _shown(rows, JUDGE, "ssim")]),
        ("NMSE under U-Net A, which masks are optimised against", _shown(rows, "unet-a", "nmse")),
    ]
    figures: dict[str, tuple[Figure | bytes, str]] = {
        "mri-rows.png": (mri.rows_by_budget(arrays, mri.MAIN_ROWS), "Rows sampled by each mask."),
        "mri-examples.png": (mri.examples(arrays, "median"), _EXAMPLE.format("median")),
        "mri-judge.png": (mri.quality_by_budget(_plain(rows, JUDGE)), "Every mask under the judge."),
        "mri-zf.png": (mri.quality_by_budget(_plain(rows, "zero-filled")), "The same masks under zero filling."),
        "mri-rows-all.png": (mri.rows_by_budget(arrays), "Rows sampled by every static mask."),
        "mri-examples-p75.png": (mri.examples(arrays, "p75"), _EXAMPLE.format("75th-percentile")),
    }
    text = [_data(results), _RULE, *results["notes"]]
    return Section("MRI, masks of k-space rows", text, tables, figures, results)


_EXAMPLE = (
    "A held-out slice of {} difficulty at s = 0.25, reconstructed by the judge, with a detail and the absolute error "
    "(dark blue: a quarter of the 99.5th-percentile intensity)."
)


def mri_sequential(path: Path) -> Section:
    """Table mri-closed, the value of a row, the oracle, and Figure mri-sequential."""
    results, arrays = read_results(path), read_arrays(path)
    rows = results["rows"]
    tables = [
        ("NMSE under the judge, all held-out slices", _shown(rows, JUDGE, "nmse", slices="all")),
        (
            "Beside the one-step oracle, on the slices it was run on, judge",
            _shown(rows, JUDGE, "nmse", slices="oracle"),
        ),
        ("The same under U-Net A, which the oracle knows", _shown(rows, "unet-a", "nmse", slices="oracle")),
    ]
    stories = sorted({key.split("/")[1] for key in arrays if key.startswith("story/")})
    caption = "{} on one slice at s = 0.25: score of each row before a step (blue: measured), reconstruction after it."
    figures: dict[str, tuple[Figure | bytes, str]] = {}
    for method in stories:
        name = "mri-sequential.png" if method == "sequential-entropy" else f"mri-{method}.png"
        figures[name] = (mri.step_by_step(arrays, f"story/{method}", method), caption.format(method))
    text = [
        _data(results),
        _RULE,
        "The oracle knows the truth and is no method: it is the ceiling of looking one step ahead with U-Net A.",
        "Steps are at most so many: fewer where the budget leaves fewer rows.",
        *results["notes"],
    ]
    return Section("MRI, sequential rows", text, tables, figures, results)


MRI_SECTIONS: dict[str, Callable[[Path], Section]] = {"mri-masks": mri_masks, "mri-sequential": mri_sequential}
