import pytest
from matplotlib.colors import is_color_like

from sensewise.report.methods import METHODS, dash_of, info, name_of, row_name


@pytest.mark.parametrize(
    ("method", "steps", "name"),
    [
        ("random", 1, "random"),
        ("random", 16, "random"),
        ("label-greedy", 1, "label-greedy, 1 step"),
        ("probe-greedy", 16, "probe + greedy, 16 steps"),
        ("one-shot-observed-bernoulli", 1, "one-shot, observed-pixel surrogate, plain draw"),
        ("oracle-one-step", 16, "one-step oracle (ceiling), 16 steps"),
    ],
)
def test_names(method, steps, name):
    assert name_of(method, steps) == name


def test_what_qualifies_a_row_is_in_its_name(row):
    assert row_name(row(method="sequential-value", form="plan")) == "sequential, value (plan), 1 step"
    shown = row_name(row(method="learned-adaptive", scout="another slice's"))
    assert shown == "learned policy, adaptive (another slice's scout)"


def test_methods_that_are_not_known_have_their_name_and_a_colour_of_their_own():
    mine, yours = info("mine"), info("yours")
    assert mine.label == "mine"
    assert mine.colour != yours.colour
    assert info("mine") is mine
    assert name_of("mine", 4) == "mine, 4 steps"
    assert mine.competes


def test_the_registry_is_complete():
    for name, found in METHODS.items():
        assert is_color_like(found.colour), name
        assert found.label, name
        assert found.on_budget is not name.endswith("-bernoulli"), name
    labels = [found.label for found in METHODS.values()]
    assert len(labels) == len(set(labels))


def test_line_styles_say_how_many_steps():
    assert [dash_of("label-greedy", steps) for steps in (4, 16, 32)] == ["--", "-", ":"]
    assert dash_of("random", 1) == "-"
    assert dash_of("one-shot-bernoulli", 1) == ":"
