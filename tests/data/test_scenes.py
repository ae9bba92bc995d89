"""Scenes, and how a name becomes a data set."""

import pytest
import torch

from sensewise.data import DATASETS, Dataset, Scenes, bundled_mnist, find, import_images, load
from sensewise.errors import ConfigError, DataError


@pytest.mark.parametrize(("count", "held"), [(2, 1), (16, 2), (600, 64)])
def test_scenes_held_out_for_training_are_the_last_of_the_training_split(count, held):
    kspace = torch.arange(count).view(-1, 1, 1).to(torch.complex64)
    slices = Scenes("toy", "train", kspace, sources=tuple(map(str, range(count))))
    train, validation = slices.hold_out()
    assert (len(train), len(validation)) == (count - held, held)
    assert train.sources + validation.sources == slices.sources
    assert torch.equal(torch.cat([train.values, validation.values]), slices.values)


def test_tokens_are_whole_numbers_of_any_size_and_slices_stay_complex():
    tokens, labels = bundled_mnist(3)[torch.tensor([2, 0])]
    assert tokens.dtype == torch.int64
    assert labels.tolist() == [1, 7]
    slices = Scenes("toy", "train", torch.zeros(2, 4, 4, dtype=torch.complex64))
    assert slices[slice(0, 1)][0].is_complex()
    assert slices[slice(0, 1)][1] is None
    assert (slices.shape, slices.first(1).sources) == ((4, 4), ())


def test_every_data_set_says_what_it_is():
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert dataset.title
        assert dataset.licence
        if dataset.bundled is not None:
            count = min(2, len(dataset.bundled(None)))
            few = dataset.bundled(count)
            assert (len(few), few.name, few.licence) == (count, name, dataset.licence)
            with pytest.raises(DataError, match=f"5000 scenes of {name} are not possible: the package holds 1 to"):
                dataset.bundled(5000)


OUTSIDER = """
import torch
from sensewise.data import Dataset, Scenes

def load_stripes(split, root):
    return Scenes("stripes", split, torch.ones(3, 1, 8, 8, dtype=torch.uint8), num_states=2, licence="CC0")

STRIPES = Dataset(name="stripes", title="Stripes", licence="CC0", load=load_stripes)
NOTHING = 3
"""


def test_a_data_set_of_another_module(tmp_path, monkeypatch):
    (tmp_path / "striped_data.py").write_text(OUTSIDER)
    monkeypatch.chdir(tmp_path)
    assert isinstance(find("striped_data:STRIPES"), Dataset)
    found = load("striped_data:STRIPES", "test")
    assert (len(found), found.split, found.licence) == (3, "test", "CC0")
    for text in ("striped_data:NOTHING", "striped_data:MISSING", "no_such_module:X", "striped_data:"):
        with pytest.raises(ConfigError, match=text):
            load(text, "test")


def test_a_folder_a_name_and_neither(tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.chdir(tmp_path)
    np.save("images.npy", np.random.default_rng(0).integers(0, 255, (40, 24, 24), dtype=np.uint8))
    import_images(tmp_path / "images.npy", tmp_path / "mine", size=24, licence="CC0")
    assert load("mine", "test").name == load(str(tmp_path / "mine"), "test").name == "mine"
    known = ", ".join(DATASETS)
    with pytest.raises(DataError, match=f"no data set 'yours': choose one of {known}, or give"):
        load("yours", "test")
