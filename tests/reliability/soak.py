"""Many clients at once for some time: what they are answered, how long the page takes, what memory is left in use."""

import asyncio
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

POLICIES = ("greedy", "random", "probe-greedy", "spread-variance-greedy")


@dataclass
class Report:
    """What a soak found.

    Attributes:
        statuses: how often each was answered.
        page_seconds: of every request for `/`, in order of length.
        before, after: resident memory of the server in bytes.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    page_seconds: list[float] = field(default_factory=list)
    before: int = 0
    after: int = 0

    @property
    def percentile_99(self) -> float:
        return sorted(self.page_seconds)[int(0.99 * len(self.page_seconds))]

    def __str__(self) -> str:
        return (
            f"{dict(self.statuses)}, / {len(self.page_seconds)} times: median "
            f"{1000 * sorted(self.page_seconds)[len(self.page_seconds) // 2]:.0f} ms, 99th percentile "
            f"{1000 * self.percentile_99:.0f} ms; memory {self.before / 1e6:.0f} -> {self.after / 1e6:.0f} MB"
        )


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """The page as a user starts it: its address and process."""
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    command = [sys.executable, "-m", "sensewise", "serve", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://[\d.:]+", server.stdout.readline())
            assert found is not None
            wait_until_ready(found.group())
            yield found.group(), server.pid
        finally:
            server.terminate()
            server.wait(30)


def wait_until_ready(address: str) -> None:
    for _ in range(300):
        try:
            httpx.get(address)
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the server did not start")


def memory(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def order(rng: random.Random) -> dict[str, object]:
    prior = rng.choice(("mnist", "mnist", "cifar10", "any-grey"))
    steps = rng.choice((2, 4, 8, 16))
    if prior == "any-grey":
        return {"prior": prior, "image": 5, "budget": 0.05, "steps": 4, "policy": "random", "seed": rng.randrange(100)}
    return {"prior": prior, "image": rng.randrange(100), "budget": 0.1, "steps": steps, "policy": rng.choice(POLICIES)}


async def client(address: str, seed: int, until: float, report: Report) -> None:
    """Orders one after another; some clients lose patience, and all wait when they are asked to."""
    rng = random.Random(seed)
    async with httpx.AsyncClient(base_url=address) as session:
        while time.monotonic() < until:
            try:
                patience = 0.5 if rng.random() < 0.05 else 120
                path = rng.choice(("/api/acquire", "/api/stream"))
                answer = await session.post(path, json=order(rng), timeout=patience)
            except httpx.ReadTimeout:
                continue
            report.statuses[answer.status_code] += 1
            if answer.status_code == 503:
                await asyncio.sleep(float(answer.headers["retry-after"]) * rng.uniform(0.5, 1.5))


async def look_at_page(address: str, until: float, report: Report) -> None:
    async with httpx.AsyncClient(base_url=address) as session:
        while time.monotonic() < until:
            begun = time.monotonic()
            answer = await session.get("/", timeout=30)
            report.page_seconds.append(time.monotonic() - begun)
            report.statuses[answer.status_code] += answer.status_code != 200
            await asyncio.sleep(0.05)


async def soak(address: str, pid: int, clients: int, seconds: float) -> Report:
    report = Report()
    for n in range(80):  # every prior is loaded, and the kept recordings are as many as they may be
        httpx.post(f"{address}/api/acquire", json=order(random.Random(-1 - n)), timeout=60)
    report.before = memory(pid)
    until = time.monotonic() + seconds
    people = [client(address, seed, until, report) for seed in range(clients)]
    await asyncio.gather(look_at_page(address, until, report), *people)
    await asyncio.sleep(1)
    report.after = memory(pid)
    return report


if __name__ == "__main__":
    with served() as (address, pid):
        print(asyncio.run(soak(address, pid, int(sys.argv[1]), float(sys.argv[2]))))
