"""Reports: results and figures in, pages for people out. Draws from results files alone; runs no model."""

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from rich.table import Table

from sensewise.checkpoint import write_text
from sensewise.errors import DataError
from sensewise.experiments.results import read_arrays, read_results
from sensewise.figures import film, pixels
from sensewise.figures.style import data_uri, name_of, save, to_bytes
from sensewise.report_cifar10 import CIFAR10_SECTIONS
from sensewise.report_mri import JUDGE, MRI_SECTIONS
from sensewise.report_one_shot import ONE_SHOT_SECTIONS
from sensewise.tables import STAGES, Rows, Section, budgets_of, number, ours_of, paper_of, pick, with_spread


def _cells(rows: Rows) -> dict[tuple[str, int], dict[float, dict[str, dict[str, Any]]]]:
    """Rows as method -> budget -> metric -> row, in the order in which they were written."""
    table: dict[tuple[str, int], dict[float, dict[str, dict[str, Any]]]] = {}
    for row in rows:
        cell = table.setdefault((row["method"], row["steps"]), {}).setdefault(row["budget"], {})
        cell[row["metric"]] = row
    return table


def _main_metric(rows: Rows) -> str:
    """What a table shows: errors if there are any, else its first metric."""
    metrics = [row["metric"] for row in rows]
    return "errors" if "errors" in metrics else metrics[0]


def _has_paper(rows: Rows) -> bool:
    return any(row["paper"] is not None for row in rows)


def _is_best(row: dict[str, Any], rows: Rows) -> bool:
    """Whether a row is the best of its budget, or, where seeds give NMSE a spread, within two of it."""
    if row["metric"] not in ("errors", "nmse", "psnr"):
        return False
    peers = [r for r in rows if r["metric"] == row["metric"] and r["budget"] == row["budget"]]
    spread = [r["sd"] for r in peers if r["method"] == "acs-variable-density"]
    if row["metric"] == "psnr":
        return bool(row["mean"] == max(r["mean"] for r in peers))
    return bool(row["mean"] <= min(r["mean"] for r in peers) + 2 * (spread[0] if spread else 0))


def _exact(metrics: dict[str, dict[str, Any]], column: str) -> str:
    value = metrics["exact"][column] if "exact" in metrics else None
    return "" if value is None else f" ({value:.0%})"


def terminal_table(rows: Rows, title: str, metric: str = "errors") -> Table:
    """Errors per image and exact fraction, or PSNR, the paper's beside ours."""
    rows = [row for row in rows if row["metric"] in (metric, *(["exact"] if metric == "errors" else []))]
    rows = [row for row in rows if row.get("reconstructor", JUDGE) == JUDGE]
    what = {"errors": "errors per image (images exact)", "psnr": "PSNR in dB", "nmse": "NMSE"}[metric]
    caption = what + "; the paper's numbers below ours" * _has_paper(rows)
    table = Table(title=title, caption=caption, title_justify="left")
    table.add_column("method")
    for head in budgets_of(rows).values():
        table.add_column(head, justify="right")
    for (method, steps), by_budget in _cells(rows).items():
        cells = []
        for metrics in by_budget.values():
            ours = ours_of(metrics[metric]) + _exact(metrics, "mean")
            if _is_best(metrics[metric], rows):
                ours = f"[bold green]{ours}[/]"
            known = metrics[metric]["paper"] is not None
            theirs = f"\n[dim]{paper_of(metrics[metric])}{_exact(metrics, 'paper')}[/]" if known else ""
            cells.append(ours + theirs)
        table.add_row(name_of(method, steps), *cells)
    return table


def bench_table(rows: Rows) -> Table:
    """What was measured, what it should be, and whether it is."""
    table = Table(title="Speed", title_justify="left")
    for name in ("row", "measured", "wanted", ""):
        table.add_column(name, justify="left" if name == "row" else "right")
    for row in rows:
        sign, bound = ("<=", row["at_most"]) if "at_most" in row else (">=", row["at_least"])
        mark = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[row["holds"]]
        table.add_row(row["row"], number(row["value"]), "" if bound is None else f"{sign} {bound:g}", mark)
    return table


