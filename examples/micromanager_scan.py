"""An adaptive scan with Micro-Manager: a simulated stage whose camera shows a window of a large sample.

    python examples/micromanager_scan.py [SIDE]

The sample is 8 SIDE pixels wide (SIDE is 48 by default), and the camera sees 8 x 8 of them at a time: SIDE x SIDE
fields of view would cover it. A tenth of them are visited, and the prior fills in how bright the others are. Needs the
extra `micromanager`.
"""

import sys

import numpy as np
import torch
from pymmcore_plus.experimental.unicore import ShutterDevice, SimpleCameraDevice, UniMMCore, XYStageDevice

import sensewise
from sensewise.evaluate.method import reading_methods
from sensewise.instruments.micromanager import AdaptiveEvents
from sensewise.instruments.scan import Scan
from sensewise.metrics import psnr

SIDE = int(sys.argv[1]) if len(sys.argv) > 1 else 48
WINDOW, WHITE = 8, 4095  # pixels of 1 um; a camera of 12 bits


def cells(side: int) -> np.ndarray:
    """A sample with bright round cells on a dark, uneven ground, `(side, side)` of 12 bits."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:side, :side] / side
    sample = 0.1 + 0.1 * x
    for _ in range(14):
        row, column, radius, light = *random.uniform(0, 1, 2), random.uniform(0.03, 0.1), random.uniform(0.3, 0.8)
        distance = np.hypot(y - row, x - column) / radius
        sample = np.maximum(sample, light / (1 + np.exp(12 * (distance - 1))))
    return (WHITE * sample).astype(np.uint16)


class Stage(XYStageDevice):
    """A stage that is at once where it should be."""

    place = (0.0, 0.0)

    def set_position_um(self, x, y):
        self.place = (x, y)

    def get_position_um(self):
        return self.place

    def home(self):
        self.place = (0.0, 0.0)

    def stop(self):
        pass

    def set_origin_x(self):
        pass

    def set_origin_y(self):
        pass


class Shutter(ShutterDevice):
    """A shutter that is always open."""

    def get_open(self):
        return True

    def set_open(self, open):
        pass


class Camera(SimpleCameraDevice):
    """A camera that sees the part of the sample above which the stage has moved it."""

    def __init__(self, sample, stage):
        super().__init__()
        self.sample, self.stage, self.exposure = sample, stage, 1.0

    def get_exposure(self):
        return self.exposure

    def set_exposure(self, exposure):
        self.exposure = exposure

    def dtype(self):
        return self.sample.dtype

    def sensor_shape(self):
        return (WINDOW, WINDOW)

    def snap(self, buffer):
        left, top = (round(place) for place in self.stage.place)
        buffer[:] = self.sample[top : top + WINDOW, left : left + WINDOW]
        return {}


sample, stage, core = cells(SIDE * WINDOW), Stage(), UniMMCore()
core.loadPyDevice("Stage", stage)
core.loadPyDevice("Camera", Camera(sample, stage))
core.loadPyDevice("Shutter", Shutter())
core.initializeAllDevices()
core.setXYStageDevice("Stage")
core.setCameraDevice("Camera")
core.setShutterDevice("Shutter")

method = reading_methods(sensewise.load_prior("any-grey"), 12)["spread-variance-greedy"]
session = sensewise.Session(method.policy, (1, SIDE, SIDE), 0.1, steps=12, choose=method.choose)
corners = np.arange(SIDE) * WINDOW
AdaptiveEvents(Scan(session, corners, corners, high=WHITE)).run(core)

fields = sample.reshape(SIDE, WINDOW, SIDE, WINDOW).mean((1, 3)) / WHITE
reached = float(psnr(session.mean[None], torch.from_numpy(fields).float()[None, None]))
print(f"{int(session.mask.sum())} of {SIDE**2} fields of view: {reached:.1f} dB, {session.expected_psnr:.1f} expected")
