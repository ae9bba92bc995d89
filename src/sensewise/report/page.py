"""Pages for people: `docs/results.md` with its figures, and pages in one file that need nothing else.

Every page is a title, an introduction and sections; there is one template.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from sensewise.errors import DataError
from sensewise.evaluate.recording import Recording, read_recording
from sensewise.evaluate.results import Results, read_arrays, read_results
from sensewise.evaluate.rows import Row
from sensewise.files import write_text
from sensewise.report import metrics, prose
from sensewise.report.figures import curves, examples, recording
from sensewise.report.figures.style import data_uri, save, to_bytes
from sensewise.report.section import Picture, Section, SectionOf
from sensewise.report.table import table

TABLE_BEGIN = "<!-- table of results/{}.json -->"
TABLE_END = "<!-- end of table -->"


class Reported(Protocol):
    """An experiment, as far as the report knows it."""

    @property
    def section(self) -> SectionOf | None:
        """Makes its section from its results; None for an experiment without one."""


def _read(path: Path) -> Results:
    """A results file, with its arrays if there are any beside it."""
    results = read_results(path)
    return replace(results, arrays=read_arrays(path)) if path.with_suffix(".npz").exists() else results


def _section(results: Results, make: SectionOf) -> Section:
    """The section of a results file; refuses arrays that lack what a figure needs."""
    try:
        return make(results)
    except KeyError as error:
        raise DataError(f"{results.experiment}.npz lacks {error}, which a figure needs: run it again") from error
    except DataError as error:
        raise DataError(f"{results.experiment}: {error}") from error


def _command(results: Results) -> str:
    """The command that made results."""
    if results.experiment == "demo":
        return f"sensewise demo --dataset {results.dataset}"
    if results.experiment == "evaluate":
        return "sensewise evaluate"
    return f"sensewise run {results.experiment} --preset {results.preset}"


def _origin(results: Results) -> str:
    """Where and when results were made."""
    minutes = results.seconds / 60
    time = f"{results.seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} minutes"
    return f"commit {results.commit[:12]}, {time} on {results.machine.get('cpu', 'an unknown machine')}."


def _contents(sections: Sequence[Section]) -> dict[str, bytes]:
    """Every figure as a file's content, by its name."""
    found = {}
    for section in sections:
        for picture in section.figures:
            content = picture.content
            found[picture.name] = content if isinstance(content, bytes) else to_bytes(content)
    return found


def _write_page(path: Path, title: str, sections: Sequence[Section], contents: Mapping[str, bytes]) -> Path:
    environment = Environment(
        loader=PackageLoader("sensewise.report"),
        undefined=StrictUndefined,
        autoescape=select_autoescape(["html"]),
        trim_blocks=True,
    )
    pictures = {name: data_uri(content, name.rsplit(".", 1)[1]) for name, content in contents.items()}
    template = environment.get_template("page.html")
    write_text(
        path, template.render(title=title, sections=sections, pictures=pictures, command=_command, origin=_origin)
    )
    return path


def write_sections(path: Path, title: str, sections: Sequence[Section]) -> Path:
    """One page in one file."""
    return _write_page(path, title, sections, _contents(sections))


def write_section(path: Path, section: SectionOf) -> Path:
    """`report.html` beside a results file: the section of one experiment as a page of its own."""
    results = _read(path)
    title = f"What to measure on {results.dataset}"
    return write_sections(path.with_name("report.html"), title, [_section(results, section)])


def write_demo(path: Path) -> Path:
    """`report.html` beside the results of `sensewise demo`."""
    results = _read(path)
    count = results.rows[0].images
    paragraphs = [f"{count:,} bundled test images of {results.dataset}. {_FAIR}"]
    if any(row.paper is not None for row in results.rows):
        paragraphs.append(f"Small: the paper's values, on 2,560 test images. With {count:,} images ours are a sample.")
    return _write_evaluation(path, "sensewise decides what to measure", results, paragraphs)


def write_evaluation(path: Path) -> Path:
    """`report.html` beside the results of `sensewise evaluate`: the demo's page for any data."""
    results = _read(path)
    count = results.rows[0].images
    paragraphs = [f"{count:,} test images of {results.dataset} that the prior was not trained on. {_FAIR}"]
    return _write_evaluation(path, f"What to measure on {results.dataset}", results, paragraphs)


_FAIR = "Each method may measure the same fraction of the pixels; the same prior fills in the rest."


def _write_evaluation(path: Path, title: str, results: Results, paragraphs: Sequence[str]) -> Path:
    """A table and curves for each metric that counts, a few images, one image step by step."""
    recorded = read_recording(results.arrays)
    sites = f"Errors are wrong values per image, out of {recorded.target.size:,}, with {recorded.levels} levels. "
    sections = [
        Section(
            "Errors per image",
            [*paragraphs, *results.notes, sites + "In parentheses: images reconstructed exactly."],
            [table(results.rows, "", "errors", corner="method")],
            [Picture("errors.png", curves.against_budget(results.rows, ("errors", "exact")), "Against the budget.")],
        )
    ]
    if decibels := metrics.pick(results.rows, metric="psnr"):
        sections.append(_decibels(decibels))
    sections += [_examples(results, recorded), _steps(results, recorded)]
    return write_sections(path.with_name("report.html"), title, sections)


