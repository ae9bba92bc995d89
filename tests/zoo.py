"""One of every prior, policy, choice, start and reconstructor, small: contract tests and device tests go over them all.

Makers take the device that weights and buffers lie on. Pixels are tokens `(B, 1, 8, 8)` of two states, rows are complex
slices `(B, 16, 12)`.
"""

import torch

from conftest import awake, fresh, make_absorbing, make_empirical, random_kspace, random_tokens, seeded
from sensewise import predictions
from sensewise.kspace import acs_rows, magnitude
from sensewise.networks import PRIOR_NETWORKS
from sensewise.networks.decoders import MaskDesigner
from sensewise.networks.loupe import Loupe
from sensewise.networks.recon import ComplexUNet, PaperUNet
from sensewise.networks.rows import RowConv, RowPolicyNetwork, RowValueNetwork
from sensewise.policies.amortised import Amortised
from sensewise.policies.choose import JOINT_VARIANCE, SPREAD_READINGS, SPREAD_VARIANCE, Counted, Joint, Spread, TopK
from sensewise.policies.greedy import Greedy
from sensewise.policies.known import KnownImages
from sensewise.policies.nearest import NearestMask, NearestRows
from sensewise.policies.one_shot import OneShot
from sensewise.policies.planned import PlannedRows, RowPlan
from sensewise.policies.samples import SampledGain
from sensewise.policies.sampling import PosteriorSampling
from sensewise.policies.simple import Equispaced, Fixed, Random, Raster, VariableDensity
from sensewise.policies.starts import AuditedStart, CentralBlock, FixedStart, GridProbe, RandomProbe
from sensewise.policies.stops import Watched
from sensewise.policies.value import OneStepOracle, ValuePolicy, static_cores
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.priors.mean import MeanPrior
from sensewise.priors.mirrored import MirroredPrior
from sensewise.reconstruct.interpolate import Interpolation, linear
from sensewise.reconstruct.prior import Mode, PosteriorMean
from sensewise.reconstruct.unet import LoupeReconstructor, UNetReconstructor
from sensewise.reconstruct.wavelet import CsWavelet
from sensewise.reconstruct.zero_filled import ZeroFilled
from sensewise.sensors.rows import BINS, RowProfile

ROWS, COLUMNS, ACS, BUDGET = 16, 12, 4, 8
PROFILE = RowProfile(ACS, -4.0, 1.0)
ORDER = torch.tensor([6, 7, 8, 9, 1, 15, 3, 12])
SMALL = {
    "unet": {"widths": (8, 16), "blocks": (1, 1), "embedding": 8},
    "dit": {"dim": 32, "layers": 1, "heads": 4},
    "rows": {"width": 8, "layers": 1},
}


class ZeroFilling(torch.nn.Module):
    """Zero filling as a network: the row of highest energy is the one of highest gain."""

    def complex_image(self, y, mask):
        return torch.polar(magnitude(y), torch.zeros(y.shape, device=y.device))

    def forward(self, y, mask):
        return magnitude(y)


def every_second(actions):
    """A mask of `BUDGET` actions, every second one, `(K,)`."""
    chosen = torch.zeros(actions, dtype=torch.bool)
    chosen[: 2 * BUDGET : 2] = True
    return chosen


def network_prior(name, **options):
    """An absorbing prior of any size over one of the networks."""
    network = awake(fresh(PRIOR_NETWORKS[name], 1, 2, 10, **SMALL.get(name, {}), **options), std=0.1)
    return AbsorbingPrior(network, 1, 2, 10).eval().requires_grad_(False)


def row_prior(device):
    network = fresh(RowConv, 1, BINS, None, width=8, layers=1)
    return AbsorbingPrior(network, 1, BINS, None, size=(ROWS, 1)).eval().requires_grad_(False).to(device)


def row_plan():
    """A plan with coefficients that say something."""
    plan = RowPlan(ROWS, ACS, BUDGET)
    draw = seeded()
    plan.worth = torch.randn(ROWS, generator=draw)
    overlap = 0.1 * torch.randn(ROWS, ROWS, generator=draw)
    plan.overlap = (overlap + overlap.T).fill_diagonal_(0)
    plan.slopes = 0.3 * torch.randn(plan.slopes.shape, generator=draw)
    plan.static = every_second(ROWS)
    return plan


def nearest_rows():
    """Two masks and three slices, which take the second."""
    model = NearestRows(ROWS, BUDGET, masks=2, slices=3, size=2, nearest=2)
    model.masks = torch.stack([every_second(ROWS), every_second(ROWS).roll(1)])
    model.features = torch.randn(3, 4, generator=seeded())
    model.worth = torch.tensor([[0.0, -1.0]] * 3)
    return model


def loupe(device):
    return fresh(Loupe, (1, 8, 8), 2, 0.25, widths=(8, 8), blocks=(1, 1)).eval().to(device)


def complex_unet(device):
    return awake(fresh(ComplexUNet, ROWS, (8, 8), (1, 1), embedding=8), std=0.05).to(device)


def value_policy(device, orders=None):
    value = awake(fresh(RowValueNetwork, width=8, layers=1, columns=(2, 2)))
    return ValuePolicy(value.to(device), complex_unet(device), orders)


