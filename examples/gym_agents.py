"""Two agents in the Gymnasium environment: one looks anywhere, one looks where the prior is least sure."""

import argparse

import gymnasium
import numpy as np

from sensewise.apps.gym import NAME


def gained(env: gymnasium.vector.VectorEnv, greedy: bool, seed: int) -> float:
    """The return of one episode, averaged over the images: how many fewer pixels are wrong."""
    rng = np.random.default_rng(seed)
    _, info = env.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        scores = env.unwrapped.entropy() if greedy else rng.random(info["action_mask"].shape)
        actions = np.where(info["action_mask"], scores, -np.inf).argmax(1)
        _, reward, terminated, _, info = env.step(actions)
        total, done = total + float(reward.mean()), bool(terminated.all())
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--budget", type=float, default=0.05)
    options = parser.parse_args()
    env = gymnasium.make_vec(NAME, num_envs=options.images, budget=options.budget)
    for name, greedy in {"random": False, "greedy": True}.items():
        print(f"{name:7s} {gained(env, greedy, seed=0):6.1f} fewer wrong pixels per image")


if __name__ == "__main__":
    main()
