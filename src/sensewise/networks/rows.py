"""Networks over the rows of k-space: the coarse profile's prior, the one-shot row policy, the value of a row.

Rows are not alike (the middle ones hold most of the energy), so every network is told where a row lies.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensewise.errors import DataError
from sensewise.kspace import to_kspace
from sensewise.networks.base import MaskNetwork
from sensewise.tokens import MASK


def row_position(rows: int, batch: int, device: torch.device) -> Tensor:
    """Signed and absolute distance from the middle row, in [-1, 1], with shape `(B, 2, rows)`."""
    place = (torch.arange(rows, device=device) - rows // 2) / (rows / 2)
    return torch.stack([place, place.abs()]).expand(batch, -1, -1)


def _stack(inputs: int, width: int, layers: int, kernel: int = 5) -> nn.Sequential:
    parts: list[nn.Module] = [nn.Conv1d(inputs, width, kernel, padding=kernel // 2)]
    for _ in range(layers):
        parts += [nn.SiLU(), nn.Conv1d(width, width, kernel, padding=kernel // 2)]
    return nn.Sequential(*parts, nn.SiLU())


class RowConv(nn.Module):
    """The coarse prior's network: 1-D convolutions over tokens `(B, 1, rows, 1)`; logits `(B, 1, rows, 1, N)`.

    Args:
        channels: 1.
        num_states: bins `N` of the profile.
        num_labels: None; rows have no class.
        width: channels.
        layers: convolutions after the first.
    """

    multiple = 1

    def __init__(
        self, channels: int, num_states: int, num_labels: int | None, width: int = 64, layers: int = 4
    ) -> None:
        super().__init__()
        self.num_states = num_states
        self.body = _stack(num_states + 4, width, layers)
        self.head = nn.Conv1d(width, num_states, 1)

    def forward(self, y: Tensor, label: Tensor, survival: Tensor) -> Tensor:
        tokens = y[:, 0, :, 0]  # (B, rows)
        batch, rows = tokens.shape
        states = F.one_hot(tokens - MASK, self.num_states + 1).transpose(1, 2).to(survival.dtype)  # (B, N + 1, rows)
        density = survival.view(-1, 1, 1).expand(-1, 1, rows)
        x = torch.cat([states, row_position(rows, batch, survival.device), density], dim=1)
        return self.head(self.body(x)).transpose(1, 2)[:, None, :, None]  # (B, 1, rows, 1, N)


class RowPolicyNetwork(MaskNetwork):
    """The one-shot row policy: log-odds of each row from the row means of the scout and the budget.

    Args:
        rows: of k-space.
        adaptive: look at the scout; without it the masks are the same for every slice.
        width: channels.
        layers: convolutions after the first.
        places: learned numbers of each row that the convolutions see beside its position. Without them neighbouring
            rows look alike, and a mask of rows far from each other is out of reach.
    """

    def __init__(self, rows: int, adaptive: bool = True, width: int = 32, layers: int = 3, places: int = 0) -> None:
        super().__init__()
        self.rows, self.adaptive = rows, adaptive
        self.body = _stack(4 + places, width, layers)
        self.head = nn.Conv1d(width, 1, 1)
        self.places = nn.Parameter(torch.randn(places, rows)) if places else None

    def forward(self, scout: Tensor, budget: Tensor) -> Tensor:
        """Log-odds `(B, rows)` from a scout `(B, n, n)` and budgets `(B,)`."""
        batch = len(scout)
        means = scout.mean(2).unsqueeze(1)  # (B, 1, n)
        seen = F.interpolate(means, self.rows, mode="linear", align_corners=False)
        seen = seen if self.adaptive else torch.zeros_like(seen)
        budgets = budget.view(-1, 1, 1).expand(-1, 1, self.rows)
        known = [seen, budgets, row_position(self.rows, batch, budget.device)]
        if self.places is not None:
            known.append(self.places.expand(batch, -1, -1))
        x = torch.cat(known, dim=1)
        offset = torch.logit(budget.clamp(0.01, 0.99)).unsqueeze(1)
        return self.head(self.body(x))[:, 0] + offset

    def keep_logits(self, summary: Tensor | None, label: Tensor | None, budget: Tensor) -> Tensor:
        if summary is None:
            raise DataError("this policy needs a scout: give Side(summary=sensor.summary(acs))")
        return self(summary, budget)


class RowValueNetwork(nn.Module):
    """What measuring each row would be worth to a reconstructor, in per cent of the error that is left.

    It sees k-space as the reconstructor draws it, on a log scale, and which rows are measured; columns are folded away
    by strided convolutions, rows are kept apart until the end.

    Args:
        width: channels.
        layers: 1-D convolutions over the rows, with growing dilation.
        columns: strides along the columns, one convolution each.
    """

    def __init__(self, width: int = 48, layers: int = 4, columns: tuple[int, ...] = (4, 4, 4)) -> None:
        super().__init__()
        widths = [4, *(max(8, width >> (len(columns) - 1 - i)) for i in range(len(columns)))]
        self.fold = nn.ModuleList(
            nn.Conv2d(a, b, (3, stride + 1), stride=(1, stride), padding=(1, stride // 2))
            for a, b, stride in zip(widths, widths[1:], columns, strict=False)
        )
        self.enter = nn.Conv1d(widths[-1] + 5, width, 1)
        self.body = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2 * 2**i, dilation=2**i) for i in range(layers))
        self.head = nn.Conv1d(width, 1, 1)
        nn.init.zeros_(self.head.weight)

    def forward(self, drawn: Tensor, mask: Tensor, budget: Tensor) -> Tensor:
        """Values `(B, rows)` from complex reconstructions `(B, H, W)`, masks `(B, H)` and budgets `(B,)`."""
        kspace = to_kspace(drawn)
        batch, rows, _ = kspace.shape
        scale = kspace.abs().square().mean((1, 2), keepdim=True).sqrt()
        level = (kspace.abs() / scale + 1e-4).log() / math.log(10)  # (B, H, W)
        measured = mask.to(level.dtype).unsqueeze(-1).expand(level.shape)
        left = F.avg_pool1d(measured[..., 0].unsqueeze(1), 9, stride=1, padding=4)  # how dense it is around here
        image = drawn.abs() / drawn.abs().amax((1, 2), keepdim=True)
        edges = F.pad(image.diff(dim=1).abs(), (0, 0, 0, 1))
        x = torch.stack([level, measured, image, edges], dim=1)
        for fold in self.fold:
            x = F.silu(fold(x))
        budgets = budget.view(-1, 1, 1).expand(-1, 1, rows)
        flat = [x.mean(3), measured[..., 0].unsqueeze(1), left, budgets, row_position(rows, batch, mask.device)]
        h = self.enter(torch.cat(flat, dim=1))
        for layer in self.body:
            h = h + layer(F.silu(h))
        return self.head(F.silu(h))[:, 0]
