# What is told of servers: a broker that is away, Redis that is away, a sidecar that stands still.
import re

from playwright.sync_api import expect

from page import ask, dashboard, story


@story
def servers(address):
    with dashboard(address) as page:
        overall = page.locator(".overall")
        expect(overall).to_contain_text("All is well, and on time.")
        expect(page.locator("#live")).to_have_text("Live")
        redis = page.locator(".parts li").filter(has_text="Redis")
        broker = page.locator(".parts li").filter(has_text="NATS second")
        expect(redis).to_contain_text("Answers")
        expect(broker).to_contain_text("Connected")
        ask("kill the broker")
        expect(broker).to_contain_text("Away")
        expect(overall).to_contain_text("Broker second is away")
        # Due while it is away: it is told as overdue.
        expect(page.locator(".tile").first).to_contain_text("1 overdue")
        ask("kill redis")
        expect(overall).to_contain_text("Redis does not answer.")
        expect(redis).to_contain_text("Away")
        ask("start both")
        expect(overall).to_contain_text("All is well, and on time.")
        expect(page.locator(".tile").first).to_contain_text("On time")


@story
def limits(address, pattern, broker):
    """A limit is told beside what is coming, whatever else there is to tell."""
    with dashboard(address) as page:
        coming = page.locator("section").filter(has=page.get_by_role("heading", name="What is coming?"))
        expect(coming.locator(".limits li")).to_have_text(re.compile(f"^{pattern} of {broker} is limited: 2 jobs wait for their turns, for .+\\.$"))


@story
def line(address):
    """A sidecar that says nothing more: told, tried again, and caught up."""
    with dashboard(address, "#/jobs") as page:
        expect(page.locator("#live")).to_have_text("Live")
        ids = page.locator("tbody th a")
        expect(ids).to_have_text(["before"])
        ask("freeze")
        lost = page.get_by_role("status").filter(has_text="Connection lost, retrying.")
        expect(lost).to_be_visible()
        expect(page.locator("#live")).to_have_text("Lost")
        expect(ids).to_have_text(["before"])
        ask("thaw")
        expect(lost).to_have_count(0)
        expect(page.locator("#live")).to_have_text("Live")
        ask("schedule another")
        expect(ids).to_have_text(["another", "before"])
        page.locator("#live").click()
        expect(page.locator("#live")).to_have_text("Paused")
        page.locator("#live").click()
        expect(page.locator("#live")).to_have_text("Live")
