"""Every training step follows the device of its model and data: shown on `meta`, where no number exists."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sensewise.train.gradient import update_average
from tiny_trainings import GRADIENT

META = torch.device("meta")
MOVES = {"aten::_to_copy", "aten::copy_"}  # what was drawn on the CPU goes to the device


class NoMixing(TorchDispatchMode):
    """Refuses an operation on tensors of two devices, which some kernels of `meta` let pass."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = torch.utils._pytree.tree_leaves((args, kwargs))
        devices = {t.device.type for t in given if isinstance(t, torch.Tensor) and t.dim() > 0}
        assert len(devices) <= 1 or func.name().split(".")[0] in MOVES, f"{func.name()} on {devices}"
        return func(*args, **kwargs)


@pytest.mark.parametrize("name", GRADIENT)
def test_a_training_step_touches_no_cpu_tensor(name):
    recipe = GRADIENT[name](META)
    job = recipe.job(fresh=True)
    objective = job.objective
    objective.model.to(META)
    job.average.to(META)
    objective.to(META)
    with NoMixing():
        for step in range(2):
            loss = objective.loss(objective.model, step, torch.Generator().manual_seed(step))
            loss.backward()
            update_average(job.average, objective.model, 0.5, step)
    assert loss.device == META
    assert loss.shape == ()
    grads = [p.grad for p in objective.model.parameters() if p.requires_grad]
    assert all(grad is not None and grad.device == META for grad in grads)


def test_the_check_notices_mixed_devices():
    with NoMixing(), pytest.raises((AssertionError, RuntimeError)):
        torch.ones(3, device=META)[torch.tensor([0, 1])]
