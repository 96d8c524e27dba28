# Recurring schedules: the list, the page of one, and the form that shows the next times while one types.
import re

from playwright.sync_api import expect

from page import accessible, ask, confirm, dashboard, go, heading, story

# Expressions with their words; those that have none are shown as they are written.
WORDS = [
    ("@daily", "Each day at 00:00"),
    ("@every 1h30m", "Every 1h30m"),
    ("30 6 * * *", "Each day at 06:30"),
    ("0 30 6 ? * *", "Each day at 06:30"),
    ("0 9 * * 1-5", "Monday to Friday at 09:00"),
    ("0 9 * * 7", "Each Sunday at 09:00"),
    ("0 9 1 * *", "On day 1 of each month at 09:00"),
    ("*/15 * * * *", "Every 15 minutes"),
    ("5 * * * *", "Each hour at minute 5"),
    ("*/7 * * * *", None),
    ("0 9 1 * 1", None),
    ("0 9 * 6 *", None),
    ("15 0 9 * * *", None),
    ("0 9 L * *", None),
]
# Text that would be an element where it is taken for markup.
REASON = "a <b>freeze</b>"


def row_of(page, id):
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=id, exact=True))


def answer(page, title, button, reason=None):
    """Says yes in the dialog that asks."""
    dialog = page.get_by_role("dialog", name=title)
    if reason is not None:
        dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name=button).click()
    expect(dialog).to_be_hidden()


@story
def schedules(address, report, stuck, other):
    """Found, paused with a reason, resumed and fired in the list; then all that match at once. `stuck` misses its times."""
    with dashboard(address) as page:
        page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name="Schedules").click()
        heading(page, "Schedules")
        ids = page.locator("tbody th a")
        expect(ids).to_have_text(sorted([report, stuck, other]))
        row = row_of(page, report)
        expect(row).to_contain_text("0 9 * * MON-FRI Europe/Berlin")
        expect(row).to_contain_text("Monday to Friday at 09:00")
        expect(row).to_contain_text("orders.report")
        expect(row.locator(".next-time time")).to_have_attribute("datetime", re.compile(r"T0[78]:00:00\.000Z$"))
        expect(row.locator(".last-time")).to_have_text("–")
        expect(row.locator(".missed")).to_have_text("0")
        expect(row_of(page, stuck)).to_contain_text("Every 1s")
        expect(row_of(page, stuck).locator(".last-time time")).to_be_visible()
        expect(row_of(page, stuck).locator(".missed .status")).to_have_attribute("data-level", "warn")

        # The answer no leaves the focus at the button.
        row.get_by_role("button", name=f"Pause {report}").click()
        dialog = page.get_by_role("dialog", name="Pause this schedule?")
        expect(dialog.get_by_label("Reason")).to_be_focused()
        accessible(page)
        dialog.get_by_role("button", name="Go back").click()
        expect(row.get_by_role("button", name=f"Pause {report}")).to_be_focused()
        row.get_by_role("button", name=f"Pause {report}").click()
        answer(page, "Pause this schedule?", "Pause", REASON)
        expect(page.locator(".verdict")).to_contain_text(f"Paused {report}")
        expect(page.locator(".verdict")).to_be_focused()
        expect(page.locator("#announce")).to_contain_text("Paused.")
        expect(row.locator(".next-time")).to_have_text(f"Paused{REASON}")
        assert page.locator("main b").count() == 0
        accessible(page)
        tabs = page.get_by_role("navigation", name="Which schedules")
        tabs.get_by_role("link", name="Paused").click()
        expect(ids).to_have_text([report])
        tabs.get_by_role("link", name="Active").click()
        expect(ids).to_have_text(sorted([stuck, other]))
        tabs.get_by_role("link", name="Missed within a day").click()
        expect(ids).to_have_text([stuck])
        expect(page.get_by_role("button", name="Pause all")).to_have_count(0)
        tabs.get_by_role("link", name="All").click()

        row.get_by_role("button", name=f"Fire now {report}").click()
        answer(page, "Make an occurrence now?", "Fire now")
        expect(page.locator(".verdict")).to_contain_text("An occurrence was made and is due now.")
        ask("see the fired one")
        row.get_by_role("button", name=f"Resume {report}").click()
        answer(page, "Resume this schedule?", "Resume")
        expect(row.locator(".next-time time")).to_contain_text("in ")

        page.get_by_role("searchbox", name="Part of the id").fill(other[:-1])
        page.get_by_role("button", name="Search").click()
        expect(ids).to_have_text([other])
        page.get_by_role("button", name="Pause all that match").click()
        expect(page.get_by_role("dialog")).to_contain_text(f"Schedules whose id has {other[:-1]}")
        answer(page, "Pause all schedules that match?", "Pause all", "a release")
        expect(page.locator(".verdict")).to_contain_text("1 schedule was paused.")
        expect(row_of(page, other).locator(".reason")).to_have_text("a release")
        ask("see one paused")
        page.get_by_role("button", name="Resume all that match").click()
        answer(page, "Resume all schedules that match?", "Resume all")
        expect(page.locator(".verdict")).to_contain_text("1 schedule was resumed.")
        page.get_by_role("searchbox", name="Part of the id").fill("nothing like it")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_text("No schedule matches.")).to_be_visible()


