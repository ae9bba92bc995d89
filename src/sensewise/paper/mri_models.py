"""What the MR experiments compare: trained models and masks of a preset, each left out with a note if it is missing."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

from sensewise import hub
from sensewise.data.fastmri import load_splits
from sensewise.data.scenes import Scenes
from sensewise.errors import CheckpointError
from sensewise.evaluate.judges import Judge, MagnitudeJudge, PriorJudge, RowsJudge
from sensewise.evaluate.method import Method
from sensewise.evaluate.rows import Row
from sensewise.files import fingerprint
from sensewise.paper import models
from sensewise.policies.base import Context, Policy
from sensewise.policies.greedy import Greedy
from sensewise.policies.nearest import NearestMask, NearestRows
from sensewise.policies.one_shot import OneShot
from sensewise.policies.planned import PlannedRows, RowPlan
from sensewise.policies.samples import SampledGain
from sensewise.policies.simple import ROW_FAMILIES, Fixed, best_rows, row_energy
from sensewise.policies.starts import FixedStart, count_rows
from sensewise.policies.value import ValuePolicy, static_cores
from sensewise.predictions import entropy
from sensewise.presets.mri import MRISettings, load_settings
from sensewise.priors.base import Prior
from sensewise.reconstruct.unet import UNetReconstructor
from sensewise.reconstruct.wavelet import CsWavelet
from sensewise.reconstruct.zero_filled import ZeroFilled
from sensewise.sensors.rows import RowProfile
from sensewise.train.fit import last_look
from sensewise.train.search import read_story
from sensewise.train.value import load_orders

VALUE_FORMS = ("rollout", "gain", "gradient")
OTHER = 50  # slices away, for a control: neighbours may come from one patient
MAKERS = {
    "static-search": "train static-search",
    "relaxed-profile": "train row-profile",
    "relaxed-profile-fast": "train row-profile --variant fast",
    "loupe": "train loupe-rows",
}
"""Static masks, and the commands that make them."""
Masks = dict[str, dict[float, Tensor]]
"""Static masks `(rows,)` by method and budget."""


class AnotherScout(Policy):
    """A control: shows a policy another slice's scout, far away in file order."""

    random = True

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def scores(self, observation: Tensor, mask: Tensor, context: Context) -> Tensor:
        other = derangement(len(mask), context.generator)
        return self.policy.scores(observation, mask, replace(context, side=context.side[other]))


