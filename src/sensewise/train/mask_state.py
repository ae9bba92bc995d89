"""Train the priors of the mask-state ablation: one common start, then pairs of fine-tunes.

From the weights of one small prior, each seed fine-tunes two priors with the same settings and the same random masks:
one with the mask state, one in which 0 is both black and unobserved (paper, Appendix E). The paper's start has no mask
state, so that one arm begins with an input that it has never seen while the other goes on as before. Ours has seen both
encodings, each on half of the images: neither arm has to learn its encoding from nothing, and what differs in the end
is what the encoding tells.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError
from sensewise.train.curriculum import Curriculum
from sensewise.train.gradient import FitSettings
from sensewise.train.prior import NetworkSettings, PriorRecipe, PriorSettings

START = "start"


@dataclass(frozen=True)
class MaskStateSettings:
    """Everything that `sensewise train mask-state` needs to know.

    Attributes:
        seeds: fine-tuning seeds; each trains two priors.
        start_shared: the fraction of the start's images that are shown without a mask state; 1 is the paper's start.
        start: how the common start is trained.
        fine_tune: how each of the fine-tunes is trained.
    """

    seeds: int = 5
    batch_size: int = 64
    network: NetworkSettings = field(default_factory=NetworkSettings)
    curriculum: Curriculum = field(default_factory=Curriculum)
    start: FitSettings = field(default_factory=FitSettings)
    fine_tune: FitSettings = field(default_factory=FitSettings)
    start_shared: float = 0.5

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.batch_size < 1:
            raise ConfigError(f"seeds and batch_size must be at least 1, got {self.seeds} and {self.batch_size}")


def variant_name(mask_state: bool, seed: int) -> str:
    """The run folder of one fine-tune."""
    return f"{'with' if mask_state else 'without'}-{seed}"


def mask_state_recipes(
    settings: MaskStateSettings, scenes: Scenes, held_out: Scenes, folder: Path
) -> dict[str, PriorRecipe]:
    """Every run of the ablation by its name in `folder`: the common start first, then the fine-tunes in pairs."""
    common = PriorSettings(
        batch_size=settings.batch_size,
        network=settings.network,
        curriculum=settings.curriculum,
        fit=settings.start,
    )
    without = settings.start_shared == 1
    seen = replace(settings.curriculum, shared_zero=0.0 if without else settings.start_shared)
    recipes = {START: PriorRecipe(replace(common, curriculum=seen), scenes, held_out, mask_state=not without)}
    for seed in range(settings.seeds):
        fit = replace(settings.fine_tune, seed=settings.fine_tune.seed + 1 + seed)
        for mask_state in (True, False):
            recipes[variant_name(mask_state, seed)] = PriorRecipe(
                replace(common, fit=fit), scenes, held_out, init=folder / START, mask_state=mask_state
            )
    return recipes
