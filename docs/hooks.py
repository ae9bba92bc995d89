"""What MkDocs does beyond its defaults: leave out pages that are not written yet, and draw formulas without scripts."""

import html
import io
import logging
import re
from pathlib import Path
from typing import Any

from matplotlib import mathtext

FORMULA = re.compile(r'<(span|div) class="arithmatex">(?:\\\(|\\\[)(.*?)(?:\\\)|\\\])</\1>', re.DOTALL)
INK = "#010203"


def on_config(config: Any) -> Any:
    """Drop the entries of the navigation whose page does not exist (results.md is generated, for one)."""
    folder = Path(config["docs_dir"])
    missing = [page for entry in config["nav"] for page in entry.values() if not (folder / page).is_file()]
    if missing:
        logging.getLogger("mkdocs").info("not there yet: %s", ", ".join(missing))
    config["nav"] = [entry for entry in config["nav"] if not missing or next(iter(entry.values())) not in missing]
    return config


def drawn(match: re.Match[str]) -> str:
    """A formula as SVG in the colour of the text; as code where Matplotlib cannot set it."""
    tag, source = match.group(1), html.unescape(match.group(2)).strip()
    simple = re.sub(r"\\(?:bigl|bigr|Bigl|Bigr|left|right)(?=[\W])", "", source).replace(r"\text", r"\mathrm")
    buffer = io.StringIO()
    try:
        depth = mathtext.math_to_image(f"${simple}$", buffer, format="svg", color=INK)
    except (ValueError, RuntimeError):
        return f"<code>{html.escape(source)}</code>"
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    prefix = f"f{abs(hash(source)):x}"
    svg = re.sub(r'(id="|href="#|url\(#)', lambda found: found.group(1) + prefix, svg)
    size = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', svg)
    width, height = (float(size.group(i)) for i in (1, 2)) if size else (10.0, 10.0)
    style = f"width:{width / 10:.2f}em;height:{height / 10:.2f}em;vertical-align:{-float(depth) / 10:.2f}em"
    svg = svg.replace("<svg", f'<svg style="{style}" role="img" aria-label="{html.escape(source)}"', 1)
    return f"<{tag}>{svg}</{tag}>"


def on_page_content(content: str, **_: Any) -> str:
    return FORMULA.sub(drawn, content)