@story
def schedule_pages(address, many):
    """As many as several pages hold, each once."""
    with dashboard(address, "#/schedules") as page:
        ids = page.locator("tbody th a")
        pages = page.get_by_role("navigation", name="Pages of the list")
        expect(ids).to_have_count(50)
        seen = ids.all_text_contents()
        while len(seen) < int(many):
            first = ids.first.text_content()
            pages.get_by_role("link", name="Next page").click()
            expect(ids.first).not_to_have_text(first)
            expect(ids).to_have_count(min(50, int(many) - len(seen)))
            seen += ids.all_text_contents()
        assert seen == [f"nightly-{number:03}" for number in range(int(many))], seen
        expect(pages.get_by_role("link", name="Next page")).to_have_count(0)
        pages.get_by_role("link", name="Previous").click()
        expect(ids.first).to_have_text("nightly-050")


@story
def schedule(address, id, queue):
    """One schedule: its facts, its next ten times, its last job, and its end."""
    with dashboard(address, f"#/schedules/{id}") as page:
        heading(page, f"Schedule {id}")
        expect(page.locator(".job-head")).to_contain_text("Active")
        details = page.get_by_role("region", name="Details")
        expect(details).to_contain_text("0 9 * * *")
        expect(details).to_contain_text("Each day at 09:00")
        expect(details.get_by_role("link", name=queue)).to_be_visible()
        zoned = page.locator(".next-times .zoned")
        # The reader's own zone is not told twice.
        expect(page.locator(".next-times li")).to_have_count(10)
        expect(zoned).to_have_count(0)
        expect(page.get_by_role("region", name="The body", exact=True)).to_have_text("hello")
        expect(page.get_by_text("tenant")).to_be_visible()

        confirm(page, "Fire now", "Make an occurrence now?")
        expect(page.locator(".verdict")).to_contain_text("Verdict: firing")
        expect(page.locator(".verdict")).to_be_focused()
        page.locator(".verdict").get_by_role("link", name="To its job").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(f"Job {id}@")
        expect(page.locator(".job-head")).to_contain_text("Ready to be fetched")
        page.get_by_role("region", name="Details").get_by_role("link", name=id, exact=True).click()
        heading(page, f"Schedule {id}")
        expect(details).to_contain_text("1 occurrence")

        confirm(page, "Pause", "Pause this schedule?")
        expect(page.locator(".job-head")).to_contain_text("Paused")
        expect(page.locator(".next-times li")).to_have_count(10)
        confirm(page, "Resume", "Resume this schedule?")
        expect(page.locator(".job-head")).to_contain_text("Active")
        confirm(page, "End schedule", "End this schedule?")
        expect(page.locator(".verdict")).to_contain_text("Verdict: cancelled")
        expect(page.locator(".job-head")).to_contain_text("Ended")
        expect(page.get_by_role("group", name="Actions").get_by_role("button")).to_have_count(0)
        go(page, "#/schedules")
        expect(page.get_by_text("There are no recurring schedules.")).to_be_visible()
        go(page, f"#/schedules/{id}")
        expect(page.locator(".job-head")).to_contain_text("Not found")
        page.get_by_role("link", name="Look for a job with this id").click()
        expect(page.locator(".job-head")).to_contain_text("There is no job with this id")


