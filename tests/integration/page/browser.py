"""Chromium for the tests of the page: tabs that record faults, and screenshots."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

#: The height of a window.
HEIGHT = 860
#: The directory in which screenshots are kept; none are kept when it is not set.
DIRECTORY = 'PLACEMENT_TEST_SCREENSHOTS'
_NAMES = ('chromium', 'chromium-browser', 'google-chrome')
#: The impacts of axe that count as serious.
_SERIOUS = ('serious', 'critical')
_OUTSIDE = """() => [...document.querySelectorAll('main section table, main section p, main section svg')]
    .filter(one => !one.parentElement.closest('.scroll'))
    .filter(one => one.getBoundingClientRect().right > one.closest('section').getBoundingClientRect().right)
    .map(one => one.outerHTML.slice(0, 80))"""


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A running Chromium, which tools/install-page.sh installs."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, _NAMES)), _NAMES[0])
    with sync_playwright() as playwright:
        # The pages can be trusted, and containers often do not allow what the sandbox needs.
        browser = playwright.chromium.launch(executable_path=program, args=['--no-sandbox'])
        yield browser
        browser.close()


class Tab:
    """One page of a browser, in a window of some width, on one service.

    ``complaints`` collects errors of the browser and requests to other hosts.
    """

    def __init__(self, browser: Any, address: str, width: int, scripts: bool = True) -> None:
        self._address = address
        self._context = browser.new_context(viewport={'width': width, 'height': HEIGHT}, java_script_enabled=scripts)
        self.page = self._context.new_page()
        self.complaints: list[str] = []
        self.page.on('console', lambda message: self.complaints.append(message.text))
        self.page.on('pageerror', lambda error: self.complaints.append(str(error)))
        self.page.on('request', self._judge)

    def _judge(self, request: Any) -> None:
        # Browsers request an icon by themselves.
        if urlsplit(request.url).netloc != urlsplit(self._address).netloc:
            self.complaints.append(f'asked for {request.url}')

    def open(self, path: str) -> int:
        """Open a view and return the status."""
        return int(self.page.goto(self._address + path).status)

    def resize(self, width: int, scheme: str) -> None:
        """Change the width of the window, and the color scheme that its user prefers, as loading it again would."""
        self.page.set_viewport_size({'width': width, 'height': HEIGHT})
        self.page.emulate_media(color_scheme=scheme)

    def serious(self) -> list[str]:
        """The serious accessibility faults that axe finds."""
        from axe_playwright_python.sync_playwright import Axe

        violations = Axe().run(self.page).response['violations']
        return [
            f'{violation["id"]} ({violation["impact"]}): {node["html"]} {node["failureSummary"]}'
            for violation in violations
            if violation['impact'] in _SERIOUS
            for node in violation['nodes']
        ]

    def overflow(self) -> int:
        """How many pixels of the page lie beyond the right edge."""
        return int(self.page.evaluate('document.documentElement.scrollWidth - innerWidth'))

    def outside(self) -> list[str]:
        """The tables, texts and drawings that leave the section around them, unless they can be scrolled there."""
        return list(self.page.evaluate(_OUTSIDE))

    def keep(self, name: str) -> None:
        """Save a screenshot of the whole page, if screenshots are kept."""
        if os.environ.get(DIRECTORY):
            directory = pathlib.Path(os.environ[DIRECTORY])
            directory.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(directory / f'{name}.png'), full_page=True)

    def close(self) -> None:
        self._context.close()


@contextlib.contextmanager
def tab(browser: Any, address: str, width: int = 1280, *, scripts: bool = True) -> Iterator[Tab]:
    """A tab that is closed at the end; fails if it has recorded complaints."""
    opened = Tab(browser, address, width, scripts)
    try:
        yield opened
        assert not opened.complaints, opened.complaints
    finally:
        opened.close()


def has_text(locator: Any, text: str) -> None:
    """Wait until an element has a text."""
    from playwright.sync_api import expect

    expect(locator).to_have_text(text)


def has_focus(locator: Any) -> None:
    """Wait until an element has the focus."""
    from playwright.sync_api import expect

    expect(locator).to_be_focused()
