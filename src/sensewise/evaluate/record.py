"""Record an acquisition: spend a budget on one image and keep what a prior believed after every step."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sensewise import information, predictions
from sensewise.evaluate.method import Method
from sensewise.evaluate.recording import Recording
from sensewise.loop import acquire
from sensewise.policies.base import Stop
from sensewise.predictions import Categorical, Mixture, Prediction
from sensewise.priors.base import Prior
from sensewise.sensors.base import Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.tokens import observe


@dataclass(frozen=True)
class Frame:
    """What a prediction says about one image.

    Attributes:
        seen: mode, mean and entropy of every site, with shape `(3, C, H, W)`.
        expected_errors: wrong sites to be expected.
        probs: of every state, with shape `(C, H, W, N)`, if they were asked for.
    """

    seen: Tensor
    expected_errors: float
    probs: Tensor | None


def frames_of(prediction: Prediction, probs: bool) -> list[Frame]:
    """One frame per image of a prediction."""
    parts = (prediction.mode().float(), prediction.mean(), prediction.entropy())
    seen = torch.stack(parts, dim=1)  # (B, 3, C, H, W)
    errors = prediction.expected_errors().double().flatten(1).sum(1).tolist()
    states = _categorical(prediction).log_probs.exp() if probs else [None] * len(seen)
    return [Frame(*parts) for parts in zip(seen, errors, states, strict=True)]


def _categorical(prediction: Prediction) -> Categorical:
    if isinstance(prediction, Mixture):
        return prediction.categorical()
    assert isinstance(prediction, Categorical)
    return prediction


class Remembering(Prior):
    """A prior that keeps the frames of the single images that it was asked about, so that none is predicted twice.

    Args:
        prior: to be asked.
        probs: keep the probabilities of every state as well.
    """

    def __init__(self, prior: Prior, probs: bool) -> None:
        super().__init__()
        self.prior, self.probs = prior, probs
        self.channels, self.size = prior.channels, prior.size
        self.num_states, self.num_labels = prior.num_states, prior.num_labels
        self.known: dict[bytes, Frame] = {}

    def predict(self, y: Tensor, label: Tensor, t: Tensor | None) -> Prediction:
        found = self.prior.predict(y, label, t)
        if len(y) == 1 and t is None:
            self.known[_name(y)] = frames_of(found.given(y), self.probs)[0]
        return found

    def frame(self, y: Tensor, label: Tensor | None) -> Frame:
        """The frame of one image `(1, C, H, W)`, remembered or made now."""
        if _name(y) not in self.known:
            self.in_chunks(predictions.mode, y, label)
        return self.known[_name(y)]


def _name(y: Tensor) -> bytes:
    return y.cpu().numpy().tobytes()


@torch.inference_mode()
def record(
    prior: Prior,
    method: Method,
    x: Tensor,
    label: Tensor | None,
    budget: float | int,
    *,
    seed: int = 0,
    probs: bool = False,
    stop: Stop | None = None,
) -> Recording:
    """Acquire one image and look at it before the first step and after each step.

    A policy that believes in the same prior has looked at most frames already; they are predicted once.

    Args:
        prior: whose beliefs are recorded.
        method: chooses the pixels.
        x: the true tokens, with shape `(1, C, H, W)`.
        label: with shape `(1,)`, or None where it is not known.
        budget: a fraction or a count of the pixels.
        probs: keep the probabilities of every state: for small images with few states.
        stop: ends it before the budget is spent; None for never.
    """
    prior.check(x, label)
    memory = Remembering(prior, probs)
    policy = method.policy
    if policy.prior is prior:
        policy = copy.copy(policy)
        policy.prior = memory
    taken = acquire(
        policy,
        PixelSensor(x),
        budget,
        side=Side(label=label),
        steps=method.steps,
        start=method.start,
        choose=method.choose,
        stop=stop,
        generator=torch.Generator().manual_seed(seed),
    )
    last = method.steps if stop is None else max(0, int(taken.step.max()))
    observations = [observe(x, taken.mask_after(r)) for r in range(last + 1)]
    frames = _frames(memory, observations, label)
    seen = torch.stack([frame.seen for frame in frames])  # (R + 1, 3, C, H, W)
    states = [frame.probs for frame in frames if frame.probs is not None]
    return Recording(
        target=_small(x[0], prior.num_states),
        step=taken.step[0].view(x.shape[2:]).cpu().numpy(),
        levels=prior.num_states,
        mode=_small(seen[:, 0], prior.num_states),
        mean=seen[:, 1].cpu().numpy(),
        entropy=information.per_pixel(seen[:, 2]).view(-1, *x.shape[2:]).cpu().numpy(),
        expected_errors=np.array([frame.expected_errors for frame in frames]),
        probs=torch.stack(states).cpu().numpy() if states else None,
    )


def _frames(memory: Remembering, observations: list[Tensor], label: Tensor | None) -> list[Frame]:
    """The frames of all observations, one by one where some are known, else all together."""
    if memory.known:
        return [memory.frame(y, label) for y in observations]
    found: list[Frame] = []

    def keep(prediction: Prediction) -> Tensor:
        found.extend(frames_of(prediction, memory.probs))
        return torch.empty(0)

    labels = None if label is None else label.expand(len(observations))
    memory.prior.in_chunks(keep, torch.cat(observations), labels)
    return found


def _small(tokens: Tensor, levels: int) -> np.ndarray:
    return tokens.to(torch.uint8 if levels < 256 else torch.int16).cpu().numpy()
