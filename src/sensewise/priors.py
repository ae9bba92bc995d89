"""Priors: what every hidden site may be, given what has been seen.

A prior maps tokens `(B, C, H, W)` to log-probabilities `(B, C, H, W, N)`. Hidden sites carry the predictive
distribution over the N data states; observed sites are certain, so their entropy is exactly 0. A prediction never
depends on the other images of the batch.
"""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensewise.diffusion import AbsorbingProcess
from sensewise.errors import DataError
from sensewise.tokens import BLACK, MASK

UNKNOWN = -1  # the label of an image whose class is not known


class Prior(nn.Module, ABC):
    """Base of every prior.

    Attributes:
        shape: `(C, H, W)`.
        num_states: data states `N`.
        num_labels: classes, or None for a prior that takes no label.
    """

    shape: tuple[int, int, int]
    num_states: int
    num_labels: int | None

    @abstractmethod
    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Tensor:
        """Raw log-probabilities at every site, observed or not.

        Args:
            y: tokens, with shape `(B, C, H, W)`.
            label: labels 0..`num_labels - 1` or `UNKNOWN`, with shape `(B,)`.
            t: timesteps, with shape `(B,)`, or None for the ones that match the density of `y`.

        Returns:
            Log-probabilities, with shape `(B, C, H, W, N)`.
        """

    def forward(self, y: Tensor, label: Tensor | None = None, t: Tensor | None = None) -> Tensor:
        """The predictive distribution, certain where observed; arguments as for `predict`."""
        log_probs = self.predict(y, self.check(y, label), t)
        certain = torch.eye(self.num_states + 1)[:, 1:].log()  # (N + 1, N): a token to its log-probabilities
        return torch.where((y == MASK).unsqueeze(-1), log_probs, F.embedding(y, certain))

    def check(self, y: Tensor, label: Tensor | None) -> Tensor:
        """Labels `(B,)` with `UNKNOWN` for missing ones; refuses an observation or a label that does not fit."""
        if y.dim() != 4 or tuple(y.shape[1:]) != self.shape:
            raise DataError(
                f"this prior takes tokens of shape (B, {', '.join(map(str, self.shape))}), got {tuple(y.shape)}"
            )
        if y.numel() and not MASK <= int(y.min()) <= int(y.max()) <= self.num_states:
            raise DataError(f"tokens must be 0 (hidden) or 1..{self.num_states}, got {int(y.min())}..{int(y.max())}")
        if label is None:
            return torch.full((len(y),), UNKNOWN)
        if label.shape != y.shape[:1]:
            raise DataError(f"one label per image is needed, shape ({len(y)},), got {tuple(label.shape)}")
        if label.is_floating_point() or label.is_complex() or label.dtype == torch.bool:
            raise DataError(f"labels must be whole numbers, got {label.dtype}")
        for value in (int(label.min()), int(label.max())) if label.numel() else ():
            if value != UNKNOWN:
                self.known_label(value)
        return label

    def known_label(self, label: int | None) -> Tensor | None:
        """The label of one image as a tensor `(1,)`, None if it is not known; refuses one that is not a class."""
        if label is None:
            return None
        classes = self.num_labels or 0
        allowed = f"0..{classes - 1}" if classes else "none (this prior takes no labels)"
        try:
            number = operator.index(label)
        except TypeError as error:
            raise DataError(f"label {label!r} is not a whole number: allowed are {allowed}") from error
        if not 0 <= number < classes:
            raise DataError(f"label {number} is not possible: allowed are {allowed}; leave it out if it is not known")
        return torch.tensor([number])

    @torch.inference_mode()
    def read(self, function: Callable[[Tensor], Tensor], y: Tensor, label: Tensor | None, chunk: int = 64) -> Tensor:
        """`function(self(y, label))` a chunk of images at a time, so that memory stays small for any batch."""
        labels = self.check(y, label)
        parts = zip(torch.split(y, chunk), torch.split(labels, chunk), strict=True)
        return torch.cat([function(self(part, part_label)) for part, part_label in parts])