PRIORS = {
    **{name: lambda device, name=name: network_prior(name).to(device) for name in PRIOR_NETWORKS if name != "rows"},
    "unet-ordinal": lambda device: network_prior("unet", encoding="ordinal").to(device),
    "unet-fine": lambda device: network_prior("unet", fine=8).to(device),
    "unet-noisy": lambda device: network_prior("unet", encoding="noisy").to(device),
    "dit-ordinal": lambda device: network_prior("dit", encoding="ordinal").to(device),
    "empirical": lambda device: make_empirical(shape=(1, 8, 8)).to(device),
    "mirrored": lambda device: MirroredPrior(make_absorbing()).to(device),
    "mean": lambda device: MeanPrior([make_absorbing(), make_absorbing(seed=1)]).to(device),
}
PIXEL_POLICIES = {
    "random": lambda device: Random(),
    "variable-density": lambda device: VariableDensity(),
    "equispaced": lambda device: Equispaced(),
    "raster": lambda device: Raster(),
    "fixed": lambda device: Fixed([every_second(64)]),
    "entropy": lambda device: Greedy(make_absorbing().to(device)),
    "variance": lambda device: Greedy(make_absorbing().to(device), predictions.variance),
    "reach": lambda device: Greedy(make_absorbing().to(device), predictions.variance, reach=0.6),
    "room": lambda device: Greedy(make_absorbing().to(device), predictions.variance, reach=0.6, room=1.0),
    "amortised": lambda device: Amortised(make_absorbing().to(device), make_absorbing(seed=1).to(device)),
    "one-shot": lambda device: OneShot(fresh(MaskDesigner, (1, 8, 8), 10).eval().to(device)),
    "one-shot-topk": lambda device: OneShot(
        fresh(MaskDesigner, (1, 8, 8), 10, "paper").eval().to(device), sampled=False
    ),
    "loupe": lambda device: OneShot(loupe(device)),
    "watched": lambda device: Watched(Random(), make_absorbing().to(device)),
    "posterior-sampling": lambda device: PosteriorSampling(make_absorbing().to(device), samples=4, rounds=2),
}
ROW_POLICIES = {
    "random": lambda device: Random(),
    "variable-density": lambda device: VariableDensity(0.3),
    "equispaced": lambda device: Equispaced(),
    "fixed": lambda device: Fixed([every_second(ROWS)]),
    "sequential-entropy": lambda device: Greedy(row_prior(device), view=PROFILE),
    "sequential-energy": lambda device: Greedy(row_prior(device), PROFILE.expected_energy, view=PROFILE),
    "learned-adaptive": lambda device: OneShot(
        fresh(RowPolicyNetwork, ROWS, width=8, layers=1).to(device), sampled=False
    ),
    "learned-static": lambda device: OneShot(fresh(RowPolicyNetwork, ROWS, False, width=8, layers=1).to(device)),
    "plan": lambda device: PlannedRows([row_plan().to(device)]),
    "nearest": lambda device: NearestMask([nearest_rows().to(device)]),
    "value": value_policy,
    "value-rollout": lambda device: value_policy(device, [ORDER]),
    "samples": lambda device: SampledGain(
        complex_unet(device), random_kspace(5, ROWS, COLUMNS, 1).to(device), ACS, samples=2
    ),
    "oracle-one-step": lambda device: OneStepOracle(complex_unet(device), random_kspace(3, ROWS, COLUMNS).to(device)),
}
CHOICES = {
    "top-k": TopK(),
    "spread": Spread(),
    "spread-far": Spread(damping=0.9, sigma=3.0),
    "spread-variance": SPREAD_VARIANCE,
    "spread-readings": SPREAD_READINGS,
    "spread-travel": Spread(travel=1.0),
    "joint": Joint(),
    "joint-variance": JOINT_VARIANCE,
}
KNOWN = KnownImages(random_tokens((20, 1, 8, 8)), 2, torch.arange(20) % 10, near=6)
PIXEL_CHOICES = {**CHOICES, "joint-known": Joint(KNOWN), "joint-counted": Counted(KNOWN)}
PIXEL_STARTS = {
    "random": RandomProbe(),
    "grid": GridProbe(),
    "fixed": FixedStart({BUDGET: torch.arange(64) % 16 == 3}),
    "audited": AuditedStart(None, 0.25),
}
ROW_STARTS = {
    "random": RandomProbe(0.5),
    "grid": GridProbe(0.5),
    "central-block": CentralBlock(ACS),
    "fixed": FixedStart({BUDGET: acs_rows(ROWS, ACS)}),
    "static-cores": static_cores([ORDER], ROWS, ACS, 0.5),
}
PIXEL_RECONSTRUCTORS = {
    "mode": lambda device: Mode(make_absorbing().to(device)),
    "posterior-mean": lambda device: PosteriorMean(make_absorbing().to(device)),
    "loupe": lambda device: LoupeReconstructor(loupe(device)),
}
READING_RECONSTRUCTORS = {"linear": lambda device: Interpolation(linear)}
ROW_RECONSTRUCTORS = {
    "zero-filled": lambda device: ZeroFilled(),
    "cs-wavelet": lambda device: CsWavelet(iterations=3),
    "paper-unet": lambda device: UNetReconstructor(awake(fresh(PaperUNet, base=8, levels=2), std=0.05).to(device)),
    "complex-unet": lambda device: UNetReconstructor(complex_unet(device)),
}
