"""The live page in a real Chromium: draw, acquire, scrub, compare, download, wrong input, narrow screen."""

import re
import shutil

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import sync_playwright

from apps.web_fixtures import running, write_assets
from sensewise.apps.web.app import create_app
from sensewise.apps.web.recorder import Recorder

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt install chromium)")


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with running(create_app(Recorder(write_assets(tmp_path_factory.mktemp("assets"))))) as address:
        yield address


@pytest.fixture
def visit(browser, address):
    """Open a view at a width; every message of the console and every outside request is a failure."""
    contexts, problems = [], []

    def visit(query="", width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda r: None if r.url.startswith((address, "blob:")) else problems.append(r.url))
        page.goto(f"{address}/{query}")
        page.wait_for_selector("body[data-ready]")
        page.problems = problems
        return page

    yield visit
    for context in contexts:
        context.close()
    assert problems == []


def wait_again(page):
    """Wait for the next acquisition after the ones that were seen."""
    seen = int(page.get_attribute("body", "data-ready"))
    return lambda: page.wait_for_function(f"() => Number(document.body.dataset.ready) > {seen}")


def test_compare_scrub_and_keyboard(visit):
    page = visit("?image=3&steps=4&step=4")
    assert "102 pixels measured. Greedy information gain:" in page.text_content("#verdict")
    assert page.text_content("#scrub-out") == "4 / 4"
    page.keyboard.press("ArrowLeft")
    assert page.text_content("#scrub-out") == "3 / 4"
    page.keyboard.press("Home")
    assert page.text_content("#scrub-out") == "0 / 4"
    assert page.is_disabled("#back")
    page.keyboard.press("Space")
    assert page.get_attribute("#play", "aria-label") == "Pause"
    page.wait_for_function("() => document.getElementById('scrub-out').textContent === '4 / 4'")
    page.fill("#scrub", "2")
    assert "step=2" in page.url
    done = wait_again(page)
    page.select_option("#policy-b", "variable-density")
    done()
    page.keyboard.press("End")
    page.wait_for_function("() => document.getElementById('verdict').textContent.includes('Variable density')")
    assert "b=variable-density" in page.url


def test_draw_a_digit_and_share_it(visit):
    page = visit("?steps=2&step=2")
    page.click("#tab-draw")
    box = page.locator("#pad").bounding_box()
    done = wait_again(page)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 40, steps=8)
    page.mouse.up()
    done()
    assert page.input_value("#label") == ""  # nobody said what was drawn
    page.wait_for_url(re.compile("draw="))
    again = visit(page.url.split("/", 3)[3])
    assert again.get_attribute("#tab-draw", "aria-selected") == "true"
    middle = "(pad) => pad.getContext('2d').getImageData(pad.width / 2, pad.height / 2, 1, 1).data[0]"
    assert again.locator("#pad").evaluate(middle) == 255


def test_touch_a_pixel(visit):
    page = visit("?image=0&steps=2&step=1")
    page.locator("#lane-a canvas[data-view=heat]").click(position={"x": 40, "y": 40})
    page.wait_for_selector(".believes.b .bar")
    assert "at=" in page.url
    before = page.text_content("#pixel-place")
    page.keyboard.press("ArrowDown")  # the picture has the focus: the pixel moves, not the clock
    page.wait_for_function(f"() => document.getElementById('pixel-place').textContent !== {before!r}")
    assert page.text_content("#scrub-out") == "1 / 2"


def test_downloads(visit, tmp_path):
    page = visit("?image=1&steps=2&step=2")
    for name in ("mask.npy", "mask.png", "animation.gif"):
        with page.expect_download() as found:
            page.get_by_label(f"Download {name} of the first policy").click()
        found.value.save_as(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 50
    assert np.load(tmp_path / "mask.npy", allow_pickle=False).sum() == 102


def test_wrong_input_is_said_and_survived(visit, tmp_path):
    page = visit("?prior=none&image=-4&steps=999&budget=7&a=x&b=y&draw=@@&at=900,1&seed=z")
    assert page.text_content("#scrub-out").endswith("/ 16")
    (tmp_path / "text.png").write_text("this is no picture")
    page.click("#tab-file")
    page.set_input_files("#file", tmp_path / "text.png")
    page.wait_for_selector("#toast:not([hidden])")
    assert "not a picture" in page.text_content("#toast")


def test_own_file_and_colour_prior(visit, tmp_path):
    Image.new("RGB", (40, 30), (255, 0, 0)).save(tmp_path / "red.png")
    page = visit("?steps=2&step=2")
    page.select_option("#prior", "colours")
    page.click("#tab-file")
    done = wait_again(page)
    page.set_input_files("#file", tmp_path / "red.png")
    done()
    page.locator("#lane-a canvas[data-view=measured]").click(position={"x": 20, "y": 20})
    page.wait_for_selector(".believes.a .columns")
    assert "In truth: level 7, level 0, level 0" in page.text_content("#pixel-body")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screen_has_no_sideways_scroll(visit, scheme):
    page = visit("?steps=2&step=1", width=360, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    heights = page.evaluate("[...document.querySelectorAll('.lane')].map((lane) => lane.offsetHeight)")
    page.click("#next")
    assert page.evaluate("[...document.querySelectorAll('.lane')].map((lane) => lane.offsetHeight)") == heights
    small = "[...document.querySelectorAll('.transport button')].filter((b) => b.offsetWidth < 40).length"
    assert page.evaluate(small) == 0


def contrast(one, two):
    def luminance(colour):
        parts = [int(colour.strip()[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        return np.dot(
            [0.2126, 0.7152, 0.0722], [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        )

    low, high = sorted([luminance(one), luminance(two)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_names_and_alt_texts(visit, scheme):
    page = visit("?steps=2&step=2", scheme=scheme)
    names = ["text", "soft", "a", "b", "accent", "good", "card", "back", "accent-ink"]
    found = page.evaluate(
        "(names) => names.map((n) => getComputedStyle(document.documentElement).getPropertyValue(`--${n}`))", names
    )
    colours = dict(zip(names, found, strict=True))
    for ink in ("text", "soft", "a", "b", "good"):
        assert contrast(colours[ink], colours["card"]) >= 4.5, ink
    assert contrast(colours["soft"], colours["back"]) >= 4.5
    assert contrast(colours["accent"], colours["accent-ink"]) >= 4.5
    nameless = """() => {
        const all = document.querySelectorAll('button, select, input, canvas:not(#gallery canvas), img, svg[role]');
        const named = (e) => e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length;
        return [...all].filter((e) => !named(e) && !e.hasAttribute('alt')).map((e) => e.outerHTML);
    }"""
    assert page.evaluate(nameless) == []
