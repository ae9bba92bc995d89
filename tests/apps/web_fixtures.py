"""Tiny priors with random weights, as bundled ones: digits (32 x 32, two levels), colours, grey pictures."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from sensewise import hub


def tiny_config(
    data: str, shape: tuple[int, int, int], states: int, labels: int | None, widths: tuple[int, ...] = (8, 8)
) -> dict[str, Any]:
    model = {
        "shape": list(shape),
        "num_states": states,
        "num_labels": labels,
        "network": "unet",
        "widths": list(widths),
        "blocks": [1] * len(widths),
        "patch": 2,
        "embedding": 16,
    }
    return {"kind": "prior", "data": data, "model": model, "training": {}, "init": None}


def grey_config() -> dict[str, Any]:
    model = {"network": "any-size", "num_states": 256, "widths": [8, 8], "blocks": [1, 1], "embedding": 8}
    return {"kind": "prior", "data": "pictures", "model": model, "training": {}, "init": None}


def write_assets(folder: Path) -> Path:
    """The priors, and what says that models for slices are there."""
    (folder / "mri").mkdir(parents=True)
    for name, config in {
        "any-grey": grey_config(),
        "mnist": tiny_config("mnist", (1, 32, 32), 2, 10),
        "colours": tiny_config("colours", (3, 8, 8), 8, None),
    }.items():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            hub.save(folder / name, config, hub.build(config, "prior"))
    return folder


@contextmanager
def running(app: Any) -> Iterator[str]:
    """A real server in a thread; gives its address."""
    from sensewise.apps.web.server import listen, make_server

    listener = listen()
    server = make_server(app, log_level="critical")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
