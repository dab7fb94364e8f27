"""Debian's chromium, driven by selenium: one browser for all tests, a blank page and no emulation for each."""

import time

import pytest

SIZE = {"width": 1200, "height": 1000, "deviceScaleFactor": 1, "mobile": False}


class Browser:
    """What the tests ask a page."""

    def __init__(self, driver):
        self.driver = driver
        self.js = driver.execute_script

    def cdp(self, command, **arguments):
        return self.driver.execute_cdp_cmd(command, arguments)

    def open(self, path, ready=True):
        self.driver.get(f"file://{path}")
        if ready:
            self.wait("return !!document.querySelector('.live .main-svg')")

    def wait(self, script, *arguments, seconds=30):
        """Return the first answer that is true."""
        end = time.monotonic() + seconds
        while not (answer := self.js(script, *arguments)):
            assert time.monotonic() < end, f"never true: {script}"
            self.js("return new Promise(requestAnimationFrame)")
        return answer

    def box(self, selector, place=0):
        return self.js(
            "const r = document.querySelectorAll(arguments[0])[arguments[1]].getBoundingClientRect();"
            "return {x: r.x, y: r.y, width: r.width, height: r.height}",
            selector,
            place,
        )

    def mouse(self, kind, x, y, **more):
        self.cdp("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key, code=None, **more):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" and len(key) == 1 else {}
            self.cdp("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, **text, **more)

    def tab(self):
        self.key("Tab", windowsVirtualKeyCode=9)

    def emulate(self, media="screen", scheme="light"):
        self.cdp(
            "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )

    def resize(self, width, height=1000):
        self.cdp("Emulation.setDeviceMetricsOverride", **{**SIZE, "width": width, "height": height})

    def log(self, kind):
        return self.driver.get_log(kind)


@pytest.fixture(scope="session")
def chromium():
    from selenium import webdriver  # here, since every run collects this file and few have a browser
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = "/usr/bin/chromium"
    arguments = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars"
    for argument in arguments.split():
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def browser(chromium):
    chromium.emulate()
    chromium.resize(1200)
    chromium.driver.get("about:blank")
    chromium.log("browser")
    chromium.log("performance")
    return chromium
