"""The live page in a real Chromium: draw, acquire, scrub, compare, download, wrong input, narrow screen."""

import base64
import io
import re
import shutil

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
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


def test_the_first_screen_starts_by_itself_and_compares(visit):
    page = visit()
    page.wait_for_function("() => document.getElementById('play').getAttribute('aria-label') === 'Play'")
    assert re.match(r"6,554 pixels measured\. .+: \d+\.\d dB\. Random: \d+\.\d dB\.", page.text_content("#verdict"))
    assert page.text_content("#about") == "256 x 256"
    assert page.text_content("#scrub-out") == "32 / 32"
    boxes = [page.locator(f"#{lane} .frame canvas").bounding_box() for lane in ("lane-truth", "lane-a", "lane-b")]
    assert min(box["width"] for box in boxes) >= 320  # on a laptop
    assert len({box["y"] for box in boxes}) == 1  # side by side


def test_compare_scrub_and_keyboard(visit):
    page = visit("?prior=mnist&image=3&steps=4&step=4")
    assert "102 pixels measured. Greedy, pixels spread out:" in page.text_content("#verdict")
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


def test_with_the_keyboard_alone(visit):
    page = visit("?prior=mnist&steps=2&step=2")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        name = page.evaluate("document.activeElement.id || document.activeElement.className")
        reached.add(name)
        if name == "gallery" or page.evaluate("document.activeElement.dataset.number") == "1":
            break
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid" or name == "skip", name
    assert {"share", "truth", "policy-a", "policy-b", "back", "play", "scrub", "prior", "tab-bundled"} <= reached
    done = wait_again(page)
    page.keyboard.press("Enter")  # the second picture of the gallery
    done()
    assert page.get_attribute("[data-number='1']", "aria-pressed") == "true"
    page.focus("#tab-bundled")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#tab-draw", "aria-selected") == "true"
    page.keyboard.press("ArrowLeft")
    page.locator("#scrub-out", has_text="/ 2").wait_for()
    page.focus("#stage")
    page.keyboard.press("Home")
    assert page.text_content("#scrub-out") == "0 / 2"


def colour_at_the_middle(page, place):
    at = "(c) => [...c.getContext('2d').getImageData(c.width / 2, c.height / 2, 1, 1).data].slice(0, 3)"
    return page.locator(place).evaluate(at)


def test_an_empty_pad_stands_beside_nothing(visit):
    page = visit("?prior=mnist&image=2&steps=2&step=2")
    page.click("#tab-draw")
    assert page.text_content("#verdict").startswith("Draw something")
    blank = colour_at_the_middle(page, "#truth")
    assert {tuple(colour_at_the_middle(page, f"#lane-{lane} .frame canvas")) for lane in "ab"} == {tuple(blank)}
    assert page.text_content("#lane-a .big") == "–"
    done = wait_again(page)
    page.click("#tab-bundled")
    done()
    assert "measured" in page.text_content("#verdict")


def test_draw_a_digit_and_share_it(visit):
    page = visit("?prior=mnist&steps=2&step=2")
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
    assert colour_at_the_middle(again, "#pad") == [255, 255, 255]


