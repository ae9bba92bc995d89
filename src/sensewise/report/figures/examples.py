"""What each method measured of a few images, and what was reconstructed from it: digits and photographs alike."""

import textwrap
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from sensewise.report import methods
from sensewise.report.figures.style import intensities, marked, rgb, show, style, tinted

Arrays = Mapping[str, np.ndarray]


def places_of(arrays: Arrays, part: str) -> list[str]:
    """`PART/METHOD/STEPS` of every method that was kept."""
    ending = "/observation"
    return [key.removesuffix(ending) for key in arrays if key.startswith(f"{part}/") and key.endswith(ending)]


def examples(arrays: Arrays, levels: int, part: str = "example") -> Figure:
    """Measured pixels in the method's colour and the reconstruction, one line per method, a group per image.

    Where posterior means were kept (ordered levels), they are shown with their absolute errors and their PSNR; else the
    most probable image with wrong pixels in orange.

    Args:
        arrays: of a results file: `PART/target` `(n, C, H, W)`, `PART/budget`, and `PART/METHOD/STEPS/observation`,
            `.../reconstruction`, `.../mean`, `.../psnr`.
        levels: `N`.
    """
    target, places = arrays[f"{part}/target"], places_of(arrays, part)
    title = f"{float(arrays[f'{part}/budget']):.0%} of the pixels measured"
    graded = all(f"{place}/mean" in arrays for place in places)
    panels = 3 if graded else 2
    errors = _errors(arrays, places, intensities(target, levels)) if graded else {}
    peak = max(float(np.quantile(np.stack(list(errors.values())), 0.995)), 1e-6) if errors else 1.0
    if graded:
        title += f"; errors from 0 (black) to {peak:.2f} of the range (white)"
    with style():
        size = (1.0 * panels * len(target) + 1.3, 1.16 * (len(places) + 1) + 0.2)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(places) + 1, panels * len(target), squeeze=False)
        for image, x in enumerate(target):
            group = grid[:, panels * image : panels * (image + 1)]
            for axes in group[0]:
                axes.set_axis_off()
            group[0, 1].set_axis_on()
            show(group[0, 1], rgb(intensities(x, levels)), "target")
            for axes, place in zip(group[1:], places, strict=True):
                observation, x_hat = arrays[f"{place}/observation"][image], arrays[f"{place}/reconstruction"][image]
                first = place == places[0]
                colour = methods.info(place.split("/")[1]).colour
                show(axes[0], tinted(observation, colour, levels), "measured" if first else "")
                if graded:
                    mean = arrays[f"{place}/mean"][image].astype(np.float64)
                    show(axes[1], rgb(mean).clip(0, 1), f"{arrays[f'{place}/psnr'][image]:.1f} dB")
                    show(axes[2], errors[place][image], "error" if first else "", vmin=0, vmax=peak, cmap="magma")
                else:
                    wrong = int((x_hat != x).sum())
                    show(axes[1], marked(x_hat, x, levels), "exact" if wrong == 0 else f"{wrong} wrong")
        for axes, place in zip(grid[1:, 0], places, strict=True):
            _, method, steps = place.split("/")
            axes.set_ylabel(_label(method, int(steps)), fontsize=8)
        figure.suptitle(title, fontsize=11)
    return figure


def _label(method: str, steps: int) -> str:
    """A method's name in short lines, its steps on a line of their own."""
    label = methods.info(method).label
    more = methods.name_of(method, steps).removeprefix(label).removeprefix(", ")
    return "\n".join([*textwrap.wrap(label, width=20), *([more] if more else [])])


def _errors(arrays: Arrays, places: list[str], truth: np.ndarray) -> dict[str, np.ndarray]:
    """Absolute errors of the posterior means, averaged over channels, `(n, H, W)` for each place."""
    return {place: np.abs(arrays[f"{place}/mean"].astype(np.float64) - truth).mean(1) for place in places}