def _decibels(rows: Sequence[Row]) -> Section:
    gains = metrics.compared(rows, metrics.pick(rows, method="random"))
    shown = ("psnr", "psnr-gain") if gains else ("psnr",)
    drawn = curves.against_budget([*rows, *gains], shown)
    return Section(
        "PSNR in dB",
        ["Hidden pixels at the posterior mean: a level that is nearly right counts as nearly right."],
        [table(rows, "", "psnr", corner="method")],
        [Picture("psnr.png", drawn, "Against the budget, and above random masks.")],
    )


def _examples(results: Results, recorded: Recording) -> Section:
    colours = "Grey: not measured. In colour: measured, from dark to light."
    if recorded.levels == 2:
        colours += " Orange: wrong in the reconstruction."
    drawn = examples.examples(results.arrays, recorded.levels)
    caption = "Masks and reconstructions of each method on the same images."
    return Section("What each method measures", [colours], figures=[Picture("examples.png", drawn, caption)])


def _steps(results: Results, recorded: Recording) -> Section:
    text = f"Each of {recorded.steps} steps measures where the prior is most uncertain (bright), then looks again."
    return Section(
        "One image, step by step",
        [text],
        figures=[
            Picture("steps.png", recording.sheet(recorded), "Entropy, measured pixels and reconstruction."),
            Picture("steps.gif", recording.gif(recorded), "The same as an animation."),
        ],
        source=results,
    )


def _markdown(section: Section) -> str:
    lines = [f"## {section.title}", "", *(paragraph + "\n" for paragraph in section.paragraphs)]
    for made in section.tables:
        lines += [f"**{made.caption}**", "", made.markdown(), ""]
    for picture in section.figures:
        lines += [f"![{picture.caption}](figures/{picture.name})", "", f"*{picture.caption}*", ""]
    if section.source is not None:
        lines += [f"`{_command(section.source)}`: {_origin(section.source)}", ""]
    return "\n".join(lines)


def _with_tables(text: str, sections: Mapping[str, Section], source: Path) -> str:
    """Put each section's first table between its marks."""
    for name, section in sections.items():
        begin = TABLE_BEGIN.format(name)
        if begin in text and section.tables:
            head, rest = text.split(begin, 1)
            if TABLE_END not in rest:
                raise DataError(f"{source} has no line {TABLE_END!r} after {begin!r}")
            text = f"{head}{begin}\n{section.tables[0].markdown()}\n{TABLE_END}{rest.split(TABLE_END, 1)[1]}"
    return text


def updated_prose(paths: Sequence[Path], sections: Mapping[str, Section]) -> dict[Path, str]:
    """Markdown files whose marked tables or numbers are not up to date, as they should be."""
    rows = {name: section.source.rows for name, section in sections.items() if section.source is not None}
    found = {}
    for path in paths:
        before = path.read_text(encoding="utf-8")
        after = prose.fill(_with_tables(before, sections, path), rows, str(path))
        if after != before:
            found[path] = after
    return found


def read_sections(folder: Path, experiments: Mapping[str, Reported]) -> dict[str, Section]:
    """The section of every experiment that has a results file in `folder`, in the order of the experiments."""
    found = {}
    for name in experiments:
        path = folder / f"{name}.json"
        if path.is_file() and (section := experiments[name].section) is not None:
            found[name] = _section(_read(path), section)
    return found


def results_markdown(sections: Sequence[Section]) -> str:
    """The whole of `docs/results.md`."""
    head = "# Results\n\nGenerated by `sensewise report` from `results/*.json`.\n\n"
    return head + "\n".join(_markdown(section) for section in sections)


def write_report(
    results: Path,
    docs: Path,
    page: Path,
    readme: Path | None,
    experiments: Mapping[str, Reported],
    pdf: Path | None = None,
) -> list[str]:
    """`docs/results.md` with its figures, and one self-contained page, from the files in `results`.

    Args:
        results: the folder of the results files.
        docs: where `results.md` and `figures/` go; marked numbers in its other pages are brought up to date.
        page: the page in one file.
        readme: a Markdown file whose marked tables and numbers are brought up to date as well.
        experiments: by name, in the order of the report.
        pdf: a folder for every figure as a vector graphic.

    Returns:
        The experiments that have no results file yet.
    """
    sections = read_sections(results, experiments)
    if not sections:
        raise DataError(f"no results in {results}: run `sensewise run all` first")
    contents = _contents(list(sections.values()))
    written = [path for path in sorted(docs.glob("*.md")) if path.name != "results.md"]
    if readme is not None and readme.is_file():
        written.append(readme)
    changed = updated_prose(written, sections)
    write_text(docs / "results.md", results_markdown(list(sections.values())))
    for name, content in contents.items():
        save(content, docs / "figures" / name)
    _write_page(page, "Results: ours beside the paper's", list(sections.values()), contents)
    for path, text in changed.items():
        write_text(path, text)
    if pdf is not None:
        _write_pdf(pdf, list(sections.values()))
    return sorted(set(experiments) - set(sections))


def _write_pdf(folder: Path, sections: Sequence[Section]) -> None:
    for section in sections:
        for picture in section.figures:
            if not isinstance(picture.content, bytes):
                save(picture.content, (folder / picture.name).with_suffix(".pdf"))
