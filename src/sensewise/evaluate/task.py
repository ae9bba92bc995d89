"""A task: what is measured, what is known beforehand, and who judges the result. The same for every sensor."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from sensewise.data.scenes import Scenes
from sensewise.errors import ConfigError, DataError
from sensewise.evaluate.judges import Judge, PriorJudge
from sensewise.files import identity
from sensewise.kspace import scout
from sensewise.policies.base import Start
from sensewise.policies.starts import CentralBlock
from sensewise.priors.base import Prior
from sensewise.sensors.base import Sensor, Side
from sensewise.sensors.pixels import PixelSensor
from sensewise.sensors.rows import RowSensor
from sensewise.tokens import summary


@dataclass(frozen=True)
class Task:
    """Scenes to be measured, and how the result is judged.

    Attributes:
        name: of the data set in results.
        scenes: what is measured.
        sensor: makes a sensor of scenes' values, such as `PixelSensor`.
        judges: who scores what was measured; with several, their names are the column `reconstructor`.
        side: what is known of all scenes beforehand.
        start: what methods without a start of their own begin with.
        columns: further columns of every row, such as the stage of the prior that judges.
        also: of "seconds" (of the processor) and "travel" (length of the path in pixels), what rows are made of too.
    """

    name: str
    scenes: Scenes
    sensor: Callable[..., Sensor]
    judges: Mapping[str, Judge]
    side: Side = field(default_factory=Side)
    start: Start | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    noisy: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not len(self.scenes) or not self.judges:
            raise ConfigError(f"the task {self.name!r} needs at least one scene and one judge")

    @property
    def values(self) -> Tensor:
        """The truth: tokens as int64 `(n, C, H, W)`, or k-space `(n, H, W)`."""
        return self.scenes[slice(None)][0]

    def make_sensor(self, seed: int) -> Sensor:
        """A sensor of all scenes; the seed decides what noise there is."""
        return self.sensor(self.values)

    def part(self, scenes: slice) -> Self:
        """The same task for some of the scenes."""
        return replace(self, scenes=self.scenes.part(scenes), side=self.side[scenes])

    def first(self, count: int) -> Self:
        """The same task for the first scenes."""
        return self.part(slice(0, count))

    def judged_by(self, names: Collection[str]) -> Self:
        """The same task with some of its judges."""
        return replace(self, judges={name: judge for name, judge in self.judges.items() if name in names})

    def describe(self) -> Any:
        """Everything that a measurement depends on, as JSON: scenes, side information, judges with their weights."""
        return [self.name, self.scenes.split, identity(self.scenes.values), *map(identity, self._parts())]

    def _parts(self) -> tuple[Any, ...]:
        return self.sensor, self.judges, self.side, self.start, self.columns


class NoisyTask(Task):
    """A task whose readings have noise of their own with every seed, the same for all methods.

    `sensor` takes a generator too, as `ReadingSensor` does.
    """

    noisy = True

    def make_sensor(self, seed: int) -> Sensor:
        return self.sensor(self.values, generator=torch.Generator().manual_seed(seed))


def pixel_task(scenes: Scenes, prior: Prior, metrics: Sequence[str], /, **columns: str) -> Task:
    """Pixels of token images, judged by a prior; labels and 8 x 8 summaries are known beforehand.

    Args:
        columns: further columns of every row, such as the stage of the prior.
    """
    fits = scenes.shape[0] == prior.channels and prior.size in (None, scenes.shape[1:])
    if not fits or scenes.num_states != prior.num_states:
        wanted = (prior.channels, *(prior.size or ("H", "W")))
        raise DataError(
            f"{scenes.name} has images of shape {scenes.shape} with {scenes.num_states} levels, but the prior takes "
            f"({', '.join(map(str, wanted))}) with {prior.num_states}: train one with `sensewise train prior --data`"
        )
    x, label = scenes[slice(None)]
    side = Side(label=label, summary=summary(x, prior.num_states))
    return Task(scenes.name, scenes, PixelSensor, {"prior": PriorJudge(prior, metrics)}, side, columns=columns)


def row_task(scenes: Scenes, judges: Mapping[str, Judge], acs: int, **columns: str) -> Task:
    """Rows of MR slices; the ACS block is always measured, and the scout that it gives is known beforehand.

    Args:
        acs: rows of the ACS block, and the side of the scout.
    """
    side = Side(summary=scout(scenes.values, acs))
    return Task(scenes.name, scenes, RowSensor, judges, side, CentralBlock(acs), columns)
