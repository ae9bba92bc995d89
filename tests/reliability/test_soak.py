"""100 clients for 3 minutes."""

import asyncio

import pytest

from reliability.soak import served, soak


@pytest.mark.slow
def test_a_hundred_clients_for_three_minutes():
    with served() as (address, pid):
        report = asyncio.run(soak(address, pid, clients=100, seconds=180))
    print(report)
    assert set(report.statuses) <= {200, 503}
    assert report.statuses[200] > 100
    assert report.percentile_99 < 0.2
    assert report.after < 1.2 * report.before
