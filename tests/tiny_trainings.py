"""One tiny recipe of every kind that is trained, fitted or searched, on toy scenes of any device."""

from dataclasses import replace
from pathlib import Path

import torch

from conftest import make_absorbing
from sensewise.data.scenes import Scenes
from sensewise.kspace import to_kspace
from sensewise.networks.recon import ComplexUNet
from sensewise.networks.rows import RowConv
from sensewise.networks.unet import UNet
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.sensors.rows import BINS, RowProfile
from sensewise.train.curriculum import Curriculum
from sensewise.train.designer import DesignerLoss, DesignerRecipe, DesignerSettings
from sensewise.train.gradient import FitSettings
from sensewise.train.loupe import LoupeRecipe, LoupeRowsRecipe, LoupeRowsSettings, LoupeSettings
from sensewise.train.mask_state import MaskStateSettings, mask_state_recipes
from sensewise.train.nearest import NearestRecipe, NearestSettings
from sensewise.train.plan import PlanRecipe, PlanSettings
from sensewise.train.prior import NetworkSettings, PriorRecipe, PriorSettings
from sensewise.train.reconstructor import ReconNetworkSettings, ReconstructorRecipe, ReconstructorSettings
from sensewise.train.relaxed import RelaxedRecipe, RelaxedSettings
from sensewise.train.row_policy import RowPolicyRecipe, RowPolicySettings
from sensewise.train.row_prior import RowPriorRecipe, RowPriorSettings
from sensewise.train.search import SearchRecipe, SearchSettings
from sensewise.train.taught import TaughtRecipe
from sensewise.train.value import RowValueRecipe, RowValueSettings

SHAPE, ROWS, ACS, BUDGET = (1, 8, 8), 16, 4, 0.5
FIT = FitSettings(steps=2, validate_every=2, warmup=1, average=0.5, clip=1.0)
UNET = NetworkSettings(widths=(8, 8), blocks=(1, 1), embedding=8)
ORDER = torch.tensor([6, 7, 8, 9, 5, 10, 4, 11])


def fresh(make):
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return make()


def images(count=12, device="cpu"):
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 3, (count, *SHAPE), dtype=torch.uint8, generator=draw)
    return Scenes("toy", "train", tokens.to(device), (torch.arange(count) % 10).to(device), 2, 10)


def slices(count=8, seed=0, device="cpu"):
    draw = torch.Generator().manual_seed(seed)
    image = torch.zeros(count, ROWS, 64, dtype=torch.complex64)
    image[:, 4:12, 16:48] = torch.rand(count, 1, 1, generator=draw) + 0.5
    noise = 0.05 * torch.randn(image.shape, dtype=torch.complex64, generator=draw)
    return Scenes("toy", "train", (to_kspace(image) + noise).to(device), sources=tuple(map(str, range(count))))


def stirred(network):
    """The same network with weights that are not zero anywhere."""
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.02 * torch.randn(weight.shape, generator=draw))
    return network.eval().requires_grad_(False)


def unet_a():
    return stirred(fresh(lambda: ComplexUNet(ROWS, (8, 8), (1, 1), embedding=8)))


def row_prior_model():
    return fresh(lambda: AbsorbingPrior(RowConv(1, BINS, None, width=8, layers=1), 1, BINS, None, size=(ROWS, 1)))


def prior(device="cpu"):
    curriculum = Curriculum(on_policy=0.5, min_steps=2, max_steps=4, max_budget=0.5)
    return PriorRecipe(PriorSettings(4, True, UNET, curriculum, FIT), images(device=device), images(device=device))


def prior_noise(device="cpu"):
    curriculum = Curriculum(on_policy=0.5, min_steps=2, max_steps=4, max_budget=0.5, noise=0.15)
    settings = PriorSettings(4, True, replace(UNET, encoding="noisy"), curriculum, FIT)
    return PriorRecipe(settings, images(device=device), images(device=device))


def prior_spread(device="cpu"):
    curriculum = Curriculum(
        on_policy=0.5, min_steps=2, max_steps=4, score="variance", spread=0.5, relative=True, flip=0.5
    )
    return PriorRecipe(PriorSettings(4, True, UNET, curriculum, FIT), images(device=device), images(device=device))


