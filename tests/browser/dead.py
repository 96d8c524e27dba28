# Dead letters: their reasons, and their way back.
from playwright.sync_api import expect

from page import ask, confirm, dashboard, heading, story


@story
def requeue(address, one, *others):
    """One by its page, the others together."""
    with dashboard(address) as page:
        expect(page.locator(".overall")).to_contain_text(f"{1 + len(others)} jobs died within the last hour")
        page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name="Dead letters").click()
        heading(page, "Dead letters")
        expect(page.locator(".reasons")).to_have_text(f"{1 + len(others)} retries exhausted.")
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=one, exact=True))
        expect(row).to_contain_text("Retries exhausted")
        expect(row).to_contain_text("no stream has the subject")
        expect(page.get_by_role("columnheader", name="Died")).to_be_visible()
        row.get_by_role("link", name=one).click()
        expect(page.locator("dt").filter(has_text="Died")).to_be_visible()
        expect(page.locator(".job-head")).to_contain_text("All attempts of the retry array failed.")
        expect(page.locator(".trouble")).to_contain_text("no stream has the subject")
        ask("make the stream")
        confirm(page, "Requeue", "Requeue this job?")
        expect(page.locator(".verdict")).to_contain_text("Verdict: requeued")
        expect(page.locator(".job-head")).to_contain_text("Gone")

        page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name="Dead letters").click()
        expect(page.locator("tbody tr")).to_have_count(len(others))
        selected = page.locator(".toolbar button").first
        expect(selected).to_be_disabled()
        page.get_by_role("checkbox", name=f"Select {others[0]}").check()
        expect(selected).to_have_text("Requeue 1 job")
        selected.click()
        page.get_by_role("dialog", name="Requeue 1 dead letter?").get_by_role("button", name="Requeue").click()
        expect(page.get_by_role("heading", name="Done.")).to_be_focused()
        expect(page.locator(".line")).to_have_text("1 dead letter: 1 requeued.")
        expect(page.locator("tbody tr")).to_have_count(len(others) - 1)

        page.get_by_role("button", name="Requeue all").click()
        page.get_by_role("dialog").get_by_role("button", name="Requeue").click()
        expect(page.locator(".line")).to_have_text(f"{len(others) - 1} dead letters: {len(others) - 1} requeued.")
        told = sorted(page.locator(".verdicts a").all_text_contents())
        assert told == sorted(others[1:]), told
        expect(page.get_by_text("There are no dead letters.")).to_be_visible()
        expect(page.locator("#dead-count")).to_be_hidden()
