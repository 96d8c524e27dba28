# Jobs that wait: finding them, and what can be done with one.
import re

from playwright.sync_api import expect

from page import confirm, dashboard, go, heading, story

# Noon of a day next month where the reader is: as it is typed, and in UTC.
NEXT_MONTH = """() => {
  const now = new Date();
  const noon = new Date(now.getFullYear(), now.getMonth() + 1, 15, 12);
  const two = (number) => String(number).padStart(2, '0');
  return [`${noon.getFullYear()}-${two(noon.getMonth() + 1)}-15T12:00:00`, noon.toISOString()];
}"""


@story
def cancel(address, job):
    """From the overview to the job, cancelled, and gone from the list."""
    with dashboard(address) as page:
        heading(page, "Overview")
        page.get_by_role("link", name=job, exact=True).click()
        heading(page, f"Job {job}")
        expect(page.locator(".job-head")).to_contain_text("Scheduled")
        body = page.get_by_role("region", name="The body", exact=True)
        expect(body).to_have_text('{\n  "order": 17\n}')
        page.get_by_role("radio", name="Hex").check(force=True)
        expect(body).to_contain_text("7b 22 6f 72 64 65 72 22")
        page.get_by_role("radio", name="Text").check(force=True)
        expect(body).to_have_text('{"order": 17}')
        expect(page.get_by_text("tenant")).to_be_visible()

        actions = page.get_by_role("group", name="Actions")
        actions.get_by_role("button", name="Cancel job").click()
        dialog = page.get_by_role("dialog", name="Cancel this job?")
        expect(dialog).to_contain_text(job)
        dialog.get_by_role("button", name="Go back").click()
        expect(dialog).to_be_hidden()
        expect(page.locator(".job-head")).to_contain_text("Scheduled")

        confirm(page, "Cancel job", "Cancel this job?")
        expect(page.locator(".verdict")).to_contain_text("The job was never published, and will not be.")
        expect(page.locator(".verdict")).to_contain_text("Verdict: cancelled")
        expect(page.locator(".job-head")).to_contain_text("Gone")
        expect(actions.get_by_role("button")).to_have_count(0)
        page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name="Jobs").click()
        heading(page, "Jobs")
        expect(page.get_by_role("link", name="stays")).to_be_visible()
        expect(page.get_by_role("link", name=job, exact=True)).to_have_count(0)
        go(page, f"#/jobs/{job}")
        expect(page.locator(".job-head")).to_contain_text("There is no job with this id")


@story
def reschedule_and_fire(address, job):
    with dashboard(address, f"#/jobs/{job}") as page:
        heading(page, f"Job {job}")
        page.get_by_role("button", name="Reschedule").click()
        dialog = page.get_by_role("dialog", name="Give this job a new due time")
        wait = dialog.get_by_role("textbox", name="In", exact=True)
        wait.fill("five parsecs")
        dialog.get_by_role("button", name="Reschedule").click()
        expect(dialog.get_by_role("alert")).to_contain_text("five parsecs")
        wait.fill("3h")
        dialog.get_by_role("button", name="Reschedule").click()
        expect(dialog).to_be_hidden()
        expect(page.locator(".verdict")).to_contain_text("The job has its new due time.")
        expect(page.locator(".verdict time")).to_contain_text("in 2 h 59 min")
        expect(page.locator(".job-head")).to_contain_text("in 2 h 59 min")

        page.get_by_role("button", name="Reschedule").click()
        local, utc = page.evaluate(NEXT_MONTH)
        dialog.get_by_label("At (your time)").last.fill(local)
        dialog.get_by_role("button", name="Reschedule").click()
        expect(page.locator(".verdict time")).to_have_attribute("datetime", utc)

        confirm(page, "Fire now", "Publish this job now?")
        expect(page.locator(".verdict")).to_contain_text("Verdict: firing")
        expect(page.locator(".job-head")).to_contain_text("Gone")


@story
def finish_and_fail(address, done, failing):
    """The word of a consumer, said for it."""
    with dashboard(address, f"#/jobs/{done}") as page:
        expect(page.locator(".job-head")).to_contain_text("Waits for its consumer")
        confirm(page, "Finish", "Finish this job?")
        expect(page.locator(".verdict")).to_contain_text("Verdict: finished")
        expect(page.locator(".job-head")).to_contain_text("Gone")
        go(page, f"#/jobs/{failing}")
        expect(page.locator(".job-head")).to_contain_text("Waits for its consumer")
        confirm(page, "Fail attempt", "Fail this attempt?")
        expect(page.locator(".verdict")).to_contain_text("Verdict: failed")
        expect(page.locator(".job-head")).to_contain_text("Dead")


