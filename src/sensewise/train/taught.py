"""Train a prior by a larger one, or by the mean of several, on the states that its own policy visits.

It learns what every hidden pixel may be, as the teacher says it, instead of what it is in one image: a thousand
probabilities per image tell more than a thousand bits. An answer of the teacher costs more than a step of a small
prior, so the last answers are kept, and most steps learn from one of them again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError
from sensewise.predictions import Categorical
from sensewise.priors.absorbing import AbsorbingPrior
from sensewise.priors.base import Prior
from sensewise.priors.mean import MeanPrior
from sensewise.tokens import MASK
from sensewise.train.prior import PriorObjective, PriorRecipe, PriorSettings
from sensewise.train.recipe import answered_by

MEMORY = 16  # answers of the teacher that are kept, a batch each


class TaughtObjective(PriorObjective):
    """The divergence of the small prior's predictions from the teacher's, over the hidden sites.

    Args:
        prior: what is trained.
        teacher: what it learns from; takes the same tokens and labels.
        scenes: images to learn on.
        held_out: images to judge by.
        settings: masks, batch size, `reuse`.
    """

    model: AbsorbingPrior

    def __init__(
        self,
        prior: AbsorbingPrior,
        teacher: AbsorbingPrior | MeanPrior,
        scenes: Scenes,
        held_out: Scenes,
        settings: PriorSettings,
    ) -> None:
        super().__init__(prior, scenes, held_out, settings.curriculum, settings.batch_size)
        if (settings.curriculum.noise, settings.curriculum.shared_zero) != (0, 0) or teacher.takes != prior.takes:
            raise ConfigError("a teacher has to take the same tokens and labels as the prior that it teaches")
        self.teacher, self.frozen, self.reuse = teacher, (teacher,), settings.reuse
        self.kept: list[dict[str, Tensor]] = []  # the last answers: tokens, labels, log-probabilities

    def state(self) -> dict[str, Tensor]:
        names = self.kept[0] if self.kept else {}
        return super().state() | {f"kept.{name}": torch.stack([part[name] for part in self.kept]) for name in names}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        super().load_state(state)
        names = [name for name in state if name.startswith("kept.")]
        answers = zip(*(state[name].unbind() for name in names), strict=True)
        keys = [name.removeprefix("kept.") for name in names]
        self.kept = [dict(zip(keys, answer, strict=True)) for answer in answers]

    def loss(self, model: Prior, step: int, generator: Generator) -> Tensor:
        fresh = step % self.reuse == 0 or not self.kept
        whole = self._asked(generator) if fresh else self._recalled(generator)
        answer = {name: self.team.share(part) for name, part in whole.items()}
        y, taught = answer["tokens"].long(), Categorical(answer["log_probs"].float().log_softmax(-1))
        prediction = model.predict(y, answer["label"], None)
        assert isinstance(prediction, Categorical)
        if fresh:
            self.move_on(prediction)
        hidden = y == MASK
        nats = taught.divergence(prediction, hidden)
        if self.curriculum.observed_weight:
            nats = nats + self.curriculum.observed_weight * prediction.cross_entropy(y.clamp(min=1), ~hidden)
        return self.mean(nats, taught, y[0].numel())

    def _asked(self, generator: Generator) -> dict[str, Tensor]:
        """A new batch and what the teacher says of it; each process asks about its share, and all have the whole."""
        x, label, sites, _ = self._batch(generator)
        y = torch.where(sites, x, MASK).long()
        labels = self.model.check(y, label)
        with torch.no_grad():
            found = self.teacher.predict(self.team.share(y), self.team.share(labels), None).log_probs.half()
        answer = {"tokens": y.byte(), "label": labels, "log_probs": self.team.gather(found, self.batch_size)}
        self.kept = [*self.kept[-(MEMORY - 1) :], answer]
        return answer

    def _recalled(self, generator: Generator) -> dict[str, Tensor]:
        """One of the last batches again."""
        return self.kept[int(torch.randint(len(self.kept), (), generator=generator))]

    def judges(self, model: Prior) -> dict[str, Prior]:
        return {**super().judges(model), "guided": self.teacher}


@dataclass(frozen=True)
class TaughtRecipe(PriorRecipe):
    """How a small prior is taught.

    Attributes:
        teacher: the prior that the settings name.
    """

    teacher: AbsorbingPrior | MeanPrior | None = None

    def about(self) -> dict[str, Any]:
        assert self.teacher is not None
        return {**super().about(), **answered_by(self.teacher, "teacher")}

    def objective(self, model: AbsorbingPrior) -> TaughtObjective:  # type: ignore[override]
        assert self.teacher is not None
        return TaughtObjective(model, self.teacher, self.scenes, self.held_out, self.settings)