def derangement(count: int, generator: Generator) -> Tensor:
    """Every slice another one's number, far away in file order, `(n,)`: neighbours may come from one patient."""
    low, high = max(1, count // 4), max(2, count - count // 4)
    shift = int(torch.randint(low, high, (), generator=generator))
    return torch.arange(count).roll(shift)


def _with_another_scout(name: str, policy: Policy) -> Method:
    return Method(name, AnotherScout(policy), columns={"scout": "another slice's"})


def heuristics(names: Sequence[str] = tuple(ROW_FAMILIES)) -> list[Method]:
    """The ACS block and a family of rows, redrawn for each slice and seed."""
    return [Method(f"acs-{name}", ROW_FAMILIES[name]) for name in names]


def static_methods(masks: Masks) -> list[Method]:
    """Static masks as methods."""
    return [Method(name, Fixed(by_budget.values())) for name, by_budget in masks.items()]


@dataclass
class MRIModels:
    """The trained parts of one preset, loaded as they are asked for.

    Attributes:
        preset: its name.
        weights: fingerprints for the results file.
        notes: what was left out.
    """

    preset: str
    weights: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mri: MRISettings = load_settings(self.preset)

    def scenes(self) -> tuple[Scenes, Scenes]:
        """Train and val of the preset's data set."""
        mri = self.mri
        return load_splits(mri.dataset, (mri.rows, mri.columns), axis=mri.axis, coils=mri.coils)

    def _folder(self, name: str, command: str, file: str = hub.CONFIG) -> Path:
        return models.folder(self.preset, f"mri/{name}", command, file)

    def _load(self, name: str, command: str, kind: str) -> nn.Module:
        model, _ = hub.load(self._folder(name, command), kind)
        self.weights[name] = fingerprint(model)
        return model

    def _leave_out(self, method: str, error: CheckpointError) -> None:
        self.notes.append(f"{method} was left out: {error}")

    def reconstructor(self, name: str) -> nn.Module:
        """U-Net "unet-a" or "unet-b"; there is no experiment without them."""
        return self._load(name, f"train reconstructor {name[-1]}", "reconstructor")

    def _row_prior(self) -> tuple[Prior, RowProfile]:
        """The coarse prior and how it looks at rows."""
        prior, profile = hub.load_row_prior(self._folder("row-prior", "train row-prior"))
        self.weights["row-prior"] = fingerprint(prior)
        return prior, profile

    def judges(self) -> dict[str, Judge]:
        """Every reconstructor by its name in results, then who looks at the rows alone."""
        networks = {name: self.reconstructor(name) for name in ("unet-a", "unet-b")}
        drawn = {name: MagnitudeJudge(UNetReconstructor(network)) for name, network in networks.items()}
        untrained = {"zero-filled": MagnitudeJudge(ZeroFilled()), "cs-wavelet": MagnitudeJudge(CsWavelet())}
        by_rows: dict[str, Judge] = {"rows": RowsJudge(self.mri.acs)}
        try:
            prior, profile = self._row_prior()
            by_rows["row-prior"] = PriorJudge(prior, ("entropy",), profile)
        except CheckpointError as error:
            self._leave_out("the coarse entropy of the masks", error)
        return {**untrained, **drawn, **by_rows}

    def energy_oracle(self, train: Tensor) -> Masks:
        """The rows of highest energy in the training split."""
        energy, mri = row_energy(train), self.mri
        counts = {budget: count_rows(budget, mri.rows, mri.acs) for budget in mri.budgets}
        return {"energy-oracle": {budget: best_rows(energy, k, mri.acs) for budget, k in counts.items()}}

    def static(self, methods: Sequence[str] = tuple(MAKERS)) -> Masks:
        """Searched and trained masks."""
        found: Masks = {}
        for method in methods:
            try:
                found[method] = {budget: self._mask(method, budget) for budget in self.mri.budgets}
            except CheckpointError as error:
                self._leave_out(method, error)
        return found

    def _mask_folder(self, method: str, budget: float) -> Path:
        command = f"{MAKERS[method]} --budget {budget:g}"
        return self._folder(f"{method}-{budget:g}", command, "mask.npy")

    def _mask(self, method: str, budget: float) -> Tensor:
        return hub.load_mask(self._mask_folder(method, budget) / "mask.npy", self.mri.rows)

    def how_masks_were_made(self, masks: Masks, train: Scenes) -> list[Row]:
        """What the logs say: swaps and the start's share of a search, and how much of LOUPE's first mask is left."""
        rows: list[Row] = []
        for method, by_budget in masks.items():
            for budget, mask in by_budget.items():
                for metric, value in self._from_log(method, budget).items():
                    rows.append(
                        Row(
                            dataset=train.name,
                            method=method,
                            steps=1,
                            budget=budget,
                            density=int(mask.sum()) / len(mask),
                            metric=metric,
                            mean=round(value, 6),
                            sd=0.0,
                            images=len(train),
                            seeds=1,
                            split="train",
                        )
                    )
        return rows

    def _from_log(self, method: str, budget: float) -> dict[str, float]:
        """Metrics of how one mask was made; none where that was not kept."""
        if method == "static-search":
            story = read_story(self._mask_folder(method, budget))
            return {} if story is None else {"accepted-swaps": len(story.swaps), "start-share": story.start_share}
        if method == "loupe":
            look = last_look(self._mask_folder(method, budget))
            return {"from-start": look["from_start"]} if "from_start" in look else {}
        return {}

    def _by_budget(self, kind: str) -> list[nn.Module]:
        """The models of one kind for all budgets."""
        return [self._load(f"{kind}-{s:g}", f"train {kind} --budget {s:g}", kind) for s in self.mri.budgets]

    def nearest(self) -> list[Method]:
        """The mask of the training slices that look most alike, and as a control, of those like another slice."""
        try:
            found: list[NearestRows] = self._by_budget("nearest-mask")  # type: ignore[assignment]
        except CheckpointError as error:
            self._leave_out("nearest-mask", error)
            return []
        policy = NearestMask(found)
        return [Method("nearest-mask", policy), _with_another_scout("nearest-mask", policy)]

    def one_shot(self) -> list[Method]:
        """The learned policy, adaptive, with another slice's scout, and static."""
        found = []
        for form in ("adaptive", "static"):
            try:
                network = self._load(f"row-policy-{form}", f"train row-policy {form}", "row-policy")
            except CheckpointError as error:
                self._leave_out(f"learned-{form}", error)
                continue
            policy = OneShot(network, sampled=False)  # type: ignore[arg-type]
            found.append(Method(f"learned-{form}", policy))
            if form == "adaptive":
                found.append(_with_another_scout("learned-adaptive", policy))
        return found

    def by_profile(self, steps: Sequence[int] = (1, 4, 16)) -> list[Method]:
        """Sequential rows by the coarse prior's entropy and, as a control, its expected energy."""
        try:
            prior, profile = self._row_prior()
        except CheckpointError as error:
            self._leave_out("sequential-entropy", error)
            return []
        scores = {"entropy": entropy, "energy": profile.expected_energy}
        policies = {name: Greedy(prior, score, view=profile) for name, score in scores.items()}
        return [Method(f"sequential-{name}", policy, r) for name, policy in policies.items() for r in steps]

    def planned(self, steps: Sequence[int] = (1, 4, 16)) -> list[Method]:
        """Sequential rows by a plan, and two controls: another slice's energies, and the best mask for all slices."""
        try:
            plans: list[RowPlan] = self._by_budget("row-plan")  # type: ignore[assignment]
        except CheckpointError as error:
            self._leave_out("sequential-value (plan)", error)
            return []
        core = FixedStart({plan.k: plan.core for plan in plans})
        own, other = PlannedRows(plans), PlannedRows(plans, shift=OTHER)
        blind = Fixed(plan.static for plan in plans)
        name = "sequential-value"
        return [
            *(Method(name, own, r, start=core, columns={"form": "plan"}) for r in steps),
            Method(name, other, start=core, columns={"form": "plan-other"}),
            Method(name, blind, columns={"form": "plan-blind"}),
        ]

    def by_samples(self, train: Tensor, share: float = 0.5) -> list[Method]:
        """Sequential rows by what they are worth to imagined images, from the best rows of the searched mask on.

        Args:
            train: slices that say what A misses, with shape `(n, H, W)`.
            share: of the rows beyond the ACS block, what is left to be chosen.
        """
        mri = self.mri
        try:
            orders = load_orders(self.preset, mri.budgets, mri.rows, mri.acs)
        except CheckpointError as error:
            self._leave_out("sequential-samples", error)
            return []
        start = static_cores(orders, mri.rows, mri.acs, share)
        policy = SampledGain(self.reconstructor("unet-a"), train, mri.acs)
        return [Method("sequential-samples", policy, 16, start=start)]

    def by_value(self, steps: Sequence[int] = (16,)) -> list[Method]:
        """Sequential rows by what a network says they are worth to U-Net A, every form that was trained."""
        network, mri = self.reconstructor("unet-a"), self.mri
        found: list[Method] = []
        for form in VALUE_FORMS:
            try:
                folder = self._folder(f"row-value-{form}", f"train row-value {form}")
                value, config = hub.load(folder, "row-value")
                orders = load_orders(self.preset, mri.budgets, mri.rows, mri.acs) if form == "rollout" else None
            except CheckpointError as error:
                self._leave_out(f"sequential-value ({form})", error)
                continue
            self.weights[f"row-value-{form}"] = fingerprint(value)
            policy, share = ValuePolicy(value, network, orders), float(config["training"]["share"])
            start = None if orders is None else static_cores(orders, mri.rows, mri.acs, share)
            found += [Method("sequential-value", policy, r, start=start, columns={"form": form}) for r in steps]
        return found
