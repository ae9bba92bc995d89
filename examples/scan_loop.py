"""A closed loop with an MR scanner: lines are chosen, played as a Pulseq sequence, measured, and the next are chosen.

The scanner is MRzero (mrzerocore), a simulator of the Bloch equations that nobody here wrote: it plays every `.seq`
file on a slice of the bundled knee with two coils. Measured lines come back as ISMRMRD files. One sequence per step,
since a sequence cannot change while it runs. Needs `pip install mrzerocore pypulseq ismrmrd` (mrzerocore is AGPL-3: it
is used here and nowhere in the package).
"""

import argparse
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import MRzeroCore as mr0
import torch
import torch.nn.functional as F

from sensewise import hub
from sensewise.data.arrays import bundled_arrays
from sensewise.data.ismrmrd import read_measured
from sensewise.data.lines import ScanLines
from sensewise.data.prepare import coil_maps
from sensewise.instruments.ismrmrd import write_scan
from sensewise.instruments.pulseq import GradientEcho, write_sequence
from sensewise.kspace import magnitude
from sensewise.loop import Acquisition
from sensewise.metrics import nmse
from sensewise.policies.planned import PlannedRows
from sensewise.policies.starts import FixedStart
from sensewise.reconstruct.unet import UNetReconstructor
from sensewise.report.figures.rows import acquisition
from sensewise.report.figures.style import save

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--slice", type=int, default=0, help="of the bundled knee, 0 to 3")
parser.add_argument("--steps", type=int, default=3, help="sequences after the first one")
parser.add_argument("--out", type=Path, default=Path("runs/scan-loop"))
options = parser.parse_args()

SIDE, COILS = 128, 2
echo = GradientEcho(samples=SIDE, tr=5.0)  # seconds: every line starts from rest, whatever was played before


def make_phantom() -> mr0.SimData:
    """Proton density of a knee, one tissue, two coils; axes are x, y, z."""
    pixels = torch.from_numpy(bundled_arrays("knee.npz")["magnitudes"][options.slice]).float() / 255
    density = F.avg_pool2d(pixels[None], 2)[0].T.unsqueeze(2)  # (128, 128, 1)
    same = torch.ones_like(density)
    pixel = 1e3 * echo.fov / SIDE  # millimetres
    grid = mr0.VoxelGridPhantom(
        PD=density,
        T1=0.8 * same,
        T2=0.05 * same,
        T2dash=0.03 * same,
        D=0 * same,
        B0=0 * same,
        B1=same[None],
        coil_sens=coil_maps(COILS, SIDE, SIDE).transpose(1, 2).unsqueeze(3),
        affine=torch.diag(torch.tensor([pixel, pixel, 8.0, 1.0])),
    )
    return grid.build(PD_threshold=0.02)


def play(rows: list[int], name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Measure rows on the scanner: k-space `(1, coils, 128, 128)` and which rows of it are there `(1, 128)`."""
    write_sequence(ScanLines(tuple(rows), SIDE, SIDE // 2), options.out / f"{name}.seq", echo)
    with redirect_stdout(StringIO()):
        sequence = mr0.Sequence.import_file(str(options.out / f"{name}.seq"))
        graph = mr0.compute_graph(sequence, phantom, 200, 1e-3)
        signal = mr0.execute_graph(graph, sequence, phantom, print_progress=False)  # (samples in all, coils)
    samples = signal.view(len(rows), SIDE, COILS).transpose(1, 2).numpy()
    write_scan(options.out / f"{name}.h5", rows, samples, full=SIDE, middle=SIDE // 2)
    kspace, seen = read_measured(options.out / f"{name}.h5")
    return torch.from_numpy(kspace), torch.from_numpy(seen)


options.out.mkdir(parents=True, exist_ok=True)
phantom = make_phantom()
plan, _ = hub.load("mri/row-plan-0.25", "row-plan")
nothing = torch.zeros(1, COILS, SIDE, SIDE, dtype=torch.complex64)
start = FixedStart({plan.k: plan.core})
loop = Acquisition(PlannedRows([plan]), nothing, (SIDE,), plan.k, steps=options.steps, start=start)
step = 0
while (chosen := loop.ask()) is not None:
    rows = chosen[0].nonzero()[:, 0].tolist()
    measured, seen = play(rows, f"step-{step}")
    assert seen[0].nonzero()[:, 0].tolist() == sorted(rows)
    loop.tell(torch.where(seen[:, None, :, None], measured, loop.observation))
    print(f"step {step}: lines {', '.join(map(str, rows))}")
    step += 1

taken = loop.trajectory()
full, _ = play(list(range(SIDE)), "full")
network, _ = hub.load("mri/unet-a", "reconstructor")
x, x_hat = magnitude(full), UNetReconstructor(network)(taken.observation, taken.mask)
error, filled = float(nmse(x_hat, x)), float(nmse(magnitude(taken.observation), x))
peak = float(10 * torch.log10(x.max() ** 2 / (x_hat - x).square().mean()))
figure = acquisition(x[0].numpy(), x_hat[0].numpy(), taken.mask[0].numpy(), "sequential-value", nmse=error, psnr=peak)
save(figure, options.out / "acquisition.png")
print(f"{int(taken.mask.sum())} of {SIDE} lines in {step} sequences: NMSE {error:.4f}, zero-filled {filled:.4f}")
