"""`sensewise evaluate` as an experiment: its measurements are journalled and can be made by other processes."""

import sys
from dataclasses import dataclass

from sensewise import hub
from sensewise.data import load
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.method import method_from_text
from sensewise.evaluate.own_data import STEPS, evaluate_prior, own_methods
from sensewise.evaluate.results import Results


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated, in names: enough to build it again on another machine.

    Attributes:
        prior: a run folder or a bundled prior's name.
        data: a data set, of whose test images the first are taken.
        policies: compared beside the usual ones: names, or `module:Class`.
        images: at most so many.
        preset: whose models names stand for.
    """

    prior: str
    data: str
    policies: tuple[str, ...] = ()
    images: int = 500
    preset: str = hub.SHIPPED

    def experiment(self) -> Experiment:
        """Everything is loaded now, so that what cannot be is said before any work."""
        scenes, prior = load(self.data, "test").first(self.images), hub.load_prior(self.prior, self.preset)
        usual = own_methods(prior, scenes)
        asked = [method_from_text(text, prior, STEPS) for text in self.policies]
        extra = [method for method in asked if method.name not in {known.name for known in usual}]

        def run(setup: Setup) -> Results:
            return evaluate_prior(prior, scenes, setup, methods=usual, extra=extra)

        modules = {text.partition(":")[0].removesuffix(".py") for text in self.policies if ":" in text}
        return Experiment("results", run, code=tuple(sys.modules[name] for name in sorted(modules)))
