"""What an MR preset fixes for every command: the data set, the size of a slice, the ACS block, the budgets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sensewise import presets
from sensewise.errors import ConfigError
from sensewise.kspace import acs_rows


@dataclass(frozen=True)
class MRISettings:
    """The section `[mri.data]` of a preset.

    Attributes:
        dataset: its name, which is also the name of its folder.
        rows: phase-encode rows after the centre crop.
        columns: after the centre crop.
        acs: rows of the ACS block.
        axis: which axis of the files is phase-encoded; "auto" asks each file.
        coils: of every file of the data set.
        budgets: fractions of the rows at which masks are made and compared.
        oracle_slices: how many held-out slices the one-step oracle is run on: it is slow.
    """

    dataset: str = "brain-t1"
    rows: int = 128
    columns: int = 128
    acs: int = 14
    axis: Literal["auto", "rows", "columns"] = "auto"
    coils: int = 1
    budgets: tuple[float, ...] = (0.25, 0.40, 0.50, 0.75)
    oracle_slices: int = 32

    def __post_init__(self) -> None:
        acs_rows(self.rows, self.acs)
        if not self.budgets or min(self.columns, self.coils, self.oracle_slices) < 1:
            raise ConfigError("budgets, columns, coils and oracle_slices must not be empty or 0")


def load_settings(preset: str | Path) -> MRISettings:
    """The MR settings of a preset."""
    return presets.load(preset, "mri.data", MRISettings)
