import pytest

from sensewise.report.metrics import METRICS, best_of, compared, densities, number, paper_value, pick, with_spread


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (46.71, "46.7"),
        (5.634, "5.63"),
        (0.19, "0.190"),
        (0.0123, "0.0123"),
        (0.05, "0.0500"),
        (0.035156, "0.0352"),
        (0.000123, "0.00012"),
        (-6.5, "-6.50"),
        (11207.1, "11,207"),
        (1e-9, "1e-09"),
    ],
)
def test_three_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [("psnr", 26.8149, "26.81"), ("ssim", 0.97531, "97.53"), ("psnr-gain", 0.62, "+0.62"), ("density", 0.1, "0.100")],
)
def test_a_metric_has_its_own_digits(metric, value, text):
    assert number(value, metric) == text


@pytest.mark.parametrize(
    ("mean", "spread", "text"),
    [
        (53.51, 0.284, "53.5 ± 0.3"),
        (0.0395, 0.00513, "0.0395 ± 0.0051"),
        (0.01802, 0.00011, "0.0180 ± 0.0001"),
        (13.33, 0.0, "13.3"),
        (13.33, None, "13.3"),
    ],
)
def test_a_spread_has_the_decimals_of_its_mean(row, mean, spread, text):
    assert with_spread(row(mean=mean, sd=spread)) == text


def test_the_papers_value_keeps_its_digits(row):
    assert [paper_value(row(metric="psnr", paper=value)) for value in (20.0, 20.14, None)] == ["20.0", "20.14", None]
    assert paper_value(row(metric="fewer-errors", paper=0.124)) == "12.4"


@pytest.mark.parametrize(
    ("metric", "means", "best"),
    [
        ("errors", (2.0, 1.0, 3.0), ["one-shot"]),
        ("psnr", (2.0, 1.0, 3.0), ["loupe"]),
        ("errors", (1.0, 1.0, 3.0), ["random", "one-shot"]),
        ("errors", (None, 2.0, 3.0), ["one-shot"]),
        ("informative", (2.0, 1.0, 3.0), []),
    ],
)
def test_the_best_follows_the_direction_of_the_metric(row, metric, means, best):
    names = ("random", "one-shot", "loupe")
    rows = [row(method=name, metric=metric, mean=mean) for name, mean in zip(names, means, strict=True)]
    assert [found.method for found in best_of(rows)] == best


def test_plain_draws_and_ceilings_are_never_the_best(row):
    draws = {"random": 20.0, "one-shot": 21.0, "one-shot-bernoulli": 22.0}
    assert [r.method for r in best_of([row(method=m, metric="psnr", mean=v) for m, v in draws.items()])] == ["one-shot"]
    slices = {"static-search": 0.02, "oracle-one-step": 0.01}
    assert [r.method for r in best_of([row(method=m, metric="nmse", mean=v) for m, v in slices.items()])] == [
        "static-search"
    ]


def test_nmse_within_two_deviations_of_the_lowest_is_the_best_as_well(row):
    values = {"static-search": 0.0180, "loupe": 0.0181, "energy-oracle": 0.0183}
    rows = [row(method=m, metric="nmse", mean=v) for m, v in values.items()]
    assert [r.method for r in best_of(rows)] == ["static-search"]
    rows.append(row(method="acs-variable-density", metric="nmse", mean=0.02, sd=0.0001))
    assert [r.method for r in best_of(rows)] == ["static-search", "loupe"]


def test_gains(row):
    base = [row(metric="psnr", mean=20.0, paper=19.0), row(metric="nmse", mean=0.04), row(mean=30.0)]
    ours = [
        row(method="one-shot", metric="psnr", mean=20.5, paper=20.2),
        row(method="one-shot", metric="nmse", mean=0.03),
        row(method="one-shot", mean=10.0),
        row(method="one-shot", mean=10.0, budget=0.2),
    ]
    found = compared(ours, base)
    assert [(gain.metric, gain.mean) for gain in found] == [
        ("psnr-gain", pytest.approx(0.5)),
        ("nmse-gain", pytest.approx(25.0)),
        ("errors-ratio", pytest.approx(3.0)),
    ]
    assert [gain.paper for gain in found] == [1.2, None, None]


def test_gains_are_matched_by_further_columns(row):
    base = [row(metric="nmse", mean=0.04, reconstructor="zero-filled"), row(metric="nmse", method="loupe", mean=0.03)]
    ours = [row(metric="nmse", mean=0.02, reconstructor="unet-b")]
    assert [gain.mean for gain in compared(ours, base, "method", "steps")] == [pytest.approx(50.0)]


def test_densities_and_pick(row):
    rows = [row(density=0.128), row(method="one-shot", density=0.1), row(method="loupe")]
    assert [(r.metric, r.mean) for r in densities(pick(rows, method=("random", "one-shot")))] == [
        ("density", 0.128),
        ("density", 0.1),
    ]
    assert pick(rows, method="loupe", budget=0.2) == []


def test_every_second_metric_is_known():
    assert {found.beside for found in METRICS.values()} <= {None, *METRICS}