def prior_taught(device="cpu"):
    curriculum = Curriculum(on_policy=1.0, min_steps=2, max_steps=4, max_budget=0.5, spread=0.5, relative=True)
    settings = PriorSettings(4, True, UNET, curriculum, FIT, "toy", 2)
    network = fresh(lambda: UNet(1, 2, 10, (8, 8), (1, 1), embedding=8))
    teacher = stirred(AbsorbingPrior(network, 1, 2, 10, size=SHAPE[1:]))
    return TaughtRecipe(settings, images(device=device), images(device=device), teacher=teacher)


def mask_state(device="cpu"):
    settings = MaskStateSettings(seeds=1, batch_size=4, network=UNET, start=FIT, fine_tune=FIT)
    return mask_state_recipes(settings, images(device=device), images(device=device), Path("unused"))["start"]


def designer(loss, device):
    frozen = make_absorbing(shape=SHAPE)
    settings = DesignerSettings(4, "full", loss, FIT)
    return DesignerRecipe(settings, images(device=device), images(device=device), frozen)


def designer_disarm(device="cpu"):
    return designer(DesignerLoss(reach=1, relative=True), device)


def designer_straight_through(device="cpu"):
    return designer(DesignerLoss(estimator="straight-through"), device)


def loupe(device="cpu"):
    return LoupeRecipe(
        LoupeSettings((0.25,), 4, (8, 8), (1, 1), FIT), images(device=device), images(device=device), 0.25
    )


def loupe_rows(device="cpu"):
    settings = LoupeRowsSettings(batch_size=4, base=8, fit=FIT)
    return LoupeRowsRecipe(settings, slices(device=device), slices(4, 1, device), ACS, BUDGET)


def reconstructor(device="cpu"):
    network = ReconNetworkSettings(widths=(8, 8), blocks=(1, 1), embedding=8)
    settings = ReconstructorSettings(batch_size=4, network=network, fit=FIT)
    return ReconstructorRecipe(settings, slices(device=device), slices(4, 1, device), ACS)


def row_prior(device="cpu"):
    return RowPriorRecipe(RowPriorSettings(4, 8, 1, FIT), slices(), slices(4, 1), ACS)


def row_policy(device="cpu"):
    settings = RowPolicySettings(batch_size=4, width=8, layers=1, fit=FIT)
    profile, frozen = RowProfile.of(slices().values, ACS), row_prior_model()
    return RowPolicyRecipe(settings, slices(device=device), slices(4, 1, device), ACS, frozen, profile, True)


def relaxed(device="cpu"):
    return RelaxedRecipe(RelaxedSettings(4, judge_slices=4, fit=FIT), slices(device=device), ACS, unet_a(), BUDGET)


def value(form, device):
    settings = RowValueSettings(batch_size=4, candidates=4, width=8, layers=1, fit=FIT)
    orders = [ORDER] if form == "rollout" else None
    held_out = slices(4, 1, device)
    return RowValueRecipe(settings, slices(device=device), held_out, ACS, unet_a(), form, (BUDGET,), orders)


def value_gain(device="cpu"):
    return value("gain", device)


def value_gradient(device="cpu"):
    return value("gradient", device)


def value_rollout(device="cpu"):
    return value("rollout", device)


def search(device="cpu"):
    settings = SearchSettings(draws=2, drops=2, adds=3, screen=5, exact=2, max_rounds=3)
    return SearchRecipe(settings, slices(), ACS, unet_a(), BUDGET)


def nearest(device="cpu"):
    search = SearchSettings(drops=2, adds=3, screen=5, exact=2)
    settings = NearestSettings(clusters=2, rounds=1, size=2, search=search)
    start = torch.zeros(ROWS, dtype=torch.bool).index_fill(0, ORDER, True)
    return NearestRecipe(settings, slices(), slices(5, 1), ACS, unet_a(), BUDGET, start)


def plan(device="cpu"):
    settings = PlanSettings(epochs=2, batch_size=3, tries=3, swaps=2)
    return PlanRecipe(settings, slices(), slices(5, 1), ACS, unet_a(), BUDGET)


GRADIENT = {
    "prior": prior,
    "prior-spread": prior_spread,
    "prior-noise": prior_noise,
    "prior-taught": prior_taught,
    "mask-state": mask_state,
    "designer-disarm": designer_disarm,
    "designer-straight-through": designer_straight_through,
    "loupe": loupe,
    "loupe-rows": loupe_rows,
    "reconstructor": reconstructor,
    "row-prior": row_prior,
    "row-policy": row_policy,
    "relaxed": relaxed,
    "value-gain": value_gain,
    "value-gradient": value_gradient,
    "value-rollout": value_rollout,
}
RECIPES = GRADIENT | {"search": search, "plan": plan, "nearest": nearest}
