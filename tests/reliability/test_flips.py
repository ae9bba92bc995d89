"""Every flipped bit of shipped weights is noticed."""

import json
import random
import shutil

import pytest

from sensewise import hub
from sensewise.errors import CheckpointError

WEIGHTS = sorted(hub.ASSETS.rglob(hub.WEIGHTS))


def test_every_shipped_model_names_the_hash_of_its_weights():
    assert WEIGHTS
    for path in WEIGHTS:
        assert len(json.loads((path.parent / hub.CONFIG).read_text())["sha256"]) == 64


@pytest.mark.parametrize("flips", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_flipped_bit_is_noticed(flips, tmp_path):
    rng = random.Random(0)
    noticed = 0
    for number in range(flips):
        model = rng.choice(WEIGHTS).parent
        copy = tmp_path / str(number)
        shutil.copytree(model, copy)
        content = bytearray((copy / hub.WEIGHTS).read_bytes())
        place = rng.randrange(8 * len(content))
        content[place // 8] ^= 1 << place % 8
        (copy / hub.WEIGHTS).write_bytes(content)
        try:
            hub.load(copy)
        except CheckpointError:
            noticed += 1
        shutil.rmtree(copy)
    assert noticed == flips
