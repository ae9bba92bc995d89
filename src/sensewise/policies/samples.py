"""Rows by what they are worth on average to images that a slice may be, given what has been measured of it.

A few such images are drawn without a generative model: what reconstructor A draws, plus what A missed under the same
mask in the known slices whose scouts look most alike. So they have the measured rows exactly, and differ elsewhere as
much as A is usually wrong there. Then each further row is tried on them, as the one-step oracle does on the truth.
"""

import torch
from torch import Tensor, nn

from sensewise.kspace import acs_block, keep_rows, over_coils, per_row, scout, sensitivities, to_kspace
from sensewise.policies.base import Context, Policy
from sensewise.policies.nearest import features, neighbours
from sensewise.policies.value import CHUNK, one_step_gains

SIZE = 7  # side of what scouts are compared by


class SampledGain(Policy):
    """The rows that lower the expected error of reconstructor A most, over images that a slice may be.

    Args:
        network: reconstructor A, with `complex_image`.
        known: fully sampled slices, with shape `(n, H, W)`.
        acs: rows of the ACS block, which is measured first.
        samples: images per slice.
        shortlist: rows that are tried exactly; None tries every row.
    """

    def __init__(
        self, network: nn.Module, known: Tensor, acs: int, samples: int = 4, shortlist: int | None = 8
    ) -> None:
        self.network, self.known, self.acs = network, known, acs
        self.samples, self.shortlist = samples, shortlist
        self._features = features(scout(known, acs), SIZE)

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        drawn = self.images(observation, mask)
        return one_step_gains(self.network, drawn, mask, self.shortlist, self.samples)

    @torch.no_grad()
    def images(self, y: Tensor, mask: Tensor) -> Tensor:
        """The k-space of what slices may be, `samples` for each of them in turn; `(B samples, H, W)`."""
        near = neighbours(features(scout(y, self.acs), SIZE), self._features, self.samples)  # (B, samples)
        others, masks = self.known[near.flatten()], mask.repeat_interleave(self.samples, dim=0)
        missed = others - self._completed(keep_rows(others, masks), masks)
        mine = self._completed(y, mask).repeat_interleave(self.samples, dim=0)
        stronger = self._strength(mine) / self._strength(others)
        return mine + missed * stronger.view(-1, *[1] * (mine.dim() - 1))

    def _completed(self, y: Tensor, mask: Tensor) -> Tensor:
        """The k-space of what A draws, with the measured rows as they were measured; shaped like `y`."""
        found = []
        for part, kept in zip(torch.split(y, CHUNK), torch.split(mask, CHUNK), strict=True):
            image = self.network.complex_image(part, kept)  # type: ignore[operator]
            each = image if part.dim() == 3 else sensitivities(part, kept) * image.unsqueeze(1)
            found.append(torch.where(per_row(kept, part), part, to_kspace(each)))
        return torch.cat(found)

    def _strength(self, kspace: Tensor) -> Tensor:
        """The norm of the ACS block, `(B,)`."""
        return acs_block(over_coils(kspace), self.acs).square().sum((1, 2)).sqrt()
