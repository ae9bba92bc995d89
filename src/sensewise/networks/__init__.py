"""Networks: tokens, labels and survival in, logits out. Plain modules that know nothing of diffusion or acquisition.

Every network takes `(y, label, survival)`: tokens `(B, C, H, W)`, labels `(B,)` with `num_labels` for "unknown", and
the survival `(B,)` that stands for the timestep. It returns logits `(B, C, H, W, N)` for the N data states; the mask
state has no logit.
"""

from sensewise.networks.conv import PaperConv
from sensewise.networks.dit import DiT
from sensewise.networks.rows import RowConv
from sensewise.networks.unet import UNet

NETWORKS = {"unet": UNet, "paper-conv": PaperConv, "dit": DiT}
PRIOR_NETWORKS = {**NETWORKS, "rows": RowConv}  # rows: for profiles of k-space, one channel and one column

__all__ = ["NETWORKS", "PRIOR_NETWORKS", "DiT", "PaperConv", "RowConv", "UNet"]