class AbsorbingPrior(Prior):
    """A network trained on an absorbing process (a discrete diffusion model with a mask state).

    Args:
        network: maps tokens, labels (`num_labels` = unknown) and survival to logits `(B, C, H, W, N)`.
        shape: `(C, H, W)`.
        num_states: data states `N`.
        num_labels: classes, or None.
        time_input: tell the network the survival of the timestep; without it, the network sees 0 always.
        mask_state: whether "unobserved" has a state of its own; without it the network cannot tell an observed black
            pixel from an unobserved one (the control of Appendix E of the paper).
    """

    def __init__(
        self,
        network: nn.Module,
        shape: tuple[int, int, int],
        num_states: int,
        num_labels: int | None,
        *,
        time_input: bool = True,
        mask_state: bool = True,
        timesteps: int = 1000,
    ) -> None:
        super().__init__()
        self.network = network
        self.shape, self.num_states, self.num_labels = shape, num_states, num_labels
        self.time_input, self.mask_state = time_input, mask_state
        self.process = AbsorbingProcess(timesteps)

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Tensor:
        if not self.time_input:
            survival = torch.zeros(len(y))
        elif t is None:
            density = (y != MASK).flatten(1).float().mean(1)
            survival = self.process.survival(self.process.timestep_for(density))
        else:
            survival = self.process.survival(t)
        label = torch.where(label == UNKNOWN, self.num_labels or 0, label)
        seen = y if self.mask_state else torch.where(y == BLACK, MASK, y)
        by_state = self.network(seen, label, survival).movedim(-1, 2)  # (B, C, N, H, W): contiguous in most networks
        return F.log_softmax(by_state, dim=2).movedim(2, -1)  # (B, C, H, W, N)


class MirroredPrior(Prior):
    """The mean of what another prior says about an image and about its mirror image, in two passes instead of one.

    For images whose mirror image is as likely: photographs, not digits.

    Args:
        prior: to be asked twice.
    """

    def __init__(self, prior: Prior) -> None:
        super().__init__()
        self.prior, self.shape = prior, prior.shape
        self.num_states, self.num_labels = prior.num_states, prior.num_labels

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Tensor:
        mirrored = self.prior.predict(y.flip(-1), label, t).flip(-2)  # (B, C, H, W, N)
        return torch.logaddexp(self.prior.predict(y, label, t), mirrored) - math.log(2)


class EmpiricalPrior(Prior):
    """The exact posterior of the uniform distribution over a list of images, by counting: the oracle of the tests.

    An observation that agrees with no image of the list leaves every state equally likely.

    Args:
        images: tokens 1..N, with shape `(M, C, H, W)`.
        num_states: data states `N`.
        labels: with shape `(M,)`, or None.
    """

    images: Tensor
    labels: Tensor
    states: Tensor

    def __init__(self, images: Tensor, num_states: int, labels: Tensor | None = None) -> None:
        super().__init__()
        self.shape = (images.shape[1], images.shape[2], images.shape[3])
        self.num_states = num_states
        self.num_labels = None if labels is None else int(labels.max()) + 1
        self.register_buffer("images", images)
        self.register_buffer("labels", torch.full((len(images),), UNKNOWN) if labels is None else labels)
        self.register_buffer("states", F.one_hot(images.flatten(1) - 1, num_states).flatten(1).double())  # (M, D N)

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Tensor:
        seen = F.one_hot(y.flatten(1), self.num_states + 1)[..., 1:].flatten(1).double()  # (B, D N)
        agrees = seen @ self.states.T == (y != MASK).flatten(1).sum(1, keepdim=True)  # (B, M)
        agrees &= (label[:, None] == self.labels) | (label[:, None] == UNKNOWN)
        counts = (agrees.double() @ self.states).view(*y.shape, self.num_states)  # (B, C, H, W, N)
        total = agrees.sum(1).view(-1, 1, 1, 1, 1)
        probs = torch.where(total > 0, counts / total, 1 / self.num_states)
        return probs.log().float()
