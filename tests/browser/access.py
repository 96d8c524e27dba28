# Who may look, and by which means: tokens, a keyboard alone, a screen reader, a phone, either theme.
from playwright.sync_api import expect

from page import accessible, browser, dashboard, fits, go, heading, story

PHONE = 375
SMALLEST = 320


@story
def token(address, right):
    with dashboard(address, "#/jobs") as page:
        heading(page, "Sign in")
        field = page.get_by_label("Token")
        expect(field).to_be_focused()
        accessible(page)
        field.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("The token is wrong. Check it and try again.")
        expect(field).to_have_value("")
        page.get_by_label("Token").fill("\u2019 no header can hold this")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("The token is wrong. Check it and try again.")
        page.get_by_label("Token").fill(f" {right}\n")
        page.get_by_role("button", name="Sign in").click()
        heading(page, "Jobs")
        expect(page.get_by_role("link", name="secret-job")).to_be_visible()
        expect(page.locator("#live")).to_have_text("Live")
        page.reload()
        expect(page.get_by_role("link", name="secret-job")).to_be_visible()
        assert right not in page.url and right not in page.content()
        kept = page.evaluate("[Object.values(localStorage).join(), document.cookie]")
        assert kept == ["", ""], kept
        page.get_by_role("button", name="Sign out").click()
        heading(page, "Sign in")
        assert page.evaluate("sessionStorage.length") == 0
        expect(page.get_by_role("link", name="secret-job")).to_have_count(0)


@story
def keyboard(address, job):
    """No pointer: from the first Tab to a cancelled job."""
    with dashboard(address) as page:
        heading(page, "Overview")
        focused = page.locator(":focus")
        page.keyboard.press("Tab")
        expect(focused).to_have_text("Skip to content")
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        page.keyboard.press("/")
        expect(page.get_by_role("searchbox", name="Find a job by its id")).to_be_focused()
        page.keyboard.type(job)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_be_focused()
        expect(page.locator(".job-head")).to_contain_text("Scheduled")
        for name in ["Fire now", "Reschedule", "Cancel job"]:
            page.keyboard.press("Tab")
            expect(focused).to_have_text(name)
            ring = focused.evaluate("element => getComputedStyle(element).outlineStyle")
            assert ring == "solid", f"no ring around {name}: {ring}"
        page.keyboard.press("Enter")
        expect(focused).to_have_text("Go back")
        page.keyboard.press("Escape")
        expect(focused).to_have_text("Cancel job")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(focused).to_have_text("Cancel job")
        page.keyboard.press("Enter")
        expect(page.locator(".verdict")).to_be_focused()
        expect(page.locator(".verdict")).to_contain_text("Cancelled")
        expect(page.locator("#announce")).to_contain_text("Cancelled")


@story
def everywhere(address, job, dead, queue, schedule):
    """Each page in each theme, wide and narrow: axe-core finds nothing, and nothing sticks out."""
    with browser() as chromium:
        for theme in ("light", "dark"):
            for width in (1280, PHONE):
                with dashboard(address, theme=theme, width=width, chromium=chromium) as page:
                    for where, title in [("#/", "Overview"), ("#/jobs", "Jobs"), (f"#/jobs/{job}", f"Job {job}"), (f"#/jobs/{dead}", f"Job {dead}"), ("#/queues", "Queues"), (f"#/queues/{queue}", f"Queue {queue}"), ("#/schedules", "Schedules"), (f"#/schedules/{schedule}", f"Schedule {schedule}"), (f"#/schedules/{schedule}/edit", f"Edit schedule {schedule}"), ("#/new-schedule", "New schedule"), ("#/dead", "Dead letters"), ("#/nowhere", "There is no such page")]:
                        go(page, where)
                        heading(page, title)
                        expect(page.get_by_text("Loading…").filter(visible=True)).to_have_count(0)
                        if where == "#/":
                            page.get_by_text("As a table").click()
                        accessible(page)
                        fits(page)
                        if width == PHONE:
                            page.set_viewport_size({"width": SMALLEST, "height": 640})
                            fits(page)
                            page.set_viewport_size({"width": PHONE, "height": 900})
                    for where, button in [(f"#/jobs/{job}", "Reschedule"), (f"#/queues/{queue}", "Purge"), (f"#/schedules/{schedule}", "Resume")]:
                        go(page, where)
                        page.get_by_role("button", name=button).click()
                        expect(page.get_by_role("dialog")).to_be_visible()
                        accessible(page)
                        fits(page)
                        page.keyboard.press("Escape")


@story
def themes(address):
    """The system's, unless one was chosen; what was chosen is kept, and set before anything is painted."""
    paper = "getComputedStyle(document.body).backgroundColor"
    with browser() as chromium:
        with dashboard(address, theme="light", chromium=chromium) as page:
            light = page.evaluate(paper)
            button = page.locator("#theme")
            expect(button).to_have_text("Auto")
            page.emulate_media(color_scheme="dark")
            dark = page.evaluate(paper)
            assert light != dark
            button.click()
            expect(button).to_have_text("Light")
            assert page.evaluate(paper) == light
            button.click()
            page.emulate_media(color_scheme="light")
            expect(button).to_have_text("Dark")
            assert page.evaluate(paper) == dark
            page.reload()
            expect(button).to_have_text("Dark")
            assert page.evaluate(paper) == dark
            button.click()
            assert page.evaluate(paper) == light
