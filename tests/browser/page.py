# A page of the dashboard in headless Chromium, and what must hold for every page.
import os
import sys
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

# Far more than anything takes: only a broken page meets it.
PATIENCE_MS = 20_000
expect.set_options(timeout=PATIENCE_MS)


def story(function):
    function.is_story = True
    return function


def ask(word):
    """Asks the test, which holds the servers, to do something, and waits until it has."""
    print(word, flush=True)
    answer = sys.stdin.readline().strip()
    assert answer == "done", f"{word}: {answer!r}"


@contextmanager
def browser():
    with sync_playwright() as playwright:
        # Without a sandbox: where tests run as root, Chromium has none.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        chromium = playwright.chromium.launch(executable_path=os.environ["DWELL_CHROMIUM"], args=arguments)
        yield chromium
        chromium.close()


@contextmanager
def dashboard(address, where="#/", *, theme="light", width=1280, height=900, chromium=None):
    """A page, which at its end must have had no error and broken none of its own rules."""
    if chromium is None:
        with browser() as own, dashboard(address, where, theme=theme, width=width, height=height, chromium=own) as page:
            yield page
        return
    context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=theme, timezone_id="Europe/Berlin", locale="en-GB")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    errors = []
    page.on("pageerror", lambda error: errors.append(f"error: {error}"))
    # That a call answered 404 or 409 is what some stories are about; Chromium says so by itself.
    page.on("console", lambda said: said.text.startswith("Failed to load resource") or errors.append(f"{said.type}: {said.text}"))
    page.on("dialog", lambda box: errors.append(f"a box of script: {box.message}"))
    page.on("request", lambda request: request.url.startswith((f"http://{address}/", "data:")) or errors.append(f"asked elsewhere: {request.url}"))
    page.goto(f"http://{address}/{where}")
    yield page
    assert errors == [], errors
    context.close()


def go(page, where):
    page.evaluate("where => { location.hash = where }", where)


def heading(page, text):
    expect(page.get_by_role("heading", level=1, name=text)).to_be_visible()


def fits(page):
    """Nothing sticks out to the side."""
    wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    out = "wide => [...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect().right > wide).map(one => one.outerHTML.slice(0, 200))"
    assert wide[0] <= wide[1], f"{page.url} is {wide[0]} px wide in a window of {wide[1]}: {page.evaluate(out, wide[1])}"


def accessible(page):
    """What axe-core finds: nothing."""
    found = Axe().run(page).response["violations"]
    assert found == [], [(one["id"], one["impact"], [node["html"] for node in one["nodes"]][:3]) for one in found]


def confirm(page, button, title):
    """Presses a button, and yes in the dialog that asks."""
    page.get_by_role("group", name="Actions").get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog", name=title)
    expect(dialog).to_be_visible()
    dialog.locator("button[type=submit]").click()
    expect(dialog).to_be_hidden()
