import ast
from pathlib import Path

import numpy as np
import pytest
import torch

import sensewise
from conftest import make_absorbing, make_empirical, seeded
from sensewise import masks
from sensewise.curriculum import Curriculum, PriorObjective
from sensewise.policies import Greedy, Random, VariableDensity, random_probe
from sensewise.sensors import PixelSensor

ROOT = Path(sensewise.__file__).parent
LAYERS = [
    ["errors", "optimizers"],
    ["tokens", "kspace", "processes"],
    ["masks", "metrics", "diffusion", "information", "networks", "presets", "estimators"],
    ["priors"],
    ["sensors", "checkpoint"],
    ["policies", "reconstruct", "data", "figures", "generator"],
    ["acquire", "training", "cli_options", "tables"],
    ["__init__", "curriculum", "generator_objective", "loupe"],
    ["train_prior", "train_generator", "train_loupe", "mri"],
    ["train_mask_state"],
    ["experiments", "environment", "card", "export"],
    ["acquire_image", "bench", "report_one_shot", "report_cifar10", "report_mri", "web"],
    ["report", "cli_mri", "cli_train"],
    ["cli"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FILES = sorted(ROOT.rglob("*.py"))


def part_of(path):
    """A module's name, or its folder's; `mri/kspace.py` is arithmetic that sensors and networks stand on."""
    return path.stem if path.parent == ROOT or path.stem == "kspace" else path.relative_to(ROOT).parts[0]


PARTS = {part_of(path) for path in FILES}


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_parts(path):
    for module in imported_modules(path):
        names = module.split(".")
        if names[:3] == ["sensewise", "mri", "kspace"]:
            yield "kspace"
        elif names[0] == "sensewise":
            yield names[1] if len(names) > 1 and names[1] in PARTS else "__init__"


def test_every_part_has_a_layer():
    assert set(RANK) == PARTS


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downward_only(path):
    own = part_of(path)
    upward = {part for part in imported_parts(path) if part != own and RANK[part] >= RANK[own]}
    assert not upward, f"{own} imports {upward}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_unpickled(path):
    banned = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    if path.name == "cifar10.py":  # reads the official batches with an unpickler that admits arrays of bytes alone
        banned.remove("pickle")
    assert not banned & {module.split(".")[0] for module in imported_modules(path)}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {("torch", "load"), ("torch", "save")}
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False


def test_figures_import_no_model():
    models = {"priors", "networks", "policies", "acquire", "reconstruct", "training", "experiments"}
    for path in FILES:
        if part_of(path) == "figures":
            assert not models & set(imported_parts(path))


def test_public_names_exist():
    assert len(set(sensewise.__all__)) == len(sensewise.__all__)
    for name in sensewise.__all__:
        assert getattr(sensewise, name) is not None


def uses_of_randomness(tiny_digits):
    prior, empirical = make_absorbing(), make_empirical()
    x = tiny_digits[slice(0, 4)][0]
    yield lambda: masks.random(2, 16, 4, seeded())
    yield lambda: masks.variable_density(2, (4, 4), 4, seeded())
    yield lambda: masks.jittered_grid(2, (4, 4), 4, seeded())
    yield lambda: masks.sample_on_budget(torch.zeros(2, 16), 4, seeded())
    for policy in (Random(), VariableDensity((8, 8)), Greedy(prior)):
        yield lambda policy=policy: sensewise.acquire(policy, PixelSensor(x), 8, steps=2, start=random_probe(64))
    yield lambda: sensewise.sample(empirical, torch.zeros(1, 1, 4, 4, dtype=torch.int64), None, seeded(), steps=3)
    yield lambda: sensewise.load_prior("mnist")
    curriculum = Curriculum(on_policy=0.5, min_steps=2, max_steps=4)
    objective = PriorObjective(prior, tiny_digits, tiny_digits, curriculum, batch_size=4)
    yield lambda: objective.loss(prior, 0, seeded())


def test_global_random_state_is_never_touched(tiny_digits):
    for use in uses_of_randomness(tiny_digits):
        before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        use()
        assert torch.equal(torch.get_rng_state(), before)
        assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002
