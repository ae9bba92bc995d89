"""`mri-phantom`: every mask of rows on k-space of a real scanner, which no one simulated and no model was trained on.

One slice of a phantom, 2 coils, 160 x 160, of which the middle of k-space is taken, as large as the models are. U-Nets,
masks and plans come from brains with simulated k-space of one coil.
"""

from sensewise.data.phantom import bundled_phantom
from sensewise.errors import DataError
from sensewise.evaluate.experiment import Experiment, Setup
from sensewise.evaluate.results import Results
from sensewise.evaluate.task import row_task
from sensewise.paper.mri_masks import measure, under_judges
from sensewise.paper.mri_models import MRIModels
from sensewise.report.figures.rows import MAIN_ROWS, rows_by_budget, slice_examples
from sensewise.report.section import Picture, Section


def run(setup: Setup) -> Results:
    """Every static mask and the plan at every budget, under every reconstructor."""
    models = MRIModels(setup.preset)
    judges = models.judges()
    masks = models.static()
    try:
        train, _ = models.scenes()
        masks = models.energy_oracle(train.values) | masks
    except DataError as error:
        models.notes.append(f"energy-oracle was left out: {error}")
    learned = [method for method in models.one_shot() + models.nearest() if not method.columns]
    learned += models.by_profile((16,))
    learned += [method for method in models.planned((1,)) if method.columns["form"] != "plan-other"]
    phantom = bundled_phantom((models.mri.rows, models.mri.columns))
    return measure(setup, "mri-phantom", models, row_task(phantom, judges, models.mri.acs), masks, learned)


def section(results: Results) -> Section:
    """NMSE under every reconstructor, the rows, and what they show of the phantom."""
    figures = [
        Picture("mri-phantom.png", slice_examples(results.arrays, "median"), "The phantom at s = 0.25, judged by B."),
        Picture("mri-phantom-rows.png", rows_by_budget(results.arrays, MAIN_ROWS), "Rows sampled by each mask."),
    ]
    paragraphs = [
        "A phantom in a 3 T scanner, 2 coils, k-space as it was measured (twixtools 0.24, MIT), one slice. Everything "
        "that was trained comes from brain-t1 with one simulated coil.",
        *results.notes,
    ]
    return Section("MRI, k-space of a real scanner", paragraphs, under_judges(results.rows), figures, results)


EXPERIMENT = Experiment("mri-phantom", run, section)
