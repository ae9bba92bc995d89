"""Pages for people: `docs/results.md` and a page per data set with their figures, and pages in one file.

Every page is a title, an introduction and sections; there is one template.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from sensewise.report.figures.style import data_uri, save
from sensewise.report.section import JointSection, Picture, Section, SectionOf
from sensewise.report.table import table

PAGES = {
    "mnist": ("results-mnist.md", "MNIST"),
    "cifar10": ("results-cifar10.md", "CIFAR-10"),
    "brain-t1": ("results-mri.md", "MRI"),
    "fastmri": ("results-mri.md", "MRI"),
}
"""The page in `docs` and its title by data set; sections of other data sets stand in `results.md` itself."""
INDEX = "results.md"
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
    """The section of a results file without empty tables; refuses arrays that lack what a figure needs."""
    try:
        section = make(results)
        return replace(section, tables=[made for made in section.tables if made.lines])
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
    earlier = sorted({row.commit[:12] for row in results.rows if row.commit})
    kept = f" Rows of other methods were measured at commit {' and '.join(earlier)}." if earlier else ""
    return f"commit {results.commit[:12]}, {time} on {results.machine.get('cpu', 'an unknown machine')}.{kept}"


def _contents(sections: Sequence[Section]) -> dict[str, bytes]:
    """Every figure as a file's content, by its name."""
    found = {}
    for section in sections:
        for picture in section.figures:
            found[picture.name] = picture.to_bytes()
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
        lines += [f"**{made.caption}**", ""] if made.caption else []
        lines += [made.markdown(), ""]
    for picture in section.figures:
        lines += [f"![{picture.caption}](figures/{picture.name})", "", f"*{picture.caption}*", ""]
    if section.source is not None:
        lines += [f"`{_command(section.source)}`: {_origin(section.source)}", ""]
    return "\n".join(lines)


def _with_tables(text: str, parts: Mapping[str, Sequence[Section]], source: Path) -> str:
    """Put each experiment's first table between its marks."""
    for name, sections in parts.items():
        begin = TABLE_BEGIN.format(name)
        if begin in text and sections[0].tables:
            head, rest = text.split(begin, 1)
            if TABLE_END not in rest:
                raise DataError(f"{source} has no line {TABLE_END!r} after {begin!r}")
            text = f"{head}{begin}\n{sections[0].tables[0].markdown()}\n{TABLE_END}{rest.split(TABLE_END, 1)[1]}"
    return text


@dataclass(frozen=True)
class Report:
    """Everything that `sensewise report` shows.

    Attributes:
        results: by experiment.
        parts: the sections of each experiment, one per data set.
        joint: sections over several experiments, which come first.
    """

    results: Mapping[str, Results]
    parts: Mapping[str, Sequence[Section]]
    joint: Sequence[Section] = ()

    @property
    def sections(self) -> list[Section]:
        """All of them, in order."""
        return [*self.joint, *(section for part in self.parts.values() for section in part)]

    def pages(self) -> dict[str, str]:
        """The generated pages of `docs`, by file name."""
        titles = {INDEX: "Results", **dict(PAGES.values())}
        shown: dict[str, list[Section]] = {INDEX: list(self.joint)}
        for section in self.sections:
            if section.source is not None:
                page, _ = PAGES.get(section.source.dataset, (INDEX, ""))
                shown.setdefault(page, []).append(section)
        head = "Generated by `sensewise report` from `results/*.json`.\n\n"
        pages = {}
        for name, sections in shown.items():
            title = titles[name] if name == INDEX else f"Results: {titles[name]}"
            links = _links({page: found for page, found in shown.items() if page != INDEX}) if name == INDEX else ""
            pages[name] = f"# {title}\n\n{head}{links}" + "\n".join(_markdown(section) for section in sections)
        return pages

    def updated_prose(self, paths: Sequence[Path]) -> dict[Path, str]:
        """Markdown files whose marked tables or numbers are not up to date, as they should be."""
        rows = {name: found.rows for name, found in self.results.items()}
        found = {}
        for path in paths:
            before = path.read_text(encoding="utf-8")
            after = prose.fill(_with_tables(before, self.parts, path), rows, str(path))
            if after != before:
                found[path] = after
        return found


def _links(pages: Mapping[str, Sequence[Section]]) -> str:
    """What stands on the other pages."""
    titles = dict(PAGES.values())
    lines = [f"- [{titles[page]}]({page}): {'; '.join(section.title for section in pages[page])}" for page in pages]
    return "\n".join(lines) + "\n\n" if lines else ""


def read_report(folder: Path, experiments: Mapping[str, Reported], joint: Sequence[JointSection] = ()) -> Report:
    """The report on every experiment that has a results file in `folder`, in the order of the experiments.

    Args:
        joint: sections over several experiments.
    """
    results: dict[str, Results] = {}
    parts: dict[str, list[Section]] = {}
    for name in experiments:
        path = folder / f"{name}.json"
        if path.is_file() and (make := experiments[name].section) is not None:
            results[name] = _read(path)
            parts[name] = [_section(part, make) for part in _by_dataset(results[name])]
    made = [section for make in joint if (section := make(results)) is not None]
    return Report(results, parts, made)


def _by_dataset(results: Results) -> list[Results]:
    """The results of one experiment, apart by data set."""
    names = dict.fromkeys(row.dataset for row in results.rows)
    return [replace(results, dataset=name, rows=metrics.pick(results.rows, dataset=name)) for name in names]


def prose_of(docs: Path) -> list[Path]:
    """The pages of `docs` that people write."""
    generated = {INDEX, *(page for page, _ in PAGES.values())}
    return [path for path in sorted(docs.glob("*.md")) if path.name not in generated]


def write_report(
    results: Path,
    docs: Path,
    page: Path,
    readme: Path | None,
    experiments: Mapping[str, Reported],
    pdf: Path | None = None,
    joint: Sequence[JointSection] = (),
) -> list[str]:
    """`docs/results.md`, a page per data set, their figures, and one self-contained page, from the files in `results`.

    Args:
        results: the folder of the results files.
        docs: where the pages and `figures/` go; marked numbers in its other pages are brought up to date.
        page: the page in one file.
        readme: a Markdown file whose marked tables and numbers are brought up to date as well.
        experiments: by name, in the order of the report.
        pdf: a folder for every figure as a vector graphic.
        joint: sections over several experiments.

    Returns:
        The experiments that have no results file yet.
    """
    report = read_report(results, experiments, joint)
    if not report.parts:
        raise DataError(f"no results in {results}: run `sensewise run all` first")
    contents = _contents(report.sections)
    written = prose_of(docs)
    if readme is not None and readme.is_file():
        written.append(readme)
    changed = report.updated_prose(written)
    for name, text in report.pages().items():
        write_text(docs / name, text)
    for name, content in contents.items():
        save(content, docs / "figures" / name)
    _write_page(page, "Results: ours beside the paper's", report.sections, contents)
    for path, text in changed.items():
        write_text(path, text)
    if pdf is not None:
        _write_pdf(pdf, report.sections)
    return sorted(set(experiments) - set(report.parts))


def _write_pdf(folder: Path, sections: Sequence[Section]) -> None:
    for section in sections:
        for picture in section.figures:
            if not isinstance(picture.content, bytes):
                save(picture.content, (folder / picture.name).with_suffix(".pdf"), picture.dpi)
