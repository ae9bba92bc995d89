"""`sensewise acquire` for k-space: rows of one slice, measured as a method says, reconstructed and written.

What goes back to a scanner is in its own numbers: `mask.txt` has line numbers of the full matrix, in the order in which
they are measured, and `mask-full.npy` is the mask as fastMRI's tools take it.
"""

from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from sensewise import hub, metrics
from sensewise.apps.subject import Settings, Subject
from sensewise.data.lines import ScanLines, read_lines
from sensewise.data.stored import MRSlice
from sensewise.errors import BudgetError, CheckpointError, ConfigError
from sensewise.evaluate.method import Method, method_from_text
from sensewise.files import atomic, read_npy, write_json
from sensewise.kspace import magnitude
from sensewise.loop import Trajectory
from sensewise.policies.planned import PlannedRows, RowPlan
from sensewise.policies.simple import ROW_FAMILIES, Fixed
from sensewise.policies.starts import CentralBlock, FixedStart, count_rows
from sensewise.policies.value import rows_by_worth
from sensewise.presets.mri import MRISettings
from sensewise.reconstruct.base import Reconstructor
from sensewise.reconstruct.unet import UNetReconstructor
from sensewise.reconstruct.wavelet import CsWavelet
from sensewise.reconstruct.zero_filled import ZeroFilled
from sensewise.report.figures import recording as pictures
from sensewise.report.figures.rows import acquisition, row_strips
from sensewise.report.figures.style import save
from sensewise.sensors.base import Side
from sensewise.sensors.rows import RowSensor

ROW_METHODS = ("acs-variable-density", "acs-random", "acs-equispaced", "static-search", "sequential-value")
RECONSTRUCTORS = ("unet-a", "unet-b", "cs-wavelet", "zero-filled")
FILES = frozenset(
    (
        "acquisition.json",
        "acquisition.png",
        "mask-full.npy",
        "mask.npy",
        "mask.png",
        "mask.txt",
        "reconstruction.h5",
        "reconstruction.nii.gz",
        "reconstruction.npy",
        "reconstruction.png",
    )
)
"""Everything that the acquisition of a slice writes."""


