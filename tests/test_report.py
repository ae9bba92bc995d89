import json
import re
import shutil

import pytest
from rich.console import Console

from sensewise.errors import DataError
from sensewise.experiments.results import read_results
from sensewise.report import SECTIONS, html_table, markdown_table, terminal_table, write_demo, write_report
from sensewise.tables import grid, number, ours_of, paper_of, with_spread


@pytest.fixture
def rows(tiny_results):
    found = read_results(tiny_results)["rows"]
    return [line for line in found if line["prior"] == "on-policy"]


def assert_self_contained(page):
    assert "Traceback" not in page
    links = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"'\s>)]{1,80})""", page)
    assert links
    assert all(link.startswith("data:image/") for link in links)
    assert not re.search(r"<script|<link|@import", page)


def test_write_report(tiny_results, tmp_path):
    assert write_report(tiny_results.parent, tmp_path / "docs", tmp_path / "report.html") == sorted(
        set(SECTIONS) - {"mnist-sequential"}
    )
    markdown = (tmp_path / "docs" / "results.md").read_text()
    for name in re.findall(r"\]\((figures/[^)]+)\)", markdown):
        assert (tmp_path / "docs" / name).stat().st_size > 100
    assert markdown.count("figures/") == 4
    assert "label-greedy, 16 steps" in markdown
    assert "paper 5.63" in markdown
    assert "A note." in markdown
    page = (tmp_path / "report.html").read_text()
    assert_self_contained(page)
    assert page.count("<img") == 4
    assert page.count("<table>") == 2
    assert "data:image/gif" in page


def test_write_demo(tiny_results, tmp_path):
    for suffix in (".json", ".npz"):
        shutil.copy(tiny_results.with_suffix(suffix), tmp_path / f"results{suffix}")
    content = json.loads((tmp_path / "results.json").read_text())
    content["weights"] = {"prior": "abc"}
    (tmp_path / "results.json").write_text(json.dumps(content))
    page = write_demo(tmp_path / "results.json")
    assert page == tmp_path / "report.html"
    assert_self_contained(page.read_text())
    assert "2 test digits" in page.read_text()


def test_report_without_results(tmp_path):
    with pytest.raises(DataError, match="sensewise run all"):
        write_report(tmp_path, tmp_path / "docs", tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_report_without_arrays_changes_nothing(tiny_results, tmp_path):
    shutil.copy(tiny_results, tmp_path)
    with pytest.raises(DataError, match="npz cannot be read"):
        write_report(tmp_path, tmp_path / "docs", tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["mnist-sequential.json"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (46.71, "46.7"),
        (5.634, "5.63"),
        (0.19, "0.19"),
        (0.0123, "0.0123"),
        (0.05, "0.05"),
        (0.035156, "0.0352"),
        (0.000123, "0.00012"),
    ],
)
def test_number(value, text):
    assert number(value) == text


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
def test_a_spread_has_the_decimals_of_its_mean(mean, spread, text):
    assert with_spread({"metric": "errors", "mean": mean, "sd": spread}) == text


def test_decibels_have_hundredths():
    row = {"metric": "psnr", "mean": 26.8149, "sd": 0.0123, "paper": 26.8}
    assert ours_of(row) == "26.81"
    assert with_spread(row) == "26.81 ± 0.01"
    assert paper_of(row) == "26.8"
    assert [paper_of(row | {"paper": value}) for value in (20.0, 20.14)] == ["20.0", "20.14"]


@pytest.mark.parametrize("value", [1e-5, 4e-5, 1e-9])
def test_very_small_numbers_are_still_numbers(value):
    assert float(number(value).removeprefix("<")) < 1e-3
    assert not number(value).endswith(".")


def test_tables_show_every_method_and_the_papers_values(rows):
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(terminal_table(rows, "Two digits"))
    console.file.close()
    shown = {"terminal": console.export_text(), "html": str(html_table(rows)), "markdown": markdown_table(rows)}
    for name, text in shown.items():
        for method in ("random", "variable density", "probe + greedy, 1 step", "label-greedy, 16 steps", "s = 0.05"):
            assert method in text, name
        assert "5.63" in text, name
        assert "22.9" in text, name


def test_the_best_of_each_budget_is_marked(rows):
    best = {}
    for line in rows:
        if line["metric"] == "errors":
            best[line["budget"]] = min(best.get(line["budget"], 1e9), line["mean"])
    winners = sum(line["metric"] == "errors" and line["mean"] == best[line["budget"]] for line in rows)
    assert html_table(rows).count('class="best"') == winners
    assert markdown_table(rows).count("**") == 2 * winners


def test_text_from_results_is_escaped(rows):
    assert "<b>" not in html_table([line | {"method": "<b>"} for line in rows])


def test_marked_tables_are_brought_up_to_date(tiny_results, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("Above.\n<!-- table of results/mnist-sequential.json -->\nold\n<!-- end of table -->\nBelow.\n")
    for _ in range(2):
        write_report(tiny_results.parent, tmp_path / "docs", tmp_path / "report.html", readme)
    text = readme.read_text()
    assert text.startswith("Above.\n<!--")
    assert text.endswith("-->\nBelow.\n")
    assert "old" not in text
    assert text.count("| method |") == 1


def test_a_readme_without_marks_is_left_alone(tiny_results, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("No tables.\n")
    stamp = readme.stat().st_mtime_ns
    write_report(tiny_results.parent, tmp_path / "docs", tmp_path / "report.html", readme)
    assert readme.stat().st_mtime_ns == stamp


def test_a_mark_without_end_changes_nothing(tiny_results, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- table of results/mnist-sequential.json -->\nold\n")
    with pytest.raises(DataError, match="end of table"):
        write_report(tiny_results.parent, tmp_path / "docs", tmp_path / "report.html", readme)
    assert readme.read_text().endswith("old\n")


def test_a_plain_draw_is_never_the_best_of_its_column():
    methods = {"random": 20.0, "one-shot": 21.0, "one-shot-bernoulli": 22.0}
    rows = [
        {"method": name, "metric": "psnr", "budget": 0.1, "mean": mean, "sd": 0.0, "paper": None}
        for name, mean in methods.items()
    ]
    table = grid(rows, "method", "budget", {0.1: "s = 0.1"}, {name: name for name in methods}, low=False)
    assert [cells[0].best for _, cells in table.lines] == [False, True, False]
