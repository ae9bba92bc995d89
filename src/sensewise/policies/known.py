"""Images of the same kind as a scene: what pixels have to do with each other is seen in those that look like it."""

import torch
from torch import Tensor

from sensewise.errors import ConfigError
from sensewise.policies.base import Context
from sensewise.tokens import MASK, UNKNOWN, dequantize


class KnownImages:
    r"""Images that a scene may look like, and how well they agree with what has been measured of it.

    The `near` best have weights $w_a \propto e^{-\beta d_a^2}$, $d_a$ the distance of the measured intensities.

    Args:
        images: tokens 1..N, with shape `(M, C, H, W)`: images to learn from, or samples of a prior.
        num_states: data states `N`.
        labels: with shape `(M,)`; images of another label than the scene's are left out. None for no such rule.
        near: how many of them stand for a scene.
        sharpness: $\beta$; a large one keeps those that agree everywhere.
    """

    def __init__(
        self,
        images: Tensor,
        num_states: int,
        labels: Tensor | None = None,
        *,
        near: int = 64,
        sharpness: float = 0.25,
    ) -> None:
        if images.dim() != 4 or not len(images) or (labels is not None and labels.shape != images.shape[:1]):
            raise ConfigError(
                "known images are tokens of shape (M, C, H, W), at least one, each with a label or none, got "
                f"{tuple(images.shape)}" + ("" if labels is None else f" and labels {tuple(labels.shape)}")
            )
        if near < 1 or sharpness < 0:
            raise ConfigError(f"near >= 1 and sharpness >= 0 are needed, got {near} and {sharpness}")
        self.images, self.num_states, self.labels = images, num_states, labels
        self.near, self.sharpness = min(near, len(images)), sharpness
        self._values = dequantize(images, num_states).flatten(2).transpose(1, 2).contiguous()  # (M, K, C)

    @property
    def shape(self) -> tuple[int, int, int]:
        """`(C, H, W)`."""
        _, channels, height, width = self.images.shape
        return channels, height, width

    def check(self, y: Tensor | None, grid: tuple[int, ...]) -> Tensor:
        """What has been measured, `(B, C, H, W)`; refuses what these images cannot be compared with."""
        tokens = y is not None and not (y.is_floating_point() or y.is_complex())
        if y is None or not tokens or tuple(y.shape[1:]) != self.shape or grid != self.shape[1:]:
            seen = "nothing" if y is None else f"{y.dtype} of shape {tuple(y.shape)}"
            raise ConfigError(
                f"known images of shape {self.shape} can be compared with tokens of that shape, got {seen} on a grid "
                f"{grid}"
            )
        return y

    def nearest(self, y: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """Those that agree best with tokens `(B, C, H, W)` of scenes with labels `(B,)`.

        Returns:
            Which they are, and their weights, with sum 1; `(B, near)` each.
        """
        values = self._values.flatten(1).to(y.device)  # (M, K C)
        tokens = y.flatten(2).transpose(1, 2).flatten(1)  # (B, K C)
        seen, read = (tokens != MASK).float(), dequantize(tokens, self.num_states).nan_to_num(0.0)
        distance = seen @ values.square().T - 2 * read @ values.T  # (B, M): squared, less what is the same for all
        if self.labels is not None and labels is not None:
            wanted = labels.to(y.device).unsqueeze(1)
            distance = distance + OTHER_LABEL * ((wanted != UNKNOWN) & (wanted != self.labels.to(y.device)))
        found = distance.topk(self.near, dim=1, largest=False)
        return found.indices, torch.softmax(-self.sharpness * found.values, dim=1)

    def like(self, context: Context, part: slice, place: Tensor) -> tuple[Tensor, Tensor]:
        """What the images nearest to a part of the scenes have at pixels `(B, S)`, and their weights.

        Returns:
            Intensities, with shape `(B, near, S, C)`, and weights `(B, near)`.
        """
        y = self.check(context.observation, context.grid)
        which, weights = self.nearest(y[part], context.side[part].label)
        return self.values(which, place), weights

    def values(self, which: Tensor, place: Tensor) -> Tensor:
        """Intensities of images `(B, near)` at pixels `(B, S)`, with shape `(B, near, S, C)`."""
        return self._values.to(which.device)[which.unsqueeze(2), place.unsqueeze(1)]


OTHER_LABEL = 1e6  # added to the squared distance of an image of another label; finite, so that some image is nearest
