"""What every recipe is: settings and data in, a run folder out. It owns seed, build, config, fit, resume, devices."""

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import nn

from sensewise import hub
from sensewise.files import fingerprint
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.priors.mean import MeanPrior
from sensewise.train.fit import CHECKPOINT, Job, carry_out, is_complete
from sensewise.train.gradient import FitSettings, Objective, Training
from sensewise.train.processes import Execution

HERE = Execution()


class Settings(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class Data(Protocol):
    """Scenes or pictures: whatever has a name and a licence."""

    @property
    def name(self) -> str: ...

    @property
    def licence(self) -> str: ...


class GradientSettings(Settings, Protocol):
    """Any dataclass that says how long and how fast to train."""

    @property
    def fit(self) -> FitSettings: ...


class Recipe(ABC):
    """How one thing is made.

    Attributes:
        kind: of the result, as `hub.KINDS` knows it; a kind that is not there makes masks.
        elsewhere: settings that stand in another part of the config than `training`.
        settings: of the run.
        scenes: what is learned from.
    """

    kind: ClassVar[str]
    elsewhere: ClassVar[tuple[str, ...]] = ()
    settings: Settings
    scenes: Data

    @abstractmethod
    def model(self) -> dict[str, Any]:
        """The part `model` of the config: what it takes to build the result again."""

    def about(self) -> dict[str, Any]:
        """Further parts of the config, such as what the result was made against."""
        return {}

    def config(self) -> dict[str, Any]:
        """What `config.json` of the run says."""
        settings = dataclasses.asdict(self.settings)
        licence = {"licence": self.scenes.licence} if self.scenes.licence else {}
        return {
            "kind": self.kind,
            "data": self.scenes.name,
            **self.about(),
            "model": self.model(),
            "training": {key: value for key, value in settings.items() if key not in self.elsewhere},
            **licence,
        }

    @abstractmethod
    def job(self, *, fresh: bool) -> Job:
        """What is carried out; `fresh` if no checkpoint will replace the first weights."""

    def train(self, folder: Path, execution: Execution = HERE) -> bool:
        """Carry it out in `folder`; True if the run is complete."""
        fresh = not (execution.resume and (folder / CHECKPOINT).is_file())
        return carry_out(self.job(fresh=fresh), self.config(), folder, execution)


class GradientRecipe(Recipe):
    """How a model is trained by gradients."""

    settings: GradientSettings

    @abstractmethod
    def objective(self, model: Any) -> Objective:
        """What is minimised."""

    def fresh(self) -> nn.Module:
        """The model with weights drawn from the global randomness."""
        return hub.build(self.config(), self.kind)

    def initialise(self, model: nn.Module) -> None:
        """Replace fresh weights by those of another run; nothing by default."""
        return

    def job(self, *, fresh: bool) -> Training:
        with torch.random.fork_rng(devices=()):  # the seed decides, and the global randomness is as before
            torch.manual_seed(self.settings.fit.seed)
            model = self.fresh()
        if fresh:
            self.initialise(model)
        return Training(self.objective(model), self.settings.fit)


def answered_by(prior: AbsorbingPrior | MeanPrior, role: str) -> dict[str, Any]:
    """What a config says of a frozen prior that something is trained against, and of its engine if that rounds."""
    return {role: fingerprint(prior), **({} if prior.engine == "torch" else {"engine": prior.engine})}


def train_all(recipes: Mapping[str, Recipe], folder: Path, execution: Execution = HERE) -> bool:
    """Carry out recipes one after another, each in `folder/NAME`; True if all are complete.

    With `resume`, complete runs are left alone and those not begun are begun. A stop stops all.
    """
    begun = time.monotonic()
    for name, recipe in recipes.items():
        target = folder / name
        if execution.resume and is_complete(target, recipe.config()):
            continue
        limit = execution.max_minutes
        here = dataclasses.replace(
            execution,
            resume=execution.resume and (target / hub.CONFIG).is_file(),
            max_minutes=None if limit is None else max(0.0, limit - (time.monotonic() - begun) / 60),
        )
        if not recipe.train(target, here):
            return False
    return True