@dataclass(frozen=True)
class Slice(Subject):
    """Rows of k-space.

    Attributes:
        scan: the slice, fully sampled.
        mri: what the preset fixes.
    """

    scan: MRSlice
    mri: MRISettings

    def acquire(self, settings: Settings, folder: Path) -> str:
        scan, name = self.scan, settings.policy or ROW_METHODS[0]
        method, k, note = self.method(name, settings)
        by = settings.reconstructor or RECONSTRUCTORS[0]
        reconstruct = reconstructor(by, settings.preset)
        sensor = RowSensor(scan.kspace)
        side = Side(summary=sensor.summary(self.mri.acs))
        block = None if isinstance(method.policy, Fixed) else CentralBlock(self.mri.acs)
        taken = method.spend(sensor, k, side=side, start=block, generator=settings.generator())
        x = scan.shown(magnitude(scan.kspace))
        x_hat = scan.shown(reconstruct(taken.observation, taken.mask))
        values = {
            "nmse": round(float(metrics.nmse(x_hat, x)), 6),
            "slice_psnr": round(float(metrics.peak_psnr(x_hat, x)), 6),
            "ssim": round(float(metrics.ssim(x_hat, x)), 6),
        }
        self._write_mask(folder, taken, method.name)
        write_reconstruction(folder, x_hat[0], scan.full_mask(taken.mask[0]), scan.aspect)
        figure = acquisition(
            x[0].double().numpy(),
            x_hat[0].double().numpy(),
            taken.mask[0].numpy(),
            method.name,
            nmse=values["nmse"],
            psnr=values["slice_psnr"],
        )
        save(figure, folder / "acquisition.png")
        save(pictures.png((x_hat[0] / x.max()).clamp(0, 1).numpy()), folder / "reconstruction.png")
        about = {"rows": k, "of": scan.rows, "lines": scan.full, "coils": scan.coils, "method": name}
        about |= {"note": note, "read": scan.done, "reconstructor": by}
        write_json(folder / "acquisition.json", {**about, **values})
        said = "; ".join(text for text in (note, scan.done) if text)
        done = f"{k} of {scan.rows} rows measured, NMSE {values['nmse']:.4f} with {by}"
        return f"{done} ({said})" if said else done

    def _write_mask(self, folder: Path, taken: Trajectory, method: str) -> None:
        """The mask of the crop, that of the full matrix, and line numbers in the order in which they were measured."""
        scan, mask = self.scan, taken.mask[0]
        hub.save_array(folder / "mask.npy", mask.numpy())
        hub.save_array(folder / "mask-full.npy", scan.full_mask(mask).numpy())
        numbers = [line for step in range(taken.steps + 1) for line in scan.line_numbers(taken.step[0] == step)]
        ScanLines(tuple(numbers), scan.full, scan.full // 2 + scan.origin).write(folder / "mask.txt")
        save(row_strips({method: mask.numpy()}), folder / "mask.png")

    def method(self, name: str, settings: Settings) -> tuple[Method, int, str]:
        """The method of a name or of a mask file, its rows, and what was adapted to reach their number."""
        rows, acs, preset = self.mri.rows, self.mri.acs, settings.preset
        steps = 1 if settings.steps is None else settings.steps
        if name.endswith((".npy", ".txt")):
            mask = load_mask(Path(name), self.scan)
            budget = int(mask.sum()) if settings.budget is None else settings.budget
            return Method("a mask file", Fixed([mask])), count_rows(budget, rows, acs), ""
        budget = self.mri.budgets[0] if settings.budget is None else settings.budget
        k = count_rows(budget, rows, acs)
        if name == "static-search":
            mask, note = searched_mask(preset, k, rows)
            return Method(name, Fixed([mask])), k, note
        if name == "sequential-value":
            plan, note = planned_rows(preset, k, rows)
            return Method(name, PlannedRows([plan]), steps, FixedStart({plan.k: plan.core})), k, note
        if name in ROW_METHODS:
            return Method(name, ROW_FAMILIES[name.removeprefix("acs-")]), k, ""
        if ":" in name:
            prior, _ = hub.load_row_prior(preset=preset)
            return method_from_text(name, prior, steps), k, ""
        known = ", ".join(ROW_METHODS)
        raise ConfigError(
            f"no method {name!r}: choose one of {known}, or give module:Class or a mask file (.npy, .txt)"
        )


def _nearest(found: dict[float, Path], k: int, rows: int) -> tuple[float, Path]:
    budget = min(found, key=lambda budget: (abs(round(budget * rows) - k), budget))
    return budget, found[budget]


def _adapted(folder: Path, trained: int, k: int, rows: int) -> str:
    if trained == k:
        return ""
    return f"{folder.name} is for {trained} of {rows} rows, {'cut' if k < trained else 'extended'} to {k}"


def searched_mask(preset: str, k: int, rows: int) -> tuple[Tensor, str]:
    """The searched mask of `k` rows: the trained one, or the nearest cut or extended by the worth of its rows.

    Returns:
        The mask `(rows,)`, and what was adapted, in words.
    """
    found = hub.trained_budgets("mri/static-search", preset, "mask.npy")
    masks = {budget: hub.load_mask(folder / "mask.npy", rows) for budget, folder in found.items()}
    budget, folder = _nearest(found, k, rows)
    if int(masks[budget].sum()) == k:
        return masks[budget], ""
    orders = {int(mask.sum()): _order(found[budget], mask) for budget, mask in masks.items()}
    return rows_by_worth(orders, k, rows), _adapted(folder, int(masks[budget].sum()), k, rows)


def _order(folder: Path, mask: Tensor) -> Tensor:
    """The rows of a mask, the most valuable first; from the middle outwards where their worth was not kept."""
    numbers = mask.nonzero()[:, 0]
    path = folder / "order.npy"
    if not path.is_file():
        return numbers[(numbers - len(mask) // 2).abs().argsort(stable=True)]
    try:
        order = torch.from_numpy(read_npy(path, hub.LARGEST_MASK))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    if order.dtype != torch.int64 or not torch.equal(order.sort().values, numbers):
        raise CheckpointError(f"{path} does not hold the rows of mask.npy beside it")
    return order


def planned_rows(preset: str, k: int, rows: int) -> tuple[RowPlan, str]:
    """The plan for `k` rows: the trained one, or the coefficients of the nearest; and what was adapted, in words."""
    found = hub.trained_budgets("mri/row-plan", preset)
    _, folder = _nearest(found, k, rows)
    plan, _ = hub.load(folder, "row-plan", preset)
    assert isinstance(plan, RowPlan)
    return (plan, "") if plan.k == k else (plan.with_budget(k), _adapted(folder, plan.k, k, rows))


def reconstructor(name: str, preset: str) -> Reconstructor:
    """A reconstructor of slices by name; networks are those of a preset."""
    if name not in RECONSTRUCTORS:
        raise ConfigError(f"no reconstructor {name!r}: choose one of {', '.join(RECONSTRUCTORS)}")
    if name == "zero-filled":
        return ZeroFilled()
    if name == "cs-wavelet":
        return CsWavelet()
    network, _ = hub.load(f"mri/{name}", "reconstructor", preset)
    return UNetReconstructor(network)


def load_mask(path: Path, scan: MRSlice) -> Tensor:
    """A mask file as a mask of a slice's rows, `(rows,)`.

    A list of scanner lines, as `acquire` writes it, and an array as long as the full matrix are moved into the crop;
    anything else has the crop's own rows.
    """
    last = scan.first + scan.rows
    if path.suffix == ".txt" and (lines := read_lines(path)) is not None:
        numbers = torch.tensor([line - scan.origin for line in lines.numbers], dtype=torch.int64)
        if bool(((numbers < scan.first) | (numbers >= last)).any()):
            low, high = scan.first + scan.origin, last + scan.origin - 1
            raise BudgetError(f"{path} names lines outside {low}..{high}, which are the rows that can be measured")
        return torch.zeros(scan.rows, dtype=torch.bool).index_fill(0, numbers - scan.first, True)
    if path.suffix == ".npy" and path.is_file() and scan.full != scan.rows:
        try:
            length = read_npy(path, hub.LARGEST_MASK).size
        except (OSError, ValueError, TypeError, EOFError):
            length = 0  # said below
        if length == scan.full:
            mask = hub.load_mask(path, scan.full)
            if int(mask.sum()) != int(mask[scan.first : last].sum()):
                raise BudgetError(f"{path} takes lines outside the middle {scan.rows}, which can be measured")
            return mask[scan.first : last]
    return hub.load_mask(path, scan.rows)


def write_reconstruction(folder: Path, image: Tensor, mask: Tensor, aspect: float) -> None:
    """Magnitudes `(H, W)` as `.npy`, as HDF5 with the names of fastMRI, and, with nibabel installed, as NIfTI.

    Args:
        mask: of the full matrix, as fastMRI's files have it; `(lines,)`.
        aspect: the height of a pixel over its width.
    """
    values = image.float().numpy()
    hub.save_array(folder / "reconstruction.npy", values)
    with atomic(folder / "reconstruction.h5") as temporary, h5py.File(temporary, "w") as file:
        file["reconstruction"] = values[None]
        file["mask"] = mask.numpy()
    try:
        import nibabel
    except ImportError:
        return
    picture = nibabel.Nifti1Image(values[:, :, None], np.diag([aspect, 1.0, 1.0, 1.0]))  # type: ignore[no-untyped-call]
    nibabel.save(picture, folder / "reconstruction.nii.gz")
