"""A sensor in another process: the camera holds the picture, sensewise sees only the pixels that it asks for.

The camera could as well be a microscope behind a serial port. All that crosses the wire is a list of pixels one way and
their readings the other way, one line of JSON each.
"""

import json
import subprocess
import sys

import torch

import sensewise
from sensewise.data import bundled_mnist


def camera(number: int) -> None:
    """The other process: answers each line of pixels with a line of intensities in [0, 1]."""
    tokens, _ = bundled_mnist()[slice(number, number + 1)]
    scene = sensewise.dequantize(tokens, 2)[0, 0]
    for line in sys.stdin:
        pixels = torch.tensor(json.loads(line))
        print(json.dumps(scene[pixels[:, 0], pixels[:, 1]].tolist()), flush=True)


def main(number: int = 4) -> None:
    prior = sensewise.load_prior("mnist")
    command = [sys.executable, __file__, "camera", str(number)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        session = sensewise.Session(prior, budget=0.1, steps=16, start="grid")
        while (pixels := session.ask()) is not None:
            print(json.dumps(pixels.tolist()), file=process.stdin, flush=True)
            readings = torch.tensor(json.loads(process.stdout.readline()))
            session.tell(sensewise.quantize(readings, prior.num_states))
            print(f"{int(session.mask.sum()):4d} pixels read, {float(session.entropy.sum()):7.1f} nats left")
        process.stdin.close()
    for row in session.reconstruction[0][2:-2:2]:
        print("".join("#" if token == 2 else "." for token in row))


if __name__ == "__main__":
    if sys.argv[1:2] == ["camera"]:
        camera(int(sys.argv[2]))
    else:
        main()
