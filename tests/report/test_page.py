import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sensewise.beyond import EXPERIMENTS
from sensewise.errors import DataError
from sensewise.evaluate.results import Results, read_arrays, read_results
from sensewise.paper import differences
from sensewise.paper.together import JOINT
from sensewise.report.page import (
    prose_of,
    read_report,
    write_demo,
    write_evaluation,
    write_report,
    write_section,
)
from sensewise.report.section import Section

ROOT = Path(__file__).parents[2]
TABLE = "Above.\n<!-- table of results/mnist-sequential.json -->\nold\n<!-- end of table -->\nBelow.\n"


@pytest.fixture(scope="module")
def committed():
    """The report on the results in the repository."""
    return read_report(ROOT / "results", EXPERIMENTS, JOINT)


def assert_self_contained(page):
    assert "Traceback" not in page
    links = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"'\s>)]{1,80})""", page)
    assert links
    assert all(link.startswith("data:image/") for link in links)
    assert not re.search(r"<script|<link|@import", page)


def report(path, tmp_path, readme=None, **options):
    return write_report(path.parent, tmp_path / "docs", tmp_path / "report.html", readme, EXPERIMENTS, **options)


def test_write_report(tiny_results, tmp_path):
    missing = report(tiny_results, tmp_path, pdf=tmp_path / "pdf")
    assert missing == sorted(set(EXPERIMENTS) - {"mnist-sequential"})
    index = (tmp_path / "docs" / "results.md").read_text()
    assert "- [MNIST](results-mnist.md): MNIST, sequential acquisition" in index
    markdown = (tmp_path / "docs" / "results-mnist.md").read_text()
    names = re.findall(r"\]\(figures/([^)]+)\)", markdown)
    assert names == ["mnist-sequential.png", "mnist-examples.png", "mnist-steps.png", "mnist-steps.gif"]
    for name in names:
        assert (tmp_path / "docs" / "figures" / name).stat().st_size > 100
    assert {path.name for path in (tmp_path / "pdf").iterdir()} == {
        name.replace(".png", ".pdf") for name in names if name.endswith(".png")
    }
    for part in ("label-greedy, 16 steps", "paper 5.63", "A note.", "sensewise run mnist-sequential --preset cpu"):
        assert part in markdown
    page = (tmp_path / "report.html").read_text()
    assert_self_contained(page)
    assert page.count("<img") == 4
    assert page.count("<table>") == 2
    assert "data:image/gif" in page


def test_write_demo(tiny_results):
    on_policy = [row for row in read_results(tiny_results).rows if row.prior == "on-policy"]
    arrays = read_arrays(tiny_results)
    path = tiny_results.with_name("results.json")
    Results("demo", "cpu", "mnist", on_policy, {"prior": "abc"}, arrays=arrays).write(path)
    page = write_demo(path)
    assert page == tiny_results.with_name("report.html")
    assert_self_contained(page.read_text())
    for part in ("2 bundled test images", "sensewise demo --dataset mnist", "out of 1,024"):
        assert part in page.read_text()


def test_write_evaluation_with_ordered_levels(tmp_path, rows, row, recorded, examples):
    rows = [replace(found, dataset="clothes", paper=None) for found in rows]
    rows += [replace(found, metric="psnr") for found in rows if found.metric == "errors"]
    arrays = examples(levels=4, channels=3) | recorded(levels=4, channels=3).store()
    Results("evaluate", "cpu", "clothes", rows, arrays=arrays).write(tmp_path / "results.json")
    page = write_evaluation(tmp_path / "results.json").read_text()
    assert_self_contained(page)
    assert "What to measure on clothes" in page
    assert page.count("<table>") == 2
    assert page.count("<img") == 5
    assert "paper" not in page


def test_write_section(tiny_results):
    page = write_section(tiny_results, EXPERIMENTS["mnist-sequential"].section).read_text()
    assert_self_contained(page)
    assert "What to measure on mnist" in page


