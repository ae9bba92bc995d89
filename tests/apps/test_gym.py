"""The Gymnasium environment, checked by Gymnasium itself."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from sensewise.apps.gym import NAME, PixelAcquisitionVector
from sensewise.data import Scenes, bundled_mnist
from sensewise.errors import ConfigError, DataError
from sensewise.priors.empirical import EmpiricalPrior


@pytest.fixture(scope="module")
def world():
    """All sixteen 2 x 2 binary images and their exact posterior."""
    images = torch.cartesian_prod(*[torch.tensor([1, 2])] * 4).view(-1, 1, 2, 2)
    labels = images.flatten(1).sum(1) % 2
    return {
        "prior": EmpiricalPrior(images, 2, labels),
        "images": Scenes("all", "test", images.to(torch.uint8), labels, 2, 2),
        "budget": 3,
    }


@pytest.mark.parametrize("reward", ["errors", "entropy"])
def test_gymnasium_is_content(world, reward):
    env = gymnasium.make(NAME, reward=reward, render_mode="rgb_array", **world)
    check_env(env.unwrapped)
    assert env.unwrapped.render().shape == (2, 2, 3)
    env.close()


def test_vector_rewards_are_exact(world):
    env = gymnasium.make_vec(NAME, num_envs=8, vectorization_mode="vector_entry_point", reward="entropy", **world)
    observation, info = env.reset(seed=3)
    assert observation in env.observation_space
    # the label tells the parity: three bits are open, and three pixels settle the image
    assert np.allclose(info["entropy"], 4 * np.log(2))  # a sum over sites bounds the joint entropy from above
    total = np.zeros(8)
    for pixel in range(3):
        observation, reward, done, truncated, info = env.step(np.full(8, pixel))
        total += reward
    assert np.allclose(total, 4 * np.log(2))
    assert done.all()
    assert not truncated.any()
    assert (observation["tokens"][:, 0].reshape(8, 4)[:, :3] > 0).all()
    observation, reward, done, _, info = env.step(np.zeros(8, dtype=int))  # begins anew
    assert not observation["tokens"].any()
    assert not reward.any()
    assert info["action_mask"].all()
    env.close()


def test_measuring_again_gains_nothing_and_costs_budget(world):
    env = gymnasium.make(NAME, **world)
    env.reset(seed=0)
    env.step(0)
    _, reward, done, _, info = env.step(0)
    assert reward == 0
    assert not done
    assert info["action_mask"].tolist() == [False, True, True, True]
    env.close()


def test_wrong_input_is_one_sentence(world):
    with pytest.raises(ConfigError, match="choose errors or entropy"):
        PixelAcquisitionVector(1, **world, reward="fun")
    with pytest.raises(DataError, match="do not fit a prior"):
        PixelAcquisitionVector(1, prior=world["prior"], images=bundled_mnist(2))
