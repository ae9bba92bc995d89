"""sensewise decides what to measure.

A sensor reveals what an action measures. A prior predicts every hidden site from what has been seen. A policy scores
the actions not yet taken. `acquire` measures the best ones until the budget is spent. A reconstructor fills in the
rest. A metric nobody optimised judges the result.

The names below are loaded when they are first used, so that `import sensewise` and `sensewise --help` are quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sensewise.errors import SensewiseError
    from sensewise.hub import load_prior
    from sensewise.loop import Trajectory, acquire
    from sensewise.policies.choose import Spread, TopK
    from sensewise.policies.greedy import Greedy
    from sensewise.policies.simple import Random
    from sensewise.reconstruct.prior import Mode, PosteriorMean
    from sensewise.sensors.base import Side
    from sensewise.sensors.pixels import PixelSensor
    from sensewise.session import Session
    from sensewise.tokens import dequantize, quantize

__version__ = "0.2.0"

_HOMES = {
    "Greedy": "policies.greedy",
    "Mode": "reconstruct.prior",
    "PixelSensor": "sensors.pixels",
    "PosteriorMean": "reconstruct.prior",
    "Random": "policies.simple",
    "SensewiseError": "errors",
    "Session": "session",
    "Side": "sensors.base",
    "Spread": "policies.choose",
    "TopK": "policies.choose",
    "Trajectory": "loop",
    "acquire": "loop",
    "dequantize": "tokens",
    "load_prior": "hub",
    "quantize": "tokens",
}

__all__ = [
    "Greedy",
    "Mode",
    "PixelSensor",
    "PosteriorMean",
    "Random",
    "SensewiseError",
    "Session",
    "Side",
    "Spread",
    "TopK",
    "Trajectory",
    "acquire",
    "dequantize",
    "load_prior",
    "quantize",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sensewise' has no attribute {name!r}")
    return getattr(import_module(f"sensewise.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