def html_table(rows: Rows) -> Markup:
    """The same table for a page."""
    head = "".join(f"<th>{budget}</th>" for budget in budgets_of(rows).values())
    lines = [f"<table><thead><tr><th>method</th>{head}</tr></thead><tbody>"]
    for (method, steps), by_budget in _cells(rows).items():
        cells = []
        for metrics in by_budget.values():
            ours = metrics[_main_metric(rows)]
            best = ' class="best"' if _is_best(ours, rows) else ""
            paper = "" if ours["paper"] is None else f"<small>{paper_of(ours)}{_exact(metrics, 'paper')}</small>"
            cells.append(f"<td{best}>{ours_of(ours)}{_exact(metrics, 'mean')}{paper}</td>")
        lines.append(f"<tr><td>{html.escape(name_of(method, steps))}</td>{''.join(cells)}</tr>")
    return Markup("".join(lines) + "</tbody></table>")


def markdown_table(rows: Rows) -> str:
    """The same table for the docs: ours ± spread over seeds, the paper's in parentheses."""
    budgets = budgets_of(rows)
    lines = ["| method | " + " | ".join(budgets.values()) + " |", "|---" * (len(budgets) + 1) + "|"]
    for (method, steps), by_budget in _cells(rows).items():
        cells = []
        for metrics in by_budget.values():
            ours = metrics[_main_metric(rows)]
            text = with_spread(ours)
            if _is_best(ours, rows):
                text = f"**{text}**"
            paper = f"<br>paper {paper_of(ours)}{_exact(metrics, 'paper')}" if ours["paper"] is not None else ""
            cells.append(f"{text}{_exact(metrics, 'mean')}{paper}")
        lines.append(f"| {name_of(method, steps)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("sensewise"),
        undefined=StrictUndefined,
        autoescape=select_autoescape(["html"]),
        trim_blocks=True,
    )


def _drawings(path: Path) -> dict[str, Any]:
    """The figures of a pixel experiment, from its results file and the arrays beside it."""
    arrays = read_arrays(path)
    story = pixels.read_story(arrays)
    last = len(story.entropy) - 1
    shown = sorted({r for r in (0, 1, 2, 4, 8, 12, last) if r <= last})
    return {
        "examples": pixels.examples(*pixels.read_examples(arrays)),
        "steps": pixels.step_by_step(story, shown),
        "animation": pixels.animation(story),
        "step_count": last,
    }


def write_demo(path: Path) -> Path:
    """`report.html` beside a demo's results file: one page that needs nothing else."""
    results, drawn = read_results(path), _drawings(path)
    rows = results["rows"]
    page = (
        _environment()
        .get_template("demo.html")
        .render(
            count=rows[0]["images"],
            table=html_table(rows),
            curves=data_uri(to_bytes(pixels.errors_against_budget(rows))),
            examples=data_uri(to_bytes(drawn["examples"])),
            steps=drawn["step_count"],
            steps_figure=data_uri(to_bytes(drawn["steps"])),
            animation=data_uri(drawn["animation"], "gif"),
            results=results,
        )
    )
    write_text(path.with_name("report.html"), page)
    return path.with_name("report.html")


def write_evaluation(path: Path) -> Path:
    """`report.html` beside the results of `sensewise evaluate`: the demo's page for any data."""
    results, arrays = read_results(path), read_arrays(path)
    rows, recorded = results["rows"], film.read(arrays)
    decibels = pick(rows, metric="psnr")  # of ordered levels only
    page = (
        _environment()
        .get_template("evaluation.html")
        .render(
            table=html_table(rows),
            psnr_table=html_table(decibels) if decibels else None,
            psnr_curves=data_uri(to_bytes(pixels.psnr_against_budget(decibels))) if decibels else None,
            sites=recorded.target.size,
            curves=data_uri(to_bytes(pixels.errors_against_budget(rows))),
            examples=data_uri(to_bytes(film.examples(arrays, recorded.levels))),
            steps=recorded.steps,
            steps_figure=data_uri(to_bytes(film.sheet(recorded))),
            animation=data_uri(film.gif(recorded), "gif"),
            levels=recorded.levels,
            results=results,
        )
    )
    write_text(path.with_name("report.html"), page)
    return path.with_name("report.html")


def write_section(experiment: str, path: Path) -> Path:
    """`report.html` beside a results file: the section of one experiment as a page of its own."""
    section = SECTIONS[experiment](path)
    target = path.with_name("report.html")
    _write_page(target, f"What to measure on {section.results['dataset']}", [section], _contents([section]))
    return target


def _contents(sections: list[Section]) -> dict[str, bytes]:
    """Every figure as a file's content, by its name."""
    return {
        name: figure if isinstance(figure, bytes) else to_bytes(figure)
        for section in sections
        for name, (figure, _) in section.figures.items()
    }


