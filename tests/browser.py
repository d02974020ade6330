"""A reader with headless Chromium: Debian's chromium and chromium-driver, selenium from pip.

KERAS_TRANSFORMER_AXE names a copy of axe.min.js, of the npm package axe-core.
"""

import os
import pathlib
import shutil
import time
import urllib.parse

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="the nightly job has a browser")

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
DRIVER = shutil.which("chromedriver")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--lang=en")
AXE = os.environ.get("KERAS_TRANSFORMER_AXE")
LONGEST = 120  # seconds for the first answer of a model, which may have to be compiled

needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromium-driver"
)


class Reader:
    """A browser with a window, and what one does with it."""

    def __init__(self, address, width=1280, scheme="light", flags=()):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in (*FLAGS, *flags):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.chrome.service.Service(DRIVER)
        self.driver = webdriver.Chrome(options=options, service=service)
        self.address, self.width = address, width
        size = dict(width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, **fragment):
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}#{urllib.parse.urlencode(fragment)}")

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def text(self, selector):
        found = "document.querySelector(arguments[0])?.textContent ?? ''"
        return self.run(f"return {found}", selector)

    def wait(self, holds, what):
        end = time.monotonic() + LONGEST
        while not holds():
            assert time.monotonic() < end, f"{what}: not within {LONGEST} s"
            time.sleep(0.05)

    def wait_for(self, selector, number=1):
        self.wait(lambda: len(self.all(selector)) >= number and not self.busy(), selector)

    def wait_for_text(self, selector, expected):
        self.wait(lambda: self.text(selector) == expected and not self.busy(), expected)

    def busy(self):
        return self.all('[aria-busy="true"]')

    def write(self, text):
        area = self.all("#text")[0]
        area.clear()
        area.send_keys(text)

    def click(self, selector):
        self.run("document.querySelector(arguments[0]).click()", selector)

    def errors(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def violations(self):
        """Serious and critical findings of axe; without it, skips the rest of a test."""
        if AXE is None:
            pytest.skip("KERAS_TRANSFORMER_AXE names no copy of axe.min.js")
        self.run(pathlib.Path(AXE).read_text("utf-8"))
        found = self.driver.execute_async_script("axe.run().then(arguments[0])")
        serious = [x for x in found["violations"] if x["impact"] in ("serious", "critical")]
        return [(x["id"], [node["html"][:200] for node in x["nodes"][:3]]) for x in serious]
