"""What the MR experiments compare: trained models and masks of a preset, each left out with a note if it is missing."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from sensewise.checkpoint import fingerprint
from sensewise.errors import CheckpointError
from sensewise.experiments.mri_evaluation import RowStrategy, fixed
from sensewise.mri.models import find, load, load_mask, load_plan
from sensewise.mri.plan import PlannedRows
from sensewise.mri.profile import SequentialRows, load_row_prior
from sensewise.mri.row_masks import FixedRows, acs_start, best_rows, count_rows, fixed_start, row_energy
from sensewise.mri.row_policy import OneShotRows
from sensewise.mri.settings import MRISettings
from sensewise.mri.train_value import load_orders
from sensewise.mri.value import ValuePolicy, static_core
from sensewise.policies import Policy, Start
from sensewise.reconstruct import Reconstructor, UNetReconstructor, ZeroFilled

NETWORK_FORMS = ("rollout", "gain", "gradient")
OTHER = 50  # slices away, for a control: neighbours may come from one patient
STATIC = ("static-search", "relaxed-profile", "loupe")


@dataclass
class Models:
    """The trained parts of one preset.

    Attributes:
        preset: its name.
        mri: sizes and budgets.
        weights: fingerprints for the results file.
        notes: what was left out.
    """

    preset: str
    mri: MRISettings
    weights: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def reconstructor(self, name: str) -> nn.Module:
        """U-Net "unet-a" or "unet-b"; there is no experiment without them."""
        network, _ = load(find(self.preset, name), "reconstructor")
        self.weights[name] = fingerprint(network)
        return network

    def judges(self) -> dict[str, Reconstructor]:
        """Every reconstructor by its name in results."""
        networks = {name: self.reconstructor(name) for name in ("unet-a", "unet-b")}
        return {"zero-filled": ZeroFilled(), **{n: UNetReconstructor(net) for n, net in networks.items()}}

    def _leave_out(self, method: str, error: CheckpointError) -> None:
        self.notes.append(f"{method} was left out: {error}")

    def energy_oracle(self, train: Tensor) -> dict[str, dict[float, Tensor]]:
        """The rows of highest energy in the training split, by method and budget."""
        energy = row_energy(train)
        counts = {b: count_rows(b, self.mri.rows, self.mri.acs) for b in self.mri.budgets}
        return {"energy-oracle": {b: best_rows(energy, k, self.mri.acs) for b, k in counts.items()}}

    def static(self, methods: tuple[str, ...] = STATIC) -> dict[str, dict[float, Tensor]]:
        """Searched and trained masks by method and budget."""
        found = {}
        for method in methods:
            try:
                paths = {b: find(self.preset, f"{method}-{b:g}", "mask.npy") / "mask.npy" for b in self.mri.budgets}
                found[method] = {b: load_mask(path, self.mri.rows) for b, path in paths.items()}
            except CheckpointError as error:
                self._leave_out(method, error)
        return found

    def one_shot(self) -> list[RowStrategy]:
        """The learned policy, adaptive, with another slice's scout, and static."""
        strategies = []
        for form in ("adaptive", "static"):
            try:
                network, _ = load(find(self.preset, f"row-policy-{form}"), "row-policy")
            except CheckpointError as error:
                self._leave_out(f"learned-{form}", error)
                continue
            self.weights[f"row-policy-{form}"] = fingerprint(network)
            policy = OneShotRows(network)
            strategies.append(RowStrategy(f"learned-{form}", lambda _, policy=policy: policy))  # type: ignore[misc]
            if form == "adaptive":
                strategies.append(RowStrategy("learned-adaptive", lambda _, policy=policy: policy, other_scout=True))  # type: ignore[misc]
        return strategies

    def by_profile(self, steps: tuple[int, ...] = (1, 4, 16)) -> list[RowStrategy]:
        """Sequential rows by the coarse prior's entropy and, as a control, its expected energy."""
        try:
            prior, profile = load_row_prior(find(self.preset, "row-prior"))
        except CheckpointError as error:
            self._leave_out("sequential-entropy", error)
            return []
        self.weights["row-prior"] = fingerprint(prior)
        policies = {score: SequentialRows(prior, profile, score) for score in ("entropy", "energy")}
        return [
            RowStrategy(f"sequential-{score}", lambda _, policy=policy: policy, steps=r)  # type: ignore[misc]
            for score, policy in policies.items()
            for r in steps
        ]

    def planned(self, steps: tuple[int, ...] = (1, 4, 16)) -> list[RowStrategy]:
        """Sequential rows by a plan, and two controls: another slice's energies, and the best mask for all slices."""
        try:
            plans = {b: load_plan(find(self.preset, f"row-plan-{b:g}")) for b in self.mri.budgets}
        except CheckpointError as error:
            self._leave_out("sequential-value (plan)", error)
            return []
        self.weights |= {f"row-plan-{b:g}": fingerprint(plan) for b, plan in plans.items()}

        def start(budget: float) -> Start:
            return fixed_start(plans[budget].core)

        def strategy(form: str, policy: Callable[[float], Policy], r: int = 1) -> RowStrategy:
            return RowStrategy("sequential-value", policy, r, start, columns={"form": form})

        own = [strategy("plan", lambda budget: PlannedRows(plans[budget]), r) for r in steps]
        other = strategy("plan-other", lambda budget: PlannedRows(plans[budget], shift=OTHER))
        blind = strategy("plan-blind", lambda budget: FixedRows(plans[budget].static))
        return [*own, other, replace(blind, start=None)]

    def by_value(self, steps: tuple[int, ...] = (16,)) -> list[RowStrategy]:
        """Sequential rows by what a network says they are worth to U-Net A, every form that was trained."""
        network = self.reconstructor("unet-a")
        strategies = []
        for form in NETWORK_FORMS:
            try:
                value, config = load(find(self.preset, f"row-value-{form}"), "row-value")
                orders = load_orders(self.preset, self.mri) if form == "rollout" else None
            except CheckpointError as error:
                self._leave_out(f"sequential-value ({form})", error)
                continue
            self.weights[f"row-value-{form}"] = fingerprint(value)
            strategies += [self._value(value, network, config, orders, form, r) for r in steps]
        return strategies

    def _value(
        self,
        value: nn.Module,
        network: nn.Module,
        config: dict[str, Any],
        orders: list[Tensor] | None,
        form: str,
        r: int,
    ) -> RowStrategy:
        mri = self.mri
        by_budget = None if orders is None else dict(zip(mri.budgets, orders, strict=True))
        share = float(config["training"]["share"])

        def policy(budget: float) -> ValuePolicy:
            return ValuePolicy(value, network, None if by_budget is None else by_budget[budget])

        def start(budget: float) -> Any:
            if by_budget is None:
                return acs_start(mri.rows, mri.acs)
            return static_core(by_budget[budget], mri.rows, mri.acs, share)

        return RowStrategy("sequential-value", policy, r, start, columns={"form": form})


def static_strategies(masks: dict[str, dict[float, Tensor]]) -> list[RowStrategy]:
    """Static masks as strategies."""
    return [fixed(method, by_budget) for method, by_budget in masks.items()]
