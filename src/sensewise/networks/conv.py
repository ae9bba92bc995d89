"""The paper's MNIST network: 5x5 convolutions down to 2x2 and back, three transformer layers, one skip. 63 M weights.

Kept for comparison and for the preset `paper`. Two defects of the original are repaired: attention runs over the
positions of one image (there it ran over the images of a batch), and height and width keep their order in the output.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensewise.networks.encodings import scalars

WIDTHS = (16, 32, 64, 512, 512)


def _stage(inputs: int, outputs: int) -> nn.Sequential:
    """Three 5x5 convolutions, each with GroupNorm (8 channels a group) and LeakyReLU."""
    layers: list[nn.Module] = []
    for width in (inputs, outputs, outputs):
        layers += [nn.Conv2d(width, outputs, 5, padding=2), nn.GroupNorm(outputs // 8, outputs), nn.LeakyReLU()]
    return nn.Sequential(*layers)


class PaperConv(nn.Module):
    """The convolutional predictor of the paper for 32 x 32 images.

    Args:
        channels: image channels `C`.
        num_states: data states `N`.
        num_labels: classes, or None; the index `num_labels` means "unknown".
    """

    multiple = 16  # image sides must be divisible by this

    def __init__(self, channels: int, num_states: int, num_labels: int | None) -> None:
        super().__init__()
        self.channels, self.num_states, self.num_labels = channels, num_states, num_labels
        self.down = nn.ModuleList(
            _stage(a, b) for a, b in zip((channels, *WIDTHS[:-1]), WIDTHS, strict=True)
        )  # at 32, 16, 8, 4 and 2 pixels a side
        ups = ((512, 512), (1024, 64), (64, 32), (32, 16))
        self.up = nn.ModuleList(nn.Sequential(_stage(a, b), nn.ConvTranspose2d(b, b, 2, stride=2)) for a, b in ups)
        self.last = _stage(16, 16)
        self.head = nn.Conv2d(16, channels * num_states, 1, bias=False)
        conditioned = (*WIDTHS, 512, 64)
        self.time = nn.ModuleList(nn.Linear(32, w) for w in conditioned)
        self.label = nn.ModuleList(nn.Embedding((num_labels or 0) + 1, w) for w in conditioned)
        self.attention = nn.ModuleList(
            nn.TransformerEncoderLayer(512, 8, dim_feedforward=1024, dropout=0.0, batch_first=True) for _ in range(3)
        )

    def _attend(self, layer: int, x: Tensor) -> Tensor:
        positions = x.flatten(2).transpose(1, 2)  # (B, H W, C): a sequence is the positions of one image
        return self.attention[layer](positions).transpose(1, 2).reshape(x.shape)

    def forward(self, y: Tensor, label: Tensor, survival: Tensor) -> Tensor:
        x = scalars(y, self.num_states).to(self.head.weight.dtype)  # the mask state is -1
        batch, _, height, width = x.shape
        angles = (1 - survival)[:, None] * torch.arange(1, 17, device=y.device) * torch.pi
        time = torch.cat([angles.cos(), angles.sin()], dim=1)  # (B, 32)
        labels = torch.zeros_like(label) if self.num_labels is None else label

        def condition(i: int) -> Tensor:
            return (self.time[i](time) + self.label[i](labels))[:, :, None, None]

        skip = x
        for i, stage in enumerate(self.down):
            x = stage(x if i == 0 else F.avg_pool2d(x, 2)) + condition(i)
            if i >= 3:
                x = self._attend(i - 3, x)
            if i == 3:
                skip = x  # (B, 512, H / 8, W / 8)
        x = self._attend(2, self.up[0](x) + condition(5))
        x = self.up[1](torch.cat([x, skip], dim=1)) + condition(6)
        x = self.head(self.last(self.up[3](self.up[2](x))))
        return x.view(batch, self.channels, self.num_states, height, width).movedim(2, -1)  # (B, C, H, W, N)