def _write_page(target: Path, title: str, sections: list[Section], contents: dict[str, bytes]) -> None:
    pictures = {name: data_uri(content, name.rsplit(".", 1)[1]) for name, content in contents.items()}
    template = _environment().get_template("report.html")
    write_text(target, template.render(title=title, sections=sections, pictures=pictures, html_table=html_table))


def mnist_sequential(path: Path) -> Section:
    """Table closed and Figure closed."""
    results, drawn = read_results(path), _drawings(path)
    rows = results["rows"]
    tables = []
    for images in sorted({row["images"] for row in rows}):
        for prior in ("on-policy", "random-masks"):
            part = [row for row in rows if row["images"] == images and row["prior"] == prior]
            if part:
                tables.append((f"{images:,} test digits, prior trained on {STAGES[prior]}", part))
    main = tables[0][1]
    text = [
        "Errors are wrong pixels per image, out of 1,024, with hidden pixels at the prior's argmax; in parentheses the "
        f"fraction of images reconstructed exactly. Mean ± standard deviation over {main[0]['seeds']} seeds; "
        "label-greedy has no randomness. The label is known to every method through the prior.",
        *results["notes"],
    ]
    figures = {
        "mnist-sequential.png": (pixels.errors_against_budget(main), "Errors and exact fraction against the budget."),
        "mnist-examples.png": (
            drawn["examples"],
            "What each method measures (grey: not measured; colour: white; dark: black) and the reconstruction "
            "(orange: wrong).",
        ),
        "mnist-steps.png": (drawn["steps"], "One digit, label-greedy: entropy, measured pixels, reconstruction."),
        "mnist-steps.gif": (drawn["animation"], "The same as an animation."),
    }
    return Section("MNIST, sequential acquisition", text, tables, figures, results)


SECTIONS: dict[str, Callable[[Path], Section]] = {
    "mnist-sequential": mnist_sequential,
    **ONE_SHOT_SECTIONS,
    **CIFAR10_SECTIONS,
    **MRI_SECTIONS,
}


MARKS = ("<!-- table of results/{}.json -->", "<!-- end of table -->")


def write_table(readme: Path, sections: dict[str, Section]) -> None:
    """Put each section's first table between its marks in a Markdown file; a file without marks is left alone."""
    if not readme.is_file():
        return
    text = before = readme.read_text(encoding="utf-8")
    for name, section in sections.items():
        begin, end = MARKS[0].format(name), MARKS[1]
        if begin in text and section.tables:
            head, rest = text.split(begin, 1)
            if end not in rest:
                raise DataError(f"{readme} has no line {end!r} after {begin!r}")
            text = f"{head}{begin}\n{markdown_table(section.tables[0][1])}\n{end}{rest.split(end, 1)[1]}"
    if text != before:
        write_text(readme, text)


def write_report(results: Path, docs: Path, page: Path, readme: Path | None = None) -> list[str]:
    """`docs/results.md` with its figures, and one self-contained page, from the files in `results`.

    Args:
        readme: a Markdown file whose marked tables are brought up to date as well.

    Returns:
        The experiments that have no results file yet.
    """
    found = {name: results / f"{name}.json" for name in SECTIONS if (results / f"{name}.json").is_file()}
    if not found:
        raise DataError(f"no results in {results}: run `sensewise run all` first")
    by_name = {name: SECTIONS[name](path) for name, path in found.items()}
    sections = list(by_name.values())
    contents = _contents(sections)
    lines = ["# Results", "", "Generated by `sensewise report` from `results/*.json`.", ""]
    for section in sections:
        source = section.results
        lines += [f"## {section.title}", "", *(paragraph + "\n" for paragraph in section.text)]
        for caption, rows in section.tables:
            lines += [f"**{caption}**", "", markdown_table(rows), ""]
        for caption, table in section.grids:
            lines += [f"**{caption}**", "", table.markdown(), ""]
        for name, (_, caption) in section.figures.items():
            lines += [f"![{caption}](figures/{name})", "", f"*{caption}*", ""]
            save(contents[name], docs / "figures" / name)
        lines += [
            f"`sensewise run {source['experiment']} --preset {source['preset']}`: commit {source['commit'][:12]}, "
            f"{source['seconds'] / 60:.0f} minutes on {source['machine']['cpu']}.",
            "",
        ]
    write_text(docs / "results.md", "\n".join(lines))
    _write_page(page, "Results: ours beside the paper's", sections, contents)
    if readme is not None:
        write_table(readme, by_name)
    return sorted(set(SECTIONS) - set(found))
