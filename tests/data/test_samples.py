"""The bundled pictures."""

import numpy as np

from sensewise.data.samples import SAMPLES, bundled_pictures


def test_every_sample_has_its_size_its_source_and_something_to_see():
    pictures = bundled_pictures()
    assert len(pictures) == len(SAMPLES)
    for sample, picture in zip(SAMPLES, pictures, strict=True):
        assert picture.dtype == np.uint8
        assert picture.shape == sample.size[::-1]
        assert picture.std() > 5
        assert sample.source.endswith(("CC0-1.0", "public domain"))
