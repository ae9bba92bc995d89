"""Choose which rows of k-space to measure: compare families of masks, keep the best fixed one, export it.

Runs on the bundled knee slices with zero-filled reconstruction, so it needs no trained network. With one, `sensewise
train static-search` goes on from here by swapping rows.
"""

import argparse
from pathlib import Path

import torch

from sensewise.data import bundled_knee
from sensewise.hub import save_mask
from sensewise.kspace import keep_rows, magnitude
from sensewise.metrics import nmse
from sensewise.policies.simple import FAMILY_NAMES, draw_rows
from sensewise.policies.starts import count_rows
from sensewise.report.figures.rows import draw_mask

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--budget", type=float, default=0.25, help="fraction of the rows")
parser.add_argument("--acs", type=int, default=14, help="central rows that are always measured")
parser.add_argument("--draws", type=int, default=64, help="masks tried of each family")
parser.add_argument("--out", type=Path, default=Path("runs/kspace-mask"))
options = parser.parse_args()

kspace = bundled_knee().values  # (n, rows, columns), complex
choose, check = kspace[::2], kspace[1::2]  # choose on some slices, judge on others
rows, generator = kspace.shape[1], torch.Generator().manual_seed(0)
k = count_rows(options.budget, rows, options.acs)


def error(mask: torch.Tensor, slices: torch.Tensor) -> float:
    """Mean zero-filled NMSE of one mask `(rows,)`."""
    seen = keep_rows(slices, mask.expand(len(slices), -1))
    return nmse(magnitude(seen), magnitude(slices)).mean().item()


best = None
for family in FAMILY_NAMES:
    drawn = draw_rows(family, options.draws, rows, k, options.acs, generator)  # (draws, rows)
    found = sorted((error(mask, choose), number) for number, mask in enumerate(drawn))
    mask = drawn[found[0][1]]
    average = sum(value for value, _ in found) / len(found)
    print(
        f"{family:22} mean {average:.4f}   best draw {found[0][0]:.4f}   on the other slices {error(mask, check):.4f}"
    )
    if best is None or found[0] < best[0]:
        best = (found[0], family, mask)

assert best is not None
save_mask(options.out, best[2])
draw_mask(options.out)
print(f"{k} of {rows} rows, {best[1]}: {options.out / 'mask.npy'}, mask.txt (row numbers) and mask.png")
