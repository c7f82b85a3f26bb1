"""A report as whoever it is sent to sees it."""

import json
import shutil

import pytest

from robopolicy.cli import main
from robopolicy.experiments.runs import find_run

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: robopolicy[browser]")
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="chromium and its driver are not installed"),
]
SECONDS = 1.5
WIDTHS = (1280, 390)  # a page, and a phone
LOOK = """
const wide = document.documentElement.scrollWidth;
const outside = [...document.querySelectorAll('main *:not(.scroll *)')].filter(
  element => element.getBoundingClientRect().right > innerWidth + 1);
return {
  wide, outside: outside.map(element => element.outerHTML.slice(0, 80)),
  pictures: [...document.images].map(image => image.complete && image.naturalWidth),
  videos: document.querySelectorAll('video').length,
};
"""
PLAY = """
const [done, video] = [arguments[0], document.querySelector('video')];
video.muted = true;
video.onended = () => done({duration: video.duration, height: video.videoHeight});
video.onerror = () => done(video.error.message);
video.play().catch(error => done(String(error)));
"""


@pytest.fixture(scope="module")
def pages(once):
    """A report with a film, of a run whose name is wider than a phone, and one of several runs."""

    def make(folder):
        long_named = folder / ("a-long-name" * 12)
        shutil.copytree(find_run("stepping-stones-softmax")[0], long_named)
        config = json.loads((long_named / "config.json").read_text())
        config["es"] |= {"seed": 1, "shaping": "<script>document.title = 'owned'</script>"}
        (long_named / "config.json").write_text(json.dumps(config))
        film = f"--episodes 0 --episode-seconds {SECONDS} --size 320 240 --engine mujoco"
        others = "stepping-stones-softmax stepping-stones-planned --no-video"
        for name, words in (("film", film), ("several", others)):
            out = str(folder / f"{name}.html")
            assert main(["report", str(long_named), *words.split(), "--out", out]) == 0

    return once("reports", make)


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window, that keeps what pages ask the network for."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    # The sandbox cannot be had as root, nor in most containers.
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("name", "films"), [("film", 1), ("several", 0)])
def test_a_page_is_whole_and_quiet_and_fits(browser, pages, name, films, width):
    page = (pages / f"{name}.html").as_uri()
    screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get_log("performance")
    browser.get(page)
    browser.execute_script("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    seen = browser.execute_script(LOOK)
    assert seen["outside"] == []
    assert 0 < seen["wide"] <= width
    assert len(seen["pictures"]) == 2
    assert all(seen["pictures"])
    assert seen["videos"] == films
    assert browser.title == "stepping-stones"
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [page]


def test_its_film_plays_to_the_end(browser, pages):
    browser.get((pages / "film.html").as_uri())
    browser.set_script_timeout(60)
    played = browser.execute_async_script(PLAY)
    assert played == {"duration": pytest.approx(SECONDS, abs=0.2), "height": 240}
