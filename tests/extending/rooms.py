"""A data set of one's own: depth images of small rooms, 16 x 16 with 4 levels; every room that there can be."""

from itertools import product

import torch

from sensewise.data.scenes import Dataset, Scenes

SIDE, LEVELS = 16, 4


def room(wall: int, top: int, left: int, height: int, width: int) -> torch.Tensor:
    """A floor that comes nearer from top to bottom, a wall above it, and a box in front; tokens `(1, 16, 16)`."""
    depth = 2 + (torch.arange(SIDE) >= 10).long().view(SIDE, 1).expand(SIDE, SIDE).clone()  # 2 = far floor, 3 = near
    depth[:wall] = 1
    depth[top : top + height, left : left + width] = 4
    return depth.unsqueeze(0)


def load(split: str, root: object = None) -> Scenes:
    """Every third room is for testing; nothing has to be downloaded."""
    sizes = product((3, 6), (5, 8, 11), range(0, 12, 2), (3, 5), (3, 5))
    rooms = torch.stack([room(*size) for size in sizes]).byte()
    test = torch.arange(len(rooms)) % 3 == 0
    return Scenes("rooms", split, rooms[test if split == "test" else ~test], num_states=LEVELS, licence="CC0")


ROOMS = Dataset(name="rooms", title="Small rooms", licence="CC0", load=load)
