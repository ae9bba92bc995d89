"""A small prior that learns from a large one: whose predictions, on which states, and how often it asks."""

import math

import pytest
import torch

from conftest import make_absorbing, seeded
from sensewise.errors import ConfigError
from sensewise.files import fingerprint
from sensewise.tokens import MASK
from sensewise.train.curriculum import Curriculum
from sensewise.train.prior import PriorSettings
from sensewise.train.taught import MEMORY, TaughtObjective, TaughtRecipe
from tiny_trainings import images

MASKS = Curriculum(on_policy=1.0, min_steps=2, max_steps=4, max_budget=0.5, spread=0.5, observed_weight=0.0)


def objective(student, teacher=None, reuse=1, curriculum=MASKS):
    settings = PriorSettings(batch_size=6, curriculum=curriculum, reuse=reuse)
    return TaughtObjective(student, teacher or make_absorbing(), images(), images(), settings)


def test_who_knows_what_the_teacher_knows_pays_nothing():
    assert float(objective(make_absorbing()).loss(make_absorbing(), 0, seeded())) == pytest.approx(0, abs=1e-5)
    assert float(objective(make_absorbing(seed=1)).loss(make_absorbing(seed=1), 0, seeded())) > 0.01


@pytest.mark.parametrize(("reuse", "steps"), [(1, 5), (4, 9), (3, 70)])
def test_how_often_the_teacher_is_asked(reuse, steps, monkeypatch):
    student = make_absorbing(seed=1)
    found, asked = objective(student, reuse=reuse), []
    predict = found.teacher.predict
    monkeypatch.setattr(found.teacher, "predict", lambda *given: asked.append(1) or predict(*given))
    moves = []
    monkeypatch.setattr(found, "move_on", lambda prediction: moves.append(1))
    for step in range(steps):
        found.loss(student, step, seeded(step))
    assert len(asked) == len(moves) == math.ceil(steps / reuse)
    assert len(found.kept) == min(MEMORY, len(asked))


def test_states_are_those_of_its_own_policy():
    """The trajectories go where the student looks, which is not where the teacher would."""
    student = make_absorbing(seed=1)
    found = objective(student)
    found.loss(student, 0, seeded())
    before = found.kept[-1]["tokens"] != MASK
    mask = found.rollouts.mask.view(6, 1, 8, 8)
    assert (mask >= before).all()
    assert mask.sum() > before.sum()


def test_it_learns():
    student, teacher = make_absorbing(seed=1).requires_grad_(True), make_absorbing()
    found, optimizer = objective(student, teacher, reuse=4), torch.optim.AdamW(student.parameters(), 1e-2)
    losses = []
    for step in range(60):
        loss = found.loss(student, step, seeded(step))
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert sum(losses[-8:]) < 0.5 * sum(losses[:8])


def test_the_teachers_picture_is_judged_beside_its_own():
    found = objective(make_absorbing(seed=1)).validate(make_absorbing(seed=1))
    assert {"greedy_errors_0.1", "guided_errors_0.1"} <= set(found)
    assert found["greedy_errors_0.1"] != found["guided_errors_0.1"]


@pytest.mark.parametrize("change", [{"num_labels": None}, {"shape": (1, 8, 4)}])
def test_a_teacher_of_other_images_is_refused(change):
    with pytest.raises(ConfigError, match="same tokens and labels"):
        objective(make_absorbing(), make_absorbing(**change))


def test_the_config_says_who_taught_and_with_which_engine(traced):
    teacher = make_absorbing()
    recipe = TaughtRecipe(PriorSettings(), images(), images(), teacher=teacher)
    assert (recipe.about()["teacher"], "engine" in recipe.about()) == (fingerprint(teacher), False)
    teacher.run_with("bfloat16")
    assert (recipe.about()["teacher"], recipe.about()["engine"]) == (fingerprint(teacher), "bfloat16")
    rounded = objective(make_absorbing(seed=1), teacher).loss(make_absorbing(seed=1), 0, seeded())
    exact = objective(make_absorbing(seed=1)).loss(make_absorbing(seed=1), 0, seeded())
    assert 0 < abs(float(rounded - exact)) < 0.05 * float(exact)