DROP = """([content, type]) => {
    const bytes = Uint8Array.from(atob(content), (c) => c.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], 'own.png', { type }));
    document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


@pytest.mark.parametrize(
    ("mode", "size", "said"),
    [
        ("L", (60, 40), "40 x 60"),
        ("RGB", (512, 300), "300 x 512, colour made grey"),
        ("L", (1024, 700), "350 x 512, 1024 x 700 made smaller"),
    ],
)
def test_any_picture_dropped_is_acquired_at_its_own_size(visit, mode, size, said):
    page = visit("?prior=mnist&image=4")
    ramp = np.linspace(0, 255, size[0] * size[1]).astype(np.uint8).reshape(size[1], size[0])
    pixels = ramp if mode == "L" else np.stack([ramp, ramp // 2, ramp], axis=2)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png")
    page.evaluate("delete document.body.dataset.first")
    page.evaluate(DROP, [base64.b64encode(buffer.getvalue()).decode(), "image/png"])
    page.wait_for_selector("body[data-first]")
    assert page.input_value("#prior") == "any-grey"
    assert page.text_content("#about") == said
    assert "dB" in page.text_content("#verdict")


def test_noise_and_a_stop(visit):
    page = visit("?prior=any-grey&image=5&steps=8&step=8")
    done = wait_again(page)
    page.fill("#noise", "0.1")
    done()
    assert page.text_content("#noise-out") == "± 10% of the range"
    done = wait_again(page)
    page.fill("#stop", "1")
    assert page.text_content("#stop-out") == "10.0% (20.0 dB)"
    done()
    page.focus("#stage")
    page.keyboard.press("End")
    assert "noise=0.1" in page.url
    assert "stop=0.1" in page.url


def test_rows_of_slices(visit):
    page = visit("?prior=knee&steps=3&step=3")
    assert page.text_content("#verdict").startswith("32 rows measured.")
    assert page.is_hidden("#noise-field")
    assert page.is_hidden("#stop-field")
    assert "rows" in page.text_content("#budget-out")
    page.locator("#lane-b canvas[data-view=rebuilt]").click(position={"x": 100, "y": 100})
    page.wait_for_selector(".believes.b .interval")


def test_cancel(visit):
    page = visit("?prior=any-grey&image=0&steps=1&step=1")
    page.evaluate("delete document.body.dataset.first")
    done = wait_again(page)
    page.fill("#steps", "64")
    page.wait_for_selector("body[data-first]")
    page.click("#cancel")
    done()
    assert page.text_content("#verdict").startswith("Cancelled after step")
    assert page.is_hidden("#cancel")


def test_a_prior_that_does_not_fit_is_said(visit):
    page = visit("?prior=mnist&image=0&steps=2&step=2")
    assert page.is_hidden("#notice")

    def misfit(route):
        answer = route.fetch()
        text = re.sub(r'"ratio": [\d.]+, "fits": \w+', '"ratio": 9.0, "fits": false', answer.text())
        route.fulfill(response=answer, body=text)

    page.route("**/api/stream", misfit)
    done = wait_again(page)
    page.click("#reseed")
    done()
    assert "does not fit this picture" in page.text_content("#notice")
    assert "9 times as wrong" in page.text_content("#notice")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_axe_finds_no_violation(visit, width, scheme):
    for show in ("any-grey&image=5&at=3,4", "mnist&at=3,4", "knee"):
        page = visit(f"?prior={show}&steps=2&step=2", width=width, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        page.context.close()


def test_touch_a_pixel(visit):
    page = visit("?prior=mnist&image=0&steps=2&step=1")
    page.locator("#lane-a canvas[data-view=heat]").click(position={"x": 40, "y": 40})
    page.wait_for_selector(".believes.b .bar")
    assert "at=" in page.url
    before = page.text_content("#pixel-place")
    page.keyboard.press("ArrowDown")  # the picture has the focus: the pixel moves, not the clock
    page.wait_for_function(f"() => document.getElementById('pixel-place').textContent !== {before!r}")
    assert page.text_content("#scrub-out") == "1 / 2"


def test_downloads(visit, tmp_path):
    page = visit("?prior=mnist&image=1&steps=2&step=2")
    for name in ("mask.npy", "mask.png", "reconstruction.png", "animation.gif"):
        with page.expect_download() as found:
            page.get_by_label(f"Download {name} of the first policy").click()
        found.value.save_as(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 50
    assert np.load(tmp_path / "mask.npy", allow_pickle=False).sum() == 102


def test_wrong_input_is_said_and_survived(visit, tmp_path):
    page = visit("?prior=none&image=-4&steps=999&budget=7&a=x&b=y&draw=@@&at=900,1&seed=z")
    assert page.text_content("#scrub-out").endswith("/ 32")
    (tmp_path / "text.png").write_text("this is no picture")
    page.click("#tab-file")
    page.set_input_files("#file", tmp_path / "text.png")
    page.wait_for_selector("#toast:not([hidden])")
    assert "not a picture" in page.text_content("#toast")


def test_own_file_and_colour_prior(visit, tmp_path):
    Image.new("RGB", (40, 30), (255, 0, 0)).save(tmp_path / "red.png")
    page = visit("?prior=mnist&steps=2&step=2")
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
    page = visit("?prior=mnist&steps=2&step=1", width=360, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    heights = page.evaluate("[...document.querySelectorAll('.lane')].map((lane) => lane.offsetHeight)")
    page.click("#next")
    assert page.evaluate("[...document.querySelectorAll('.lane')].map((lane) => lane.offsetHeight)") == heights
    small = "[...document.querySelectorAll('.transport button')].filter((b) => !b.hidden && b.offsetWidth < 40).length"
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
    page = visit("?prior=mnist&steps=2&step=2", scheme=scheme)
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
