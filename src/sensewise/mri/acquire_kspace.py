"""`sensewise acquire FILE.h5`: one slice of a k-space file, its rows chosen and reconstructed."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from sensewise.acquire import acquire
from sensewise.checkpoint import atomic, write_json
from sensewise.data.fastmri import read_volume
from sensewise.data.prepare import bundled_knee
from sensewise.errors import CheckpointError, ConfigError, DataError
from sensewise.figures.mri import acquisition
from sensewise.figures.style import save
from sensewise.metrics import nmse, slice_psnr, ssim
from sensewise.mri.kspace import magnitude
from sensewise.mri.models import find, load, load_mask, load_plan
from sensewise.mri.plan import PlannedRows
from sensewise.mri.row_masks import Family, FixedRows, acs_start, count_rows, fixed_start
from sensewise.mri.search import export_mask
from sensewise.mri.settings import MRISettings, load_settings
from sensewise.policies import Policy, Start
from sensewise.reconstruct import Reconstructor, UNetReconstructor, ZeroFilled
from sensewise.sensors import KSpaceRowSensor, Side

METHODS = ("acs-variable-density", "acs-random", "acs-equispaced", "static-search", "sequential-value")


def choose(method: str, preset: str, budget: float | int, mri: MRISettings) -> tuple[Policy, Start]:
    """The policy of a method's name, or of a mask file (`.npy` or `.txt`), and the rows that it starts from."""
    start = acs_start(mri.rows, mri.acs)
    if method.endswith((".npy", ".txt")):
        return FixedRows(load_mask(Path(method), mri.rows)), start
    if method == "static-search":
        path = find(preset, f"static-search-{budget:g}", "mask.npy") / "mask.npy"
        return FixedRows(load_mask(path, mri.rows)), start
    if method == "sequential-value":
        plan = load_plan(find(preset, f"row-plan-{budget:g}"))
        return PlannedRows(plan), fixed_start(plan.core)
    if method in METHODS:
        return Family(method.removeprefix("acs-")), start
    raise ConfigError(f"no method {method!r}: choose one of {', '.join(METHODS)}, or give a mask file (.npy, .txt)")


def acquire_kspace(
    source: str, budget: float | int, steps: int, method: str, preset: str, folder: Path, seed: int
) -> str:
    """Acquire the middle slice of a file (or `knee:N`) and write mask, reconstruction, figure and numbers.

    Returns:
        A sentence that says how it went.
    """
    mri = load_settings(preset)
    k = count_rows(budget, mri.rows, mri.acs)
    if source.startswith("knee:"):
        knee, number = bundled_knee((mri.rows, mri.columns)), source.removeprefix("knee:")
        if not number.isdigit() or int(number) >= len(knee):
            raise DataError(f"{source} is not possible: give knee:0 to knee:{len(knee) - 1}")
        kspace = knee.kspace[int(number) : int(number) + 1]
    else:
        kspace = read_volume(Path(source), (mri.rows, mri.columns), "middle", mri.axis)
    policy, start = choose(method, preset, budget, mri)
    sensor = KSpaceRowSensor(kspace)
    left = k - int(start(1, k, torch.Generator()).sum())
    steps = max(1, min(steps, left)) if method == "sequential-value" else 1
    taken = acquire(
        policy,
        sensor,
        k,
        side=Side(scout=sensor.scout(mri.acs)),
        steps=steps,
        start=start,
        generator=torch.Generator().manual_seed(seed),
    )
    reconstruct, name = _reconstructor(preset)
    x, x_hat = magnitude(kspace), reconstruct(taken.observation, taken.mask, Side())
    export_mask(folder, taken.mask[0])
    picture = (255 * (x_hat[0] / x.max()).clamp(0, 1)).round().to(torch.uint8).numpy()
    with atomic(folder / "reconstruction.png") as temporary:
        Image.fromarray(picture).save(temporary, "png")
    shown = (x[0].double().numpy(), x_hat[0].double().numpy(), taken.mask[0].numpy())
    save(acquisition(*shown, method if method in METHODS else "a mask file"), folder / "acquisition.png")
    values = {metric.__name__: round(float(metric(x_hat, x)), 6) for metric in (nmse, slice_psnr, ssim)}
    outcome = {"rows": int(np.sum(shown[2])), "of": mri.rows, "method": method, "reconstructor": name, **values}
    write_json(folder / "acquisition.json", outcome)
    return f"{k} of {mri.rows} rows measured, NMSE {values['nmse']:.4f} with {name}: see {folder}"


def _reconstructor(preset: str) -> tuple[Reconstructor, str]:
    """U-Net A where there is one, else zero filling."""
    try:
        return UNetReconstructor(load(find(preset, "unet-a"), "reconstructor")[0]), "unet-a"
    except CheckpointError:
        return ZeroFilled(), "zero-filled"
