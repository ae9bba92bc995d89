"""Ten lines: which pixels to read, one after the other, and what the whole picture is."""

import sensewise
from sensewise.data import bundled_mnist

prior = sensewise.load_prior("mnist")
digit, label = bundled_mnist()[slice(0, 1)]
session = sensewise.Session(sensewise.Greedy(prior), prior.shape, budget=0.1, steps=16, label=int(label))
while (pixels := session.ask()) is not None:
    session.tell(digit[0, 0][pixels[:, 0], pixels[:, 1]])
wrong = int((session.reconstruction != digit[0]).sum())
print(f"{int(session.mask.sum())} of {session.mask.numel()} pixels read, {wrong} wrong in the reconstruction")
