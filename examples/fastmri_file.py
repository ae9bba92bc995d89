"""What the reader does to a file in fastMRI's layout, as a picture: turn, remove oversampling, crop.

fastMRI may not be passed on, so a file like its single-coil knees is made from a bundled one: 640 readout samples,
twice oversampled, x 368 phase-encode lines, with the ISMRMRD header that says so. With `--file` it shows one of yours.
"""

import argparse
from pathlib import Path

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure

from sensewise.data.arrays import bundled_arrays
from sensewise.data.fastmri import open_volume
from sensewise.data.kspace_files import read_slice
from sensewise.data.prepare import smooth_phase
from sensewise.kspace import magnitude, to_kspace
from sensewise.report.figures.style import save

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--file", type=Path, help="an HDF5 file in fastMRI's layout")
parser.add_argument("--size", type=int, default=128, help="rows and columns that the models take")
parser.add_argument("--out", type=Path, default=Path("runs/fastmri-file"))
options = parser.parse_args()

HEADER = """<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><encoding>
<encodedSpace><matrixSize><x>640</x><y>368</y><z>1</z></matrixSize></encodedSpace>
<reconSpace><matrixSize><x>320</x><y>320</y><z>1</z></matrixSize></reconSpace>
<encodingLimits><kspace_encoding_step_1><minimum>0</minimum><maximum>321</maximum><center>161</center>
</kspace_encoding_step_1></encodingLimits><trajectory>cartesian</trajectory></encoding></ismrmrdHeader>"""


def make_file(path: Path) -> None:
    """A knee of 320 x 320 pixels in a field of 640 x 368, k-space as slices x samples x lines."""
    pixels = torch.from_numpy(bundled_arrays("knee.npz")["magnitudes"][0]).float()
    knee = F.interpolate(pixels[None, None], size=(320, 320), mode="bilinear")[0, 0].T / 255  # samples x lines
    field = F.pad(knee, (24, 24, 160, 160))  # (640, 368)
    kspace = to_kspace(torch.polar(field, smooth_phase(640, 368, torch.Generator().manual_seed(0))))
    with h5py.File(path, "w") as file:
        file["kspace"] = kspace[None].numpy()
        file["ismrmrd_header"] = HEADER
        file.attrs["acquisition"] = "CORPD_FBK"


options.out.mkdir(parents=True, exist_ok=True)
path = options.file or options.out / "knee.h5"
if options.file is None:
    make_file(path)
with open_volume(path) as stored:
    number = len(stored) // 2
    raw = torch.from_numpy(np.array(stored.kspace[number], np.complex64))[None]
    columns = stored.kspace.shape[-1 if stored.axis == "rows" else -2]
    whole = stored.slice(number, (stored.lines, stored.readout or columns))
ready = read_slice(path, (options.size, options.size))
print(ready.done)

shown = ready.shown(magnitude(ready.kspace))[0]
figure = Figure(figsize=(13, 4.6), layout="constrained")
strength = (magnitude(to_kspace(raw))[0] + 1e-9).log()  # of k-space itself: the transform and back
panels = {
    f"k-space as stored: {raw.shape[-2]} x {raw.shape[-1]},\nphase-encode along the {stored.axis}": strength,
    f"its image, taken as it lies:\n{raw.shape[-2]} x {raw.shape[-1]}": magnitude(raw)[0],
    f"lines as rows, oversampling removed:\n{whole.rows} x {whole.kspace.shape[-1]}": magnitude(whole.kspace)[0],
    f"middle {options.size} x {options.size} of k-space,\nwhat a reconstruction shows": shown,
}
for axes, (title, image) in zip(figure.subplots(1, 4), panels.items(), strict=True):
    aspect = ready.aspect if image is shown else 1.0  # a crop of k-space has pixels that are not square
    axes.imshow(image.numpy(), cmap="gray", vmax=float(image.flatten().quantile(0.995)), aspect=aspect)
    axes.set_title(title, fontsize=10)
    axes.set_axis_off()
save(figure, options.out / "reader.png")
print(f"See {options.out / 'reader.png'}")
