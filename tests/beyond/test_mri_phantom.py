from sensewise.beyond.mri_phantom import EXPERIMENT
from sensewise.evaluate.experiment import Setup


def test_every_mask_on_a_real_scanners_kspace(tmp_path, monkeypatch):
    """Shipped masks, plans and networks; without brain-t1, the energy oracle is left out and said to be."""
    monkeypatch.setenv("SENSEWISE_DATA", str(tmp_path))
    results = EXPERIMENT.run(Setup("cpu", range(1)))
    found = {
        (row.method, row.reconstructor, row.budget): row.mean
        for row in results.rows
        if row.metric == "nmse" and row.form in (None, "plan")
    }
    assert {name for name, _, _ in found} >= {"static-search", "loupe", "sequential-value", "acs-random"}
    for reconstructor in ("unet-a", "unet-b", "cs-wavelet"):
        better = found["acs-variable-density", reconstructor, 0.25]
        assert better < found["acs-variable-density", "zero-filled", 0.25]
    assert found["static-search", "unet-b", 0.25] > found["static-search", "unet-b", 0.75]
    assert any("energy-oracle was left out" in note for note in results.notes)
    assert len(EXPERIMENT.section(results).tables) == 4
