import pytest
import torch

from conftest import make_absorbing, make_context, make_empirical
from sensewise.errors import ConfigError
from sensewise.policies.greedy import Greedy
from sensewise.policies.sampling import PosteriorSampling


def test_sampled_entropies_approach_the_exact_ones():
    """One pixel per round, from an exact prior: samples are exact, so their shares are the marginals."""
    prior, mask = make_empirical(labels=None), torch.zeros(1, 16, dtype=torch.bool)
    nothing, context = torch.zeros(1, 1, 4, 4, dtype=torch.int64), make_context(4, (4, 4))
    sampled = PosteriorSampling(prior, samples=2000, rounds=256).scores(nothing, mask, context)
    assert torch.allclose(sampled, Greedy(prior).scores(nothing, mask, context), atol=0.04)


@pytest.mark.parametrize("options", [{"samples": 0}, {"rounds": 0}])
def test_sampling_needs_samples(options):
    with pytest.raises(ConfigError, match="at least 1"):
        PosteriorSampling(make_absorbing(), **options)
