"""Reads a built site as a phone and a desktop do, in headless Chromium, on white and on dark.

  pip install selenium && python .ci/browse_site.py runs/site [--pictures FOLDER]

Every page must be without console errors, without code or formulas that a desktop of 1,280 pixels
cuts off, and without anything wider than a phone of 390 pixels that does not scroll by itself;
every link within the site must lead somewhere, and the search must find some words. Needs chromium
(or Chrome) and its chromedriver. --pictures writes each page, whole, in both widths and themes.
"""

import argparse
import contextlib
import functools
import http.server
import itertools
import pathlib
import shutil
import sys
import threading
import urllib.parse

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

WIDTHS = {"phone": 390, "desktop": 1280}
SEARCHED = {
    "look-ahead": "chapters/",
    "tokenisation": "chapters/",
    "因果掩码": ".zh-CN",
    "子词": ".zh-CN",
}
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]
TOO_WIDE = """
const width = document.documentElement.clientWidth;
const scrolls = e => e && (["auto", "scroll"].includes(getComputedStyle(e).overflowX)
    || getComputedStyle(e).position == "fixed" || scrolls(e.parentElement));
return [...document.querySelectorAll("main *, footer *")]
    .filter(e => !e.closest("mjx-assistive-mml"))  // for screen readers
    .filter(e => e.getClientRects().length && e.getBoundingClientRect().right > width + 1
        && !scrolls(e))
    .map(e => `${e.tagName} ${e.className} ${(e.textContent || e.alt || "").trim().slice(0, 60)}`)
    .slice(0, 3);
"""
CUT_OFF = """
const pre = [...document.querySelectorAll("main pre")]
    .filter(e => e.getClientRects().length && e.scrollWidth > e.clientWidth + 2);
const formulas = [...document.querySelectorAll("main mjx-container[display]")]
    .filter(e => e.firstElementChild.getBoundingClientRect().width > e.clientWidth + 2);
return [...pre, ...formulas].map(e => e.textContent.trim().slice(0, 60));
"""
BROKEN_IMAGES = """
return [...document.images].filter(e => e.currentSrc && e.complete && !e.naturalWidth
    && new URL(e.currentSrc).origin == location.origin).map(e => e.currentSrc);
"""
LINKS = """
return [...document.querySelectorAll("a[href]")]
    .map(e => new URL(e.getAttribute("href"), location).href)  // in an SVG, e.href is an object
    .filter(h => h.startsWith(location.origin));
"""
TARGETS = "return [...document.querySelectorAll('[id], a[name]')].map(e => e.id || e.name);"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextlib.contextmanager
def served(folder):
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def browser():
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    names = ("chromium", "google-chrome", "chrome")
    options.binary_location = next(filter(None, map(shutil.which, names)), "")
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    return webdriver.Chrome(options, service)


def resize(driver, width, height=844):
    """The window's minimum is 500 pixels; the screen that the page sees is not."""
    screen = dict(width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)


def errors_of(driver, origin):
    """Console errors, but for files of other hosts, which a machine without a network lacks."""
    for entry in driver.get_log("browser"):
        if entry["level"] == "SEVERE":
            address = entry["message"].split(" ", 1)[0]
            if not address.startswith("http") or address.startswith(origin):
                yield entry["message"]


def take_picture(driver, path):
    height = driver.execute_script("return document.documentElement.scrollHeight")
    width = driver.execute_script("return document.documentElement.clientWidth")
    resize(driver, width, min(height, 16000))
    path.parent.mkdir(parents=True, exist_ok=True)
    driver.save_screenshot(str(path))
    resize(driver, width)


def look(driver, origin, page, device):
    """What is wrong with one page."""
    driver.get(f"{origin}/{page}")
    yield from (f"console: {text}" for text in errors_of(driver, origin))
    yield from (f"no image at {source}" for source in driver.execute_script(BROKEN_IMAGES))
    if device == "phone":
        for element in driver.execute_script(TOO_WIDE):
            yield f"wider than the screen: {' '.join(element.split())}"
    else:
        for text in driver.execute_script(CUT_OFF):
            yield f"cut off: {' '.join(text.split())}"


def broken_links(folder, origin, links, targets):
    for page, of_page in links.items():
        for link in sorted(set(of_page)):
            path, fragment = urllib.parse.urldefrag(urllib.parse.unquote(link[len(origin) + 1 :]))
            path = path.split("?")[0] or "index.html"
            if not (folder / path).is_file():
                yield f"{page}: link to {path}, which does not exist"
            elif fragment and path in targets and fragment not in targets[path]:
                yield f"{page}: link to {path}#{fragment}, which has no such place"


def results_of_search(driver):
    return driver.find_elements(By.CSS_SELECTOR, "#search-results li a")


def unfound(driver, origin):
    for words, expected in SEARCHED.items():
        driver.get(f"{origin}/search.html?q={urllib.parse.quote(words)}")
        with contextlib.suppress(TimeoutException):
            WebDriverWait(driver, 20).until(results_of_search)
        found = [link.get_attribute("href") for link in results_of_search(driver)]
        print(f"search for {words!r}: {len(found)} results")
        if not any(expected in address for address in found):
            yield f"search for {words!r} finds nothing in {expected}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--pages", nargs="+", help="(default: all)", metavar="PAGE")
    args = parser.parse_args()
    pages = args.pages or sorted(
        str(path.relative_to(args.site))
        for path in args.site.rglob("*.html")
        if not str(path.relative_to(args.site)).startswith(("_modules", "_static", "search", "try"))
    )
    problems, links, targets = [], {}, {}
    with served(args.site) as origin, browser() as driver:
        for theme, (device, width) in itertools.product(("light", "dark"), WIDTHS.items()):
            resize(driver, width)
            driver.get(f"{origin}/{pages[0]}")
            driver.execute_script("localStorage.mode = localStorage.theme = arguments[0]", theme)
            for page in pages:
                where = f"{page}, {device}, {theme}"
                print(where, file=sys.stderr)
                problems += (
                    f"{where}: {problem}" for problem in look(driver, origin, page, device)
                )
                if page not in links:  # they are those of every theme and width
                    links[page] = driver.execute_script(LINKS)
                    targets[page] = driver.execute_script(TARGETS)
                if args.pictures:
                    name = f"{page.removesuffix('.html').replace('/', '_')}_{device}_{theme}.png"
                    take_picture(driver, args.pictures / name)
        problems += broken_links(args.site, origin, links, targets)
        problems += unfound(driver, origin)
    print(f"{len(pages)} pages, {sum(map(len, links.values()))} links")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
