"""Chosen lines as a Pulseq sequence, which MR scanners of several makers play (needs pypulseq, the extra `pulseq`).

A spoiled gradient echo, one excitation per line, in the order of the list. What is written is read back, and the
k-space that it traverses is compared with the lines that were asked for. Layton et al., "Pulseq", 2017.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sensewise.data.lines import ScanLines
from sensewise.errors import ConfigError, OutputError
from sensewise.files import atomic

RF_SPOILING = 117  # degrees: the increment of the increment of the phase


@dataclass(frozen=True)
class GradientEcho:
    """How each line is measured.

    Attributes:
        samples: along the readout, without oversampling.
        oversampling: of the readout.
        fov: field of view along both axes, in metres.
        thickness: of the slice, in metres.
        flip: angle of the excitation, in degrees.
        te: echo time, in seconds.
        tr: repetition time, in seconds.
        dwell: of one sample without oversampling, in seconds.
    """

    samples: int = 128
    oversampling: int = 1
    fov: float = 0.25
    thickness: float = 0.005
    flip: float = 10.0
    te: float = 0.006
    tr: float = 0.015
    dwell: float = 20e-6

    def __post_init__(self) -> None:
        if not 16 <= self.samples <= 1024 or self.oversampling not in (1, 2):
            raise ConfigError("a readout has 16 to 1024 samples, once or twice oversampled")
        if not (0.01 <= self.fov <= 1 and 0 < self.flip <= 90 and 0 < self.te < self.tr <= 10):
            raise ConfigError("fov is 0.01 to 1 m, flip 0 to 90 degrees, and 0 < te < tr <= 10 s")


@dataclass(frozen=True)
class Trajectory:
    """The k-space of a sequence, as read back from its file.

    Attributes:
        kx: along the readout, in cycles per field of view, with shape `(lines, samples)`.
        ky: along the phase-encode direction, the same.
        seconds: how long it plays.
    """

    kx: np.ndarray
    ky: np.ndarray
    seconds: float


def _pypulseq() -> Any:
    try:
        import pypulseq
    except ImportError as error:
        raise ConfigError("sequences need a package that is not installed: install the extra `pulseq`") from error
    return pypulseq


def write_sequence(lines: ScanLines, path: Path, echo: GradientEcho | None = None) -> Trajectory:
    """Write lines as a `.seq` file, read it back and check that it plays exactly those, in their order."""
    echo = echo or GradientEcho()
    if path.suffix != ".seq":
        raise ConfigError(f"a sequence is a .seq file, not {path.name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pypulseq warns about what it will change in later versions
        sequence = _sequence(lines, echo)
        with atomic(path) as temporary:
            sequence.write(str(temporary), create_signature=True)
            found = read_trajectory(temporary, echo)
            check(found, lines)
    return found


def check(found: Trajectory, lines: ScanLines) -> None:
    """Refuse a trajectory that is not those lines in their order."""
    wanted = np.array(lines.numbers) - lines.middle
    played = found.ky.mean(1)
    if len(played) != len(wanted) or np.abs(found.ky - wanted[:, None]).max() > 0.01:
        raise OutputError("the sequence does not play the lines that were asked for: nothing was written")


def read_trajectory(path: Path, echo: GradientEcho) -> Trajectory:
    """The k-space that a `.seq` file traverses."""
    pp = _pypulseq()
    sequence = pp.Sequence()
    sequence.read(str(path))
    good, report = sequence.check_timing()
    if not good:
        raise OutputError(f"the timing of the sequence does not fit the scanner's raster: {report[0]}")
    kspace = sequence.calculate_kspace()[0] * echo.fov  # (3, samples in all)
    kx, ky = (one.reshape(-1, echo.samples * echo.oversampling) for one in kspace[:2])
    return Trajectory(kx, ky, float(sequence.duration()[0]))


def _sequence(lines: ScanLines, echo: GradientEcho) -> Any:
    pp = _pypulseq()
    system = pp.Opts(
        max_grad=28,
        grad_unit="mT/m",
        max_slew=120,
        slew_unit="T/m/s",
        rf_ringdown_time=30e-6,
        rf_dead_time=100e-6,
        adc_dead_time=10e-6,
    )
    step, count = 1 / echo.fov, echo.samples * echo.oversampling
    rf, slice_gradient, rephase = pp.make_sinc_pulse(
        flip_angle=np.deg2rad(echo.flip),
        duration=2e-3,
        slice_thickness=echo.thickness,
        apodization=0.42,
        time_bw_product=4,
        delay=system.rf_dead_time,
        system=system,
        return_gz=True,
        use="excitation",
    )
    flat = _on_raster(echo.samples * echo.dwell, system.grad_raster_time)
    readout = pp.make_trapezoid("x", flat_area=echo.samples * step, flat_time=flat, system=system)
    adc = pp.make_adc(count, duration=flat, delay=readout.rise_time, system=system)
    # zero frequency is sample `count // 2`, half a sample after the middle of the readout
    centre = readout.area / 2 + step / (2 * echo.oversampling)
    before = pp.make_trapezoid("x", area=-centre, duration=1e-3, system=system)
    highest = max(abs(number - lines.middle) for number in (*lines.numbers, lines.middle + lines.full // 2)) * step
    phase = pp.make_trapezoid("y", area=highest, duration=1e-3, system=system)
    spoil_x = pp.make_trapezoid("x", area=2 * echo.samples * step, system=system)
    spoil_z = pp.make_trapezoid("z", area=4 / echo.thickness, system=system)
    excited = pp.calc_duration(rf, slice_gradient) - (rf.delay + pp.calc_rf_center(rf)[0])
    prepared = pp.calc_duration(before, phase, rephase)
    echo_delay = _on_raster(echo.te - excited - prepared - pp.calc_duration(readout) / 2, system.grad_raster_time)
    used = pp.calc_duration(rf, slice_gradient) + prepared + echo_delay + pp.calc_duration(readout)
    after = pp.calc_duration(spoil_x, spoil_z, phase)
    repeat_delay = _on_raster(echo.tr - used - after, system.grad_raster_time)
    if echo_delay < 0 or repeat_delay < 0:
        raise ConfigError(
            f"te {echo.te * 1e3:g} ms and tr {echo.tr * 1e3:g} ms are too short for {echo.samples} samples"
        )
    sequence = pp.Sequence(system)
    angle = increment = 0.0
    for number in lines.numbers:
        rf.phase_offset = adc.phase_offset = np.deg2rad(angle)
        increment = (increment + RF_SPOILING) % 360
        angle = (angle + increment) % 360
        share = (number - lines.middle) * step / highest
        sequence.add_block(rf, slice_gradient)
        sequence.add_block(before, pp.scale_grad(phase, share), rephase)
        if echo_delay:
            sequence.add_block(pp.make_delay(echo_delay))
        sequence.add_block(readout, adc, pp.make_label(type="SET", label="LIN", value=int(number)))
        sequence.add_block(spoil_x, pp.scale_grad(phase, -share), spoil_z)
        if repeat_delay:
            sequence.add_block(pp.make_delay(repeat_delay))
    sequence.set_definition("FOV", [echo.fov, echo.fov, echo.thickness])
    sequence.set_definition("Name", "sensewise_gre")
    sequence.set_definition("MatrixSize", [echo.samples, lines.full, 1])
    return sequence


def _on_raster(seconds: float, raster: float) -> float:
    return round(seconds / raster) * raster
