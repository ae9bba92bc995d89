"""Measured lines as an ISMRMRD file, as a scanner's software hands them on (needs ismrmrd, the extra `ismrmrd`)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sensewise.errors import ConfigError, DataError
from sensewise.files import atomic

_SPACE = (
    "<matrixSize><x>{0}</x><y>{1}</y><z>1</z></matrixSize><fieldOfView_mm><x>{2}</x><y>{3}</y><z>5</z></fieldOfView_mm>"
)
_HEADER = (
    '<?xml version="1.0"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><experimentalConditions>'
    "<H1resonanceFrequency_Hz>123000000</H1resonanceFrequency_Hz></experimentalConditions><encoding><encodedSpace>"
    "{encoded}</encodedSpace><reconSpace>{drawn}</reconSpace><encodingLimits><kspace_encoding_step_1><minimum>{first}"
    "</minimum><maximum>{last}</maximum><center>{middle}</center></kspace_encoding_step_1></encodingLimits>"
    "<trajectory>cartesian</trajectory></encoding></ismrmrdHeader>"
)


def write_scan(
    path: Path, numbers: Sequence[int], samples: np.ndarray, *, full: int, middle: int, oversampling: int = 1
) -> None:
    """One acquisition per line.

    Args:
        path: of the file; one that is there is replaced.
        numbers: of the lines, in the order in which they were measured.
        samples: complex, lines x coils x samples.
        full: lines of the full matrix.
        middle: the number of the line through the middle of k-space.
        oversampling: of the readout.
    """
    try:
        import ismrmrd
    except ImportError as error:
        raise ConfigError("ISMRMRD files need a package that is not installed: install the extra `ismrmrd`") from error
    count, coils, length = samples.shape
    if count != len(numbers):
        raise DataError(f"{count} lines were measured, but {len(numbers)} have a number")
    drawn, fov = length // oversampling, 250
    header = _HEADER.format(
        encoded=_SPACE.format(length, full, fov * oversampling, fov),
        drawn=_SPACE.format(drawn, full, fov, fov),
        first=middle - full // 2,
        last=middle - full // 2 + full - 1,
        middle=middle,
    )
    with atomic(path) as temporary:
        file = ismrmrd.Dataset(str(temporary), "dataset", create_if_needed=True)
        file.write_xml_header(header.encode())
        for place, number in enumerate(numbers):
            one = ismrmrd.Acquisition()
            one.resize(length, coils)
            one.center_sample, one.scan_counter = length // 2, place
            one.idx.kspace_encode_step_1 = number
            one.data[:] = samples[place]
            file.append_acquisition(one)
        file.close()
