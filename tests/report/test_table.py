import pytest

from sensewise.errors import DataError
from sensewise.evaluate.rows import Speed
from sensewise.report.table import Cell, Table, bench_table, metric_head, table, terminal_table, with_lines


def printed(console, drawn):
    console.print(drawn)
    return console.file.getvalue()


def test_every_form_shows_methods_budgets_and_the_papers_values(rows, console):
    made = table(rows, "Two digits", "errors", corner="method")
    shown = {
        "terminal": printed(console, terminal_table(rows, "Two digits")),
        "html": str(made.html()),
        "markdown": made.markdown(),
    }
    for name, text in shown.items():
        for part in ("method", "random", "variable density", "probe + greedy, 1 step", "label-greedy, 16 steps"):
            assert part in text, name
        for part in ("s = 0.05", "s = 0.1", "53.0 ± 0.3", "(25%)", "5.63 (50%)", "22.9"):
            assert part in text, name
    assert "errors per image (images exact)" in shown["terminal"]


def test_lines_are_in_the_order_of_the_rows_and_columns_in_that_of_the_budgets(rows):
    made = table([*rows[::-1]], "", "errors")
    assert made.head == ["s = 0.05", "s = 0.1"]
    assert made.lines[0][0] == "label-greedy, 16 steps"
    assert [name for name, _ in table(rows, "", "errors", lines=["random", "nobody"]).lines] == ["random"]


def test_the_best_of_each_budget_stands_out(rows):
    made = table(rows, "", "errors")
    best = {name: [cell.best for cell in cells] for name, cells in made.lines}
    assert best.pop("label-greedy, 16 steps") == [True, True]
    assert not any(any(line) for line in best.values())
    assert made.html().count('class="best"') == 2
    assert made.markdown().count("**") == 4
    assert table(rows, "", "errors", mark_best=False).markdown().count("**") == 0


def test_missing_cells_are_dashes(row):
    made = table([row(), row(method="loupe", budget=0.2), row(method="loupe", mean=None)], "", "errors")
    assert [[cell.ours for cell in cells] for _, cells in made.lines] == [["20.0", "–"], ["–", "20.0"]]


def test_two_rows_for_one_cell_are_refused(row):
    with pytest.raises(DataError, match=r"random, s = 0\.1"):
        table([row(), row(prior="on-policy")], "", "errors")


def test_columns_can_be_metrics(row):
    rows = [row(), row(metric="psnr", mean=21.5), row(method="loupe", metric="psnr")]
    made = table(rows, "", column=metric_head, mark_best=False)
    assert made.head == ["errors", "PSNR (dB)"]
    assert [[cell.ours for cell in cells] for _, cells in made.lines] == [["20.0", "21.50"], ["–", "20.00"]]


def test_text_from_results_is_escaped(row, console):
    made = table([row(method="<b>[red]"), row(method="<i>")], "", "errors")
    assert "<b>" not in made.html()
    assert "[red]" in printed(console, made.terminal())


def test_further_lines():
    made = with_lines(Table("", ["a"], [("one", [Cell("1")])]), ("two", [Cell("2", paper="3")]))
    assert made.markdown().splitlines()[-1] == "| two | 2<br>paper 3 |"


def test_the_terminal_shows_the_judge_only(row, console):
    rows = [
        row(metric="nmse", mean=value, reconstructor=name)
        for name, value in (("zero-filled", 0.05), ("unet-a", 0.02), ("unet-b", 0.03))
    ]
    text = printed(console, terminal_table(rows, "Slices", "nmse"))
    assert "0.0300" in text
    assert "0.0500" not in text
    assert "the paper's" not in text


def test_speeds(console):
    speeds = [Speed("latency", 0.7, at_most=6), Speed("pass", 9.6, at_least=60), Speed("memory", 141.8)]
    lines = printed(console, bench_table(speeds)).splitlines()
    assert any("latency" in line and "<= 6" in line and "yes" in line for line in lines)
    assert any("pass" in line and ">= 60" in line and "no" in line for line in lines)
    assert any("memory" in line and "141.8" in line for line in lines)