@story
def schedule_form(address, id):
    """A new schedule, typed with a keyboard: wrong at first, then stored, edited, and not overwritten by another."""
    with dashboard(address, "#/schedules") as page:
        page.get_by_role("link", name="New schedule").click()
        heading(page, "New schedule")
        said = page.locator("#preview-said")
        times = page.get_by_label("Times", exact=True)
        page.get_by_label("Id", exact=True).fill(id)
        times.press_sequentially("0 25 * * *")
        expect(times).to_have_attribute("aria-invalid", "true")
        expect(said).to_have_class(re.compile("error"))
        expect(page.locator(".next-times li")).to_have_count(0)
        accessible(page)
        times.fill("")
        expect(said).to_have_text("The next times appear here while you type.")
        times.press_sequentially("0 9 * * *")
        expect(page.locator(".next-times li")).to_have_count(10)
        expect(times).not_to_have_attribute("aria-invalid", "true")
        zone = page.get_by_label("Time zone")
        zone.fill("America/New_York")
        expect(page.locator(".next-times .zoned").first).to_have_text(re.compile(r", 09:00:00 GMT-[45]$"))
        zone.fill("Nowhere/Land")
        expect(said).to_contain_text("Nowhere/Land")
        zone.fill("Europe/Berlin")
        expect(said).to_contain_text("Each day at 09:00. Next in ")
        expect(page.locator(".next-times .moment").nth(9)).to_have_attribute("datetime", re.compile(r"T0[78]:00:00\.000Z$"))
        count = page.get_by_label("Most occurrences")
        count.fill("3")
        expect(page.locator(".next-times li")).to_have_count(3)
        count.fill("")
        expect(page.locator(".next-times li")).to_have_count(10)

        store = page.get_by_role("button", name="Store")
        store.click()
        expect(page.locator("form").get_by_role("alert")).to_have_text("Enter a target.")
        page.get_by_label("Target", exact=True).fill("elsewhere")
        store.click()
        expect(page.locator("form").get_by_role("alert")).to_contain_text("elsewhere")
        page.get_by_label("Target", exact=True).fill("orders.report")
        page.get_by_label("Body").fill("first\nsecond")
        page.get_by_label("Headers").fill("{")
        store.click()
        expect(page.locator("form").get_by_role("alert")).to_contain_text("The headers are not JSON")
        page.get_by_label("Headers").fill('{"tenant": "acme"}')
        store.click()
        heading(page, f"Schedule {id}")
        expect(page.get_by_role("region", name="The body", exact=True)).to_have_text("first\nsecond")
        ask("see it stored")

        page.get_by_role("link", name="Edit").click()
        heading(page, f"Edit schedule {id}")
        expect(times).to_have_value("0 9 * * *")
        expect(page.get_by_label("Body")).to_have_value("first\nsecond")
        expect(page.locator(".next-times li")).to_have_count(10)
        times.fill("@every 30m")
        # A zone is not for elapsed time.
        expect(said).to_have_class(re.compile("error"))
        zone.fill("")
        expect(said).to_contain_text("Every 30m. Next in ")
        times.press("Enter")
        heading(page, f"Schedule {id}")
        expect(page.get_by_role("region", name="Details")).to_contain_text("@every 30m")
        ask("see it changed")

        go(page, "#/new-schedule")
        page.get_by_label("Id", exact=True).fill(id)
        times.fill("@daily")
        page.get_by_label("Target", exact=True).fill("orders.report")
        store.click()
        expect(page.locator("form").get_by_role("alert")).to_contain_text(id)
        ask("see it unchanged")


@story
def zoned(address, id):
    """The times of a schedule whose zone is not the reader's are told on both clocks, and its expression in words."""
    with dashboard(address, f"#/schedules/{id}") as page:
        heading(page, f"Schedule {id}")
        zoned = page.locator(".next-times .zoned")
        expect(zoned).to_have_count(10)
        told = page.evaluate(
            """async (expressions) => {
              const { inWords } = await import(new URL('assets/expression.js', document.baseURI));
              return expressions.map(inWords);
            }""",
            [expression for expression, _ in WORDS],
        )
        assert told == [words for _, words in WORDS], told
        for text in zoned.all_text_contents():
            assert re.fullmatch(r"[A-Z][a-z]{2} \d{1,2} [A-Z][a-z]{2} \d{4}, 09:00:00 GMT\+9", text), text
        # Tokyo has no summer time: nine o'clock there is midnight of UTC.
        for at in page.locator(".next-times time").all():
            assert at.get_attribute("datetime").endswith("T00:00:00.000Z"), at.get_attribute("datetime")


@story
def hostile_schedules(address, *ids):
    """Each id has an address, also those that are words of the API, and is text."""
    with dashboard(address, "#/schedules") as page:
        for id in ids:
            go(page, "#/schedules")
            page.get_by_role("link", name=id, exact=True).click()
            expect(page.get_by_role("heading", level=1)).to_have_text(f"Schedule {id}")
            expect(page.locator(".job-head")).to_contain_text("Active")
            confirm(page, "Pause", "Pause this schedule?")
            expect(page.locator(".job-head")).to_contain_text("Paused")
            page.get_by_role("link", name="Edit").click()
            expect(page.get_by_role("heading", level=1)).to_have_text(f"Edit schedule {id}")
            page.get_by_role("button", name="Store").click()
            expect(page.get_by_role("heading", level=1)).to_have_text(f"Schedule {id}")
            expect(page.locator(".job-head")).to_contain_text("Paused")
            assert page.locator("main :is(script, img, b)").count() == 0


@story
def kept(address, *ids):
    """An edit of the times alone."""
    with dashboard(address) as page:
        for id in ids:
            go(page, f"#/schedules/{id}/edit")
            page.get_by_label("Times", exact=True).fill("@hourly")
            page.get_by_role("button", name="Store").click()
            heading(page, f"Schedule {id}")
            expect(page.get_by_role("region", name="Details")).to_contain_text("@hourly")