@story
def lists(address):
    """240 jobs: by pages, by target, by id, by the step of the chart in which they fall due."""
    with dashboard(address, "#/jobs") as page:
        ids = page.locator("tbody th a")
        expect(ids).to_have_count(50)
        seen = ids.all_text_contents()
        written(page)
        pages = page.get_by_role("navigation", name="Pages of the list")
        for many in (50, 50, 50, 40):
            first = ids.first.text_content()
            pages.get_by_role("link", name="Next page").click()
            expect(ids.first).not_to_have_text(first)
            # A windowful comes first.
            expect(ids).to_have_count(many)
            seen += ids.all_text_contents()
        assert seen == [f"job-{number:03}" for number in range(240)], seen
        expect(pages.get_by_role("link", name="Next page")).to_have_count(0)
        pages.get_by_role("link", name="Previous").click()
        expect(ids.first).to_have_text("job-150")
        pages.get_by_role("link", name="First page").click()
        expect(ids.first).to_have_text("job-000")

        page.get_by_role("searchbox", name="Target").fill("orders.rare")
        page.get_by_role("button", name="Search").click()
        expect(ids).to_have_text(["job-007", "job-107", "job-207"])
        page.reload()
        expect(ids).to_have_text(["job-007", "job-107", "job-207"])
        page.get_by_role("searchbox", name="Target").fill("orders.nowhere")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_text("No job matches.")).to_be_visible()

        page.get_by_role("searchbox", name="Find a job by its id").fill("job-123")
        page.keyboard.press("Enter")
        heading(page, "Job job-123")
        page.get_by_role("searchbox", name="Find a job by its id").fill("job-none")
        page.keyboard.press("Enter")
        expect(page.locator(".job-head")).to_contain_text("There is no job with this id")

        go(page, "#/")
        page.get_by_role("radio", name="Day").check(force=True)
        expect(page.locator(".summary")).to_contain_text("240 jobs fall due within the next day")
        expect(page.locator("canvas")).to_have_attribute("aria-label", "Bar chart. " + page.locator(".summary").text_content() + " The table below has the same data.")
        page.get_by_text("As a table").click()
        links = page.locator("table.plain tbody a")
        assert sum(int(text) for text in links.all_text_contents()) == 240
        number = int(links.first.text_content())
        links.first.click()
        heading(page, "Jobs")
        expect(page.get_by_text("Only jobs due from")).to_be_visible()
        expect(ids).to_have_count(min(number, 50))


def written(page):
    """Times are those of the reader's zone, and numbers as English people write them."""
    times = page.locator("tbody time").evaluate_all(
        "times => times.map(time => [time.querySelector('.abs').textContent, new Date(Number(time.dataset.at)).toLocaleTimeString('en-GB')])"
    )
    assert len(times) == 50, times
    for text, clock in times:
        assert re.fullmatch(rf"(\d{{1,2}} [A-Z][a-z]{{2}}( \d{{4}})?, )?{clock}", text), (text, clock)
    # A summer's day of another year in Berlin.
    told = page.evaluate(
        """async () => {
          const { absolute, bytes, count, rate, weekday } = await import(new URL('assets/format.js', document.baseURI));
          const at = Date.UTC(2024, 6, 1, 22, 5, 9);
          return [...[0, 999, 1000, 1234567, 1234.56].map(count), rate(0.04), bytes(1023), bytes(1536), weekday(at), absolute(at, Date.UTC(2026, 0, 1))];
        }"""
    )
    assert told == ["0", "999", "1,000", "1,234,567", "1,234.6", "0/s", "1023 B", "1.5 KiB", "Tue 00:05", "2 Jul 2024, 00:05:09"], told


@story
def hostile(address, *jobs):
    """What producers write is text, whatever it looks like, and every id has an address."""
    with dashboard(address, "#/jobs") as page:
        for job in jobs:
            go(page, "#/jobs")
            page.get_by_role("link", name=job, exact=True).click()
            expect(page.get_by_role("heading", level=1)).to_have_text(f"Job {job}")
            expect(page.locator(".job-head")).to_contain_text("Scheduled")
            page.reload()
            expect(page.locator(".job-head")).to_contain_text("Scheduled")
            expect(page.get_by_role("region", name="The body", exact=True)).to_have_text("</pre><script>alert(1)</script>")
            assert page.locator("main :is(script, img, b)").count() == 0
