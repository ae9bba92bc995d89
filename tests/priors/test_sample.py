"""Joint samples of a prior against exact posteriors."""

import pytest
import torch

from conftest import make_empirical, random_tokens, seeded
from sensewise.priors.empirical import EmpiricalPrior
from sensewise.tokens import MASK


def test_samples_keep_what_was_observed_and_hide_nothing(absorbing):
    y = torch.where(torch.rand(3, 1, 8, 8, generator=seeded()) < 0.3, random_tokens((3, 1, 8, 8)), MASK)
    drawn = absorbing.sample(y, torch.tensor([1, 2, 3]), seeded(), steps=8, samples=5)
    assert drawn.shape == (5, 3, 1, 8, 8)
    assert ((drawn >= 1) & (drawn <= 2)).all()
    assert torch.equal(torch.where(y == MASK, MASK, drawn[2]), y)
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_any_number_of_steps_reveals_everything(empirical, steps):
    y = torch.zeros(2, 1, 4, 4, dtype=torch.int64)
    assert (empirical.sample(y, None, seeded(), steps=steps) != MASK).all()


def test_samples_follow_the_exact_joint_posterior():
    images = torch.tensor([[1, 1, 1, 1], [1, 1, 2, 2], [1, 2, 1, 2], [1, 2, 1, 2], [2, 2, 2, 2]]).view(5, 1, 2, 2)
    prior = EmpiricalPrior(images, 2)
    y = torch.tensor([1, 0, 0, 0]).view(1, 1, 2, 2)
    drawn = prior.sample(y, None, seeded(), steps=400, samples=2000).view(2000, 4)
    found = {}
    for row in drawn.tolist():
        found[tuple(row)] = found.get(tuple(row), 0) + 1
    expected = {(1, 1, 1, 1): 500, (1, 1, 2, 2): 500, (1, 2, 1, 2): 1000}
    impossible = sum(count for image, count in found.items() if image not in expected)
    assert impossible <= 40  # two sites of one image revealed in the same round
    chi_square = sum((found.get(image, 0) - count) ** 2 / count for image, count in expected.items())
    assert chi_square < 13.8  # 0.1% of chi-square with two degrees of freedom


def test_samples_use_the_label():
    prior = make_empirical(labels=3)
    y = torch.zeros(3, 1, 4, 4, dtype=torch.int64)
    drawn = prior.sample(y, torch.arange(3), seeded(), steps=600)[0]
    for label in range(3):
        assert (drawn[label] == prior.images[prior.labels == label]).flatten(1).all(1).any()
