"""A sensor in another process: the camera holds the picture, sensewise sees only the pixels that it asks for.

The camera could as well be a microscope behind a serial port: it knows nothing of sensewise. All that crosses the wire
is a list of pixels one way and their readings the other way, one line of JSON each.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def camera(scene: np.ndarray) -> None:
    """The other process: answers each line of pixels with a line of intensities in [0, 1]."""
    for line in sys.stdin:
        pixels = np.array(json.loads(line))
        print(json.dumps(scene[pixels[:, 0], pixels[:, 1]].tolist()), flush=True)


def measure(path: Path) -> None:
    """This process: asks, reads, tells, until the budget is spent."""
    import sensewise
    from sensewise.policies.starts import GridProbe

    prior = sensewise.load_prior("mnist")
    session = sensewise.Session(sensewise.Greedy(prior), prior.shape, budget=0.1, steps=16, start=GridProbe())
    command = [sys.executable, __file__, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while (pixels := session.ask()) is not None:
            print(json.dumps(pixels.tolist()), file=process.stdin, flush=True)
            session.tell(json.loads(process.stdout.readline()))
            print(f"{int(session.mask.sum()):4d} pixels read, {float(session.entropy.sum()):7.1f} nats left")
        process.stdin.close()
    for row in session.reconstruction[0][2:-2:2]:
        print("".join("#" if token == 2 else "." for token in row))


def main(number: int = 4) -> None:
    """Put a digit before the camera, then measure it."""
    from sensewise.data import bundled_mnist

    with tempfile.TemporaryDirectory() as folder:
        tokens, _ = bundled_mnist()[slice(number, number + 1)]
        np.save(Path(folder) / "scene.npy", tokens[0, 0].numpy() - 1.0)
        measure(Path(folder) / "scene.npy")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        camera(np.load(sys.argv[1], allow_pickle=False))
    else:
        main()