def test_report_without_results(tmp_path):
    with pytest.raises(DataError, match="sensewise run all"):
        report(tmp_path / "none.json", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_report_without_arrays_changes_nothing(tiny_results, tmp_path):
    shutil.copy(tiny_results, tmp_path)
    with pytest.raises(DataError, match="mnist-sequential"):
        report(tmp_path / tiny_results.name, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"results", "mnist-sequential.json"}


def test_marked_tables_and_numbers_are_brought_up_to_date(tiny_results, tmp_path):
    readme = tmp_path / "README.md"
    numbers = "\n<!-- numbers\nit = mnist-sequential errors random/1 prior=on-policy\n-->\n"
    readme.write_text(TABLE + "Random makes <!--=it-->?<!--=--> errors.\n" + numbers)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("Random makes <!--=it-->?<!--=--> errors.\n" + numbers)
    for _ in range(2):
        report(tiny_results, tmp_path, readme)
    text = readme.read_text()
    assert text.startswith("Above.\n<!--")
    assert "-->\nBelow.\n" in text
    assert "old" not in text
    assert text.count("| method |") == 1
    assert text.count("<!--=it-->53.0 / 39.0<!--=-->") == 1
    assert "<!--=it-->53.0 / 39.0<!--=-->" in (tmp_path / "docs" / "page.md").read_text()


def test_a_readme_without_marks_is_left_alone(tiny_results, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("No tables.\n")
    stamp = readme.stat().st_mtime_ns
    report(tiny_results, tmp_path, readme)
    assert readme.stat().st_mtime_ns == stamp


@pytest.mark.parametrize("text", [TABLE.replace("end of", ""), "a <!--=it-->1<!--=-->\n"])
def test_a_wrong_mark_changes_nothing(tiny_results, tmp_path, text):
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(DataError, match=r"README\.md"):
        report(tiny_results, tmp_path, readme)
    assert readme.read_text() == text
    assert not (tmp_path / "docs").exists()


def test_an_experiment_of_your_own_reaches_the_report(tiny_results, tmp_path):
    mine = {"mnist-sequential": SimpleNamespace(section=lambda results: Section("Mine", ["Hello."], source=results))}
    mine["unfinished"] = SimpleNamespace(section=None)
    assert write_report(tiny_results.parent, tmp_path / "docs", tmp_path / "mine.html", None, mine) == ["unfinished"]
    assert "## Mine" in (tmp_path / "docs" / "results-mnist.md").read_text()


def test_other_data_stand_in_the_index(tiny_results, tmp_path):
    rows = [replace(row, dataset="rooms") for row in read_results(tiny_results).rows]
    path = tmp_path / "own" / "mine.json"
    Results("mine", "cpu", "rooms", rows).write(path)
    mine = {"mine": SimpleNamespace(section=lambda results: Section("Rooms", source=results))}
    write_report(path.parent, tmp_path / "docs", tmp_path / "mine.html", None, mine)
    assert "## Rooms" in (tmp_path / "docs" / "results.md").read_text()
    assert [page.name for page in (tmp_path / "docs").glob("*.md")] == ["results.md"]


def test_results_of_two_data_sets_stand_on_two_pages(tiny_results, tmp_path):
    rows = read_results(tiny_results).rows
    both = [*rows, *(replace(row, dataset="cifar10") for row in rows)]
    path = tmp_path / "own" / "mine.json"
    Results("mine", "cpu", "mnist", both).write(path)
    counted = {"mine": SimpleNamespace(section=lambda results: Section(f"{len(results.rows)} rows", source=results))}
    write_report(path.parent, tmp_path / "docs", tmp_path / "mine.html", None, counted)
    for name in ("mnist", "cifar10"):
        assert f"## {len(rows)} rows" in (tmp_path / "docs" / f"results-{name}.md").read_text()


def test_every_committed_results_file_has_a_section(committed):
    assert list(committed.parts) == list(EXPERIMENTS)
    for name, sections in committed.parts.items():
        for section in sections:
            assert section.source.experiment == name
            assert section.tables
            for made in section.tables:
                assert made.head, made.caption
                assert made.lines, made.caption


def test_no_table_or_number_in_the_docs_is_stale(committed):
    """If this fails, run `sensewise report`."""
    assert list(committed.updated_prose([*prose_of(ROOT / "docs"), ROOT / "README.md"])) == []
    for name, text in committed.pages().items():
        assert (ROOT / "docs" / name).read_text() == text


def test_every_figure_of_the_report_is_there(committed):
    names = [picture.name for section in committed.sections for picture in section.figures]
    assert len(names) == len(set(names))
    assert {"divergence.png", "metrics-vs-budget.png", "baselines.png", "pipeline.png"} < set(names)
    assert set(names) == {path.name for path in (ROOT / "docs" / "figures").iterdir() if path.suffix != ".pdf"}


def test_differences_are_computed(committed):
    rows = {name: found.rows for name, found in committed.results.items()}
    lines = {line.element: differences.cells(line, rows) for line in differences.load()}
    verdicts = {element: cells[2].ours for element, (_, cells) in lines.items()}
    for element, (_, cells) in lines.items():
        assert cells[1].ours != differences.MISSING, element
    for word in ("Side information on CIFAR-10", "expected energy", "under zero filling", "SSIM", "relaxed profile"):
        found = [verdict for element, verdict in verdicts.items() if word in element]
        assert found
        assert all("no" in verdict for verdict in found), word
    for word in ("Top-k at s = 0.3", "Straight-through", "mask state"):
        assert any(word in element for element in verdicts)


@pytest.mark.parametrize(
    ("ours", "expects", "verdict"),
    [(30.0, ("above",), "no"), (10.0, ("above",), "yes"), (20.1, ("level",), "yes"), (20.1, ("above",), "no")],
)
def test_directions(row, ours, expects, verdict):
    rows = {"e": [row(method="a", mean=ours, sd=0.1), row(method="b", mean=20.0, sd=0.1)]}
    line = differences.Difference("A", "T", "e errors a below b as +.1f", says="fewer", expects=expects)
    name, cells = differences.cells(line, rows)
    assert name == "A (T), s = 0.1"
    assert [cell.ours for cell in cells] == ["fewer", f"{100 * (1 - ours / 20):+.1f}", verdict, "not explained"]


def test_directions_of_the_papers_own_numbers(row):
    rows = {"e": []}
    for budget, ours in ((0.1, 10.0), (0.3, 30.0)):
        rows["e"].append(row(method="a", budget=budget, mean=ours, paper=5.0))
        rows["e"].append(row(method="b", budget=budget, mean=20.0, paper=10.0))
    line = differences.Difference("A", "T", "e errors a below b as .0f", why="Because.")
    name, cells = differences.cells(line, rows)
    assert name == "A (T), s = 0.1 / 0.3"
    assert [cell.ours for cell in cells] == ["50 / 50", "50 / -50", "yes at s = 0.1; no at 0.3", "Because."]
    missing = differences.cells(differences.Difference("A", "T", "e errors c below b"), rows)
    assert missing[1][1].ours == differences.MISSING
