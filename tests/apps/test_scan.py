"""`sensewise scan export`: a mask to a sequence and a picture of its k-space."""

import numpy as np
import pytest

from sensewise.data.lines import ScanLines

pytest.importorskip("pypulseq")


def test_scan_export(sensewise, tmp_path):
    ScanLines((8, 7, 9, 2), full=16, middle=8).write(tmp_path / "mask.txt")
    code, out, _ = sensewise("scan", "export", "mask.txt", "--out", "my.seq", "--samples", 32)
    assert code == 0
    assert "4 of 16 lines in 0.06 s, read back and checked" in " ".join(out.split())
    assert (tmp_path / "my.png").stat().st_size > 1000
    mask = np.zeros(16, bool)
    mask[[2, 8]] = True
    np.save(tmp_path / "mask.npy", mask)
    assert sensewise("scan", "export", "mask.npy", "--samples", 32)[0] == 0
    (tmp_path / "plain.txt").write_text("3\n4\n")
    for arguments, message in (
        (["plain.txt"], "does not say how many lines the full matrix has"),
        (["none.txt"], "does not exist"),
        (["mask.txt", "--out", "my.txt"], "a sequence is a .seq file"),
        (["mask.txt", "--te", "1"], "too short"),
    ):
        code, _, err = sensewise("scan", "export", *arguments)
        assert code == 2
        assert message in " ".join(err.split())
