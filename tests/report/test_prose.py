import pytest

from sensewise.errors import DataError
from sensewise.report.prose import fill, parse


def filled(definition, rows, before="?"):
    text = f"It is <!--=it-->{before}<!--=--> here.\n\n<!-- numbers\nit = {definition}\n-->\n"
    return fill(text, {"study": rows}).split("-->")[1].removesuffix("<!--=")


@pytest.fixture
def study(row):
    rows = [row(budget=s, mean=v, sd=1.0, paper=p) for s, v, p in ((0.3, 18.0, 24.0), (0.1, 40.0, 46.7))]
    rows += [row(method="one-shot", budget=s, mean=v, density=s + 0.01) for s, v in ((0.1, 10.0), (0.3, 0.5))]
    rows += [row(metric="psnr", mean=20.125, prior=name) for name in ("on-policy", "random-masks")]
    return [*rows, row(method="learned", scout="another slice's", mean=3.0), row(method="learned", mean=4.0)]


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ("study errors random/1", "40.0 / 18.0"),
        ("study errors random s=0.3", "18.0"),
        ("study errors random/1 as .2f", "40.00 / 18.00"),
        ("study errors random/1 as cells", "40.0 ± 1.0 | 18.0 ± 1.0"),
        ("study errors random/1 field=paper", "46.7 / 24.0"),
        ("study errors one-shot/1 field=density", "0.110 / 0.310"),
        ("study errors random/1 field=images s=0.1", "2"),
        ("study errors one-shot/1 times random/1", "4.00 / 36.0"),
        ("study errors one-shot/1 below random/1", "75.0 / 97.2"),
        ("study errors one-shot/1 below random/1 as cells", "75.0 | 97.2"),
        ("study errors one-shot/1 deviations random/1", "30 / 18"),
        ("study errors random/1 field=paper minus field=mean", "6.70 / 6.00"),
        ("study errors random,one-shot as range", "0.500 to 40.0"),
        ("study errors random/1 as mean", "29.0"),
        ("study errors one-shot/1 below random/1 as mean .2f", "86.11"),
        ("study psnr random/1 prior=on-policy", "20.12"),
        ("study psnr random/1 prior=on-policy minus prior=random-masks", "0.00"),
        ("""study errors learned scout="another slice's" """, "3.00"),
        ("study errors learned scout=None", "4.00"),
    ],
)
def test_numbers(study, definition, text):
    assert filled(definition, study) == text


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("study errors nobody/1", "no row"),
        ("study errors", "an experiment, a metric and a method"),
        ("study errors random/1 colour=red", "no column 'colour'"),
        ("study errors learned", "name scout"),
        ("study errors learned s=0.1 minus random/2", "0 rows to compare with"),
        ("study errors one-shot/1 field=paper", "paper has no value"),
        ("study errors random/1 as .2q", "format"),
    ],
)
def test_a_definition_that_means_nothing_is_refused_with_its_name(study, definition, message):
    with pytest.raises(DataError, match=rf"the text: it = .*{message}"):
        filled(definition, study)


def test_numbers_without_results_stay(study):
    assert filled("other errors random/1", study, before="39.4") == "39.4"


def test_filling_twice_changes_nothing(study):
    text = "It is <!--=it-->old<!--=-->.\n<!-- numbers\nit = study errors random/1\n-->\n"
    once = fill(text, {"study": study})
    assert "<!--=it-->40.0 / 18.0<!--=-->" in once
    assert fill(once, {"study": study}) == once


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a <!--=it-->1<!--=-->", "it is marked, but not defined"),
        ("a\n<!-- numbers\nit = study errors random/1\n-->", "it is defined, but not marked"),
        ("a\n<!-- numbers\nit study\n-->", "is not `NAME = DEFINITION`"),
        ("<!--=it-->1<!--=-->\n<!-- numbers\nit = study errors random/1\n-->", "begins a line"),
        ("- <!--=it-->1<!--=-->\n<!-- numbers\nit = study errors random/1\n-->", "begins a line"),
    ],
)
def test_marks_and_definitions_belong_together(study, text, message):
    with pytest.raises(DataError, match=message):
        fill(text, {"study": study}, "page.md")


def test_text_without_marks_is_left_alone():
    assert fill("Nothing here.\n", {}) == "Nothing here.\n"


def test_a_definition_is_taken_apart():
    number = parse("study psnr greedy/16 prior=on-policy s=0.1,0.3 minus random/1 as range .2f")
    assert number.experiment == "study"
    assert number.columns == {"metric": ["psnr"], "method": ["greedy"], "steps": ["16"], "prior": ["on-policy"]} | {
        "budget": ["0.1", "0.3"]
    }
    assert (number.operation, number.changes) == ("minus", {"method": ["random"], "steps": ["1"]})
    assert number.form == ["range", ".2f"]
