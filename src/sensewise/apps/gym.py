"""Pixel acquisition as a Gymnasium environment, for agents that learn where to look.

`sensewise/PixelAcquisition-v0`: an episode is one image and one budget, an action is a pixel to measure. The reward is
the fall in wrong pixels of the prior's reconstruction (`reward="errors"`) or in the prior's entropy
(`reward="entropy"`), so an episode's return is what the whole budget has gained. Measuring a pixel again spends budget
and gains nothing; `info["action_mask"]` says which pixels are left.

Importing this module registers the environment. `gymnasium.make_vec` gives the vectorised one, which asks the prior
once for all images.
"""

from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from sensewise import masks, predictions
from sensewise.data import Scenes, bundled_mnist
from sensewise.errors import ConfigError, DataError
from sensewise.hub import load_prior
from sensewise.information import per_pixel, whole_image
from sensewise.metrics import errors
from sensewise.predictions import Prediction
from sensewise.priors.base import Prior
from sensewise.sensors.pixels import PixelSensor
from sensewise.tokens import MASK, UNKNOWN

NAME = "sensewise/PixelAcquisition-v0"
Reward = Literal["errors", "entropy"]
Observation = dict[str, Any]


def _mean_entropy(prediction: Prediction) -> Tensor:
    return whole_image(prediction.entropy())


def _entropy_per_pixel(prediction: Prediction) -> Tensor:
    return per_pixel(prediction.entropy())


def observation_space(prior: Prior) -> spaces.Dict:
    """Tokens (0 = hidden), the label (the last number = unknown) and the fraction of the budget that is left."""
    return spaces.Dict(
        {
            "tokens": spaces.Box(MASK, prior.num_states, prior.shape, np.uint8),
            "label": spaces.Discrete((prior.num_labels or 0) + 1),
            "left": spaces.Box(0.0, 1.0, (1,), np.float32),
        }
    )


class PixelAcquisitionVector(VectorEnv[Any, Any, Any]):
    """Many images at once; every one of them is measured until the budget is spent, then all begin anew.

    Args:
        num_envs: how many images.
        prior: a prior, or the name of one.
        images: where episodes come from; the bundled digits by default.
        budget: a fraction or a count of the pixels.
        reward: "errors" or "entropy".
        labels: whether the class is shown.
    """

    def __init__(
        self,
        num_envs: int = 1,
        prior: Prior | str = "mnist",
        images: Scenes | None = None,
        budget: float | int = 0.1,
        reward: Reward = "errors",
        labels: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if reward not in ("errors", "entropy"):
            raise ConfigError(f"reward {reward!r} is not known: choose errors or entropy")
        self.prior = load_prior(prior) if isinstance(prior, str) else prior
        self.images = bundled_mnist() if images is None else images
        if self.images.shape != self.prior.shape or self.images.num_states != self.prior.num_states:
            raise DataError(f"images of shape {self.images.shape} do not fit a prior for {self.prior.shape}")
        self.num_envs, self.reward, self.labels, self.render_mode = num_envs, reward, labels, render_mode
        self.num_actions = self.prior.shape[1] * self.prior.shape[2]
        self.budget = masks.count(budget, self.num_actions)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": ["rgb_array"], "render_fps": 10}
        self.single_observation_space = observation_space(self.prior)
        self.single_action_space = spaces.Discrete(self.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.taken = self.budget  # nothing to do before the first reset

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed[0] if isinstance(seed, list) else seed)
        index = torch.from_numpy(self.np_random.integers(len(self.images), size=self.num_envs))
        self._x, label = self.images[index]
        self.sensor = PixelSensor(self._x)
        known = self.labels and label is not None and self.prior.num_labels is not None
        self.label = label if known and label is not None else torch.full((self.num_envs,), UNKNOWN)
        self.mask = torch.zeros(self.num_envs, self.num_actions, dtype=torch.bool)
        self.taken = 0
        self.observation = self.sensor(self.mask)
        self.worth = self._worth()
        return self._observe(), self._info()

    def step(self, actions: Any) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        over = np.zeros(self.num_envs, dtype=bool)
        if self.taken >= self.budget:  # Gymnasium's next-step autoreset: this action is ignored
            observation, info = self.reset()
            return observation, np.zeros(self.num_envs), over, over.copy(), info
        chosen = torch.as_tensor(np.asarray(actions), dtype=torch.int64).view(-1, 1)
        self.mask = self.mask.scatter(1, chosen, True)
        self.taken += 1
        self.observation = self.sensor(self.mask)
        before, self.worth = self.worth, self._worth()
        done = np.full(self.num_envs, self.taken >= self.budget)
        return self._observe(), (before - self.worth).double().numpy(), done, over, self._info()

    def _worth(self) -> Tensor:
        """What is still to be gained: wrong sites, or nats, `(B,)`."""
        if self.reward == "entropy":
            return self._x[0].numel() * self.prior.in_chunks(_mean_entropy, self.observation, self.label)
        return errors(self.prior.in_chunks(predictions.mode, self.observation, self.label), self._x)

    def _observe(self) -> Observation:
        label = torch.where(self.label == UNKNOWN, self.prior.num_labels or 0, self.label)
        left = np.full((self.num_envs, 1), 1 - self.taken / self.budget, dtype=np.float32)
        return {"tokens": self.observation.to(torch.uint8).numpy(), "label": label.numpy(), "left": left}

    def _info(self) -> dict[str, Any]:
        return {"action_mask": (~self.mask).numpy(), self.reward: self.worth.numpy()}

    def entropy(self) -> np.ndarray:
        """The prior's entropy of each pixel in nats, what a greedy agent follows; `(B, K)`."""
        return self.prior.in_chunks(_entropy_per_pixel, self.observation, self.label).numpy()

    def render(self) -> tuple[Any, ...] | None:
        """What is known of each image, as pictures `(H, W, 3)`; hidden pixels are grey."""
        from sensewise.report.figures.recording import COLOUR
        from sensewise.report.figures.style import measured

        if self.render_mode != "rgb_array":
            return None
        pictures = (measured(y.numpy(), self.prior.num_states, COLOUR) for y in self.observation)
        return tuple((255 * picture).round().astype(np.uint8) for picture in pictures)


class PixelAcquisition(gymnasium.Env[Any, Any]):
    """One image at a time; arguments as for `PixelAcquisitionVector`, without `num_envs`."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        self.batch = PixelAcquisitionVector(1, render_mode=render_mode, **options)
        self.render_mode = render_mode
        self.observation_space = self.batch.single_observation_space
        self.action_space = self.batch.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        observation, info = self.batch.reset(seed=int(self.np_random.integers(2**31)))
        return _first(observation), _first(info)

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        observation, reward, done, _, info = self.batch.step(np.array([action]))
        return _first(observation), float(reward[0]), bool(done[0]), False, _first(info)

    def entropy(self) -> np.ndarray:
        """The prior's entropy of each pixel in nats, `(K,)`."""
        return self.batch.entropy()[0]

    def render(self) -> Any:
        pictures = self.batch.render()
        return None if pictures is None else pictures[0]


def _first(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value[0] for name, value in values.items()}


gymnasium.register(
    NAME,
    entry_point="sensewise.apps.gym:PixelAcquisition",
    vector_entry_point="sensewise.apps.gym:PixelAcquisitionVector",
)
