# Queues: what waits in them, their pause, their purge, and their dead.
from playwright.sync_api import expect

from page import ask, confirm, dashboard, go, heading, story


def figure(page, state, number):
    """The number of jobs in a state, as the page of the queue says."""
    expect(page.locator("a.figure").filter(has_text=state)).to_have_text(f"{number} {state}")


@story
def queues(address, busy, idle):
    with dashboard(address) as page:
        page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name="Queues").click()
        heading(page, "Queues")
        expect(page.locator(".reasons")).to_have_text("2 queues, 3 ready jobs.")
        cells = page.get_by_role("row").filter(has=page.get_by_role("link", name=busy, exact=True)).locator("td.number")
        expect(cells).to_have_text(["2", "3", "1", "1", "0"])
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=idle, exact=True))
        expect(row).to_contain_text("Nothing ready")

        page.get_by_role("link", name=busy, exact=True).click()
        heading(page, f"Queue {busy}")
        expect(page.locator(".job-head")).to_contain_text("The oldest ready job was due")
        for state, number in [("scheduled", 2), ("ready", 3), ("reserved", 1), ("dead", 1)]:
            figure(page, state, number)
        # What producers write is text, and long texts are cut.
        expect(page.locator("tbody tr")).to_have_count(3)
        bodies = page.locator("tbody td.last-error")
        expect(bodies).to_have_text(["</b><script>alert(1)</script>", "3 B that are not text", "x" * 160 + "…"])
        assert page.locator("main :is(script, img, b)").count() == 0

        confirm(page, "Pause", "Pause this queue?")
        expect(page.locator(".verdict")).to_contain_text("Consumers get no jobs until the queue is resumed.")
        expect(page.locator(".verdict")).to_be_focused()
        expect(page.locator(".job-head")).to_contain_text("Paused")
        ask("fetch nothing")
        go(page, "#/")
        expect(page.locator(".overall")).to_contain_text(f"Queue {busy} is paused", timeout=20_000)
        expect(page.locator(".overall")).not_to_contain_text("wait for a consumer")
        go(page, "#/queues")
        expect(page.locator(".reasons")).to_have_text("2 queues, 3 ready jobs, 1 paused.")
        page.get_by_role("link", name=busy, exact=True).click()
        confirm(page, "Resume", "Resume this queue?")
        expect(page.locator(".verdict")).to_contain_text("Ready jobs are handed out again.")
        ask("fetch one")
        figure(page, "ready", 2)
        figure(page, "reserved", 2)

        go(page, "#/")
        expect(page.locator("a.figure").filter(has_text="ready")).to_have_text("2 ready")
        expect(page.locator(".overall")).to_contain_text("2 ready jobs wait for a consumer, the oldest for", timeout=20_000)
        expect(page.locator(".tile").last).to_contain_text("in ")
        go(page, f"#/queues/{busy}")
        heading(page, f"Queue {busy}")

        # The question names the states; jobs that a consumer holds are not among them.
        actions = page.get_by_role("group", name="Actions")
        actions.get_by_role("button", name="Purge").click()
        dialog = page.get_by_role("dialog", name="Remove jobs of this queue?")
        expect(dialog.get_by_role("radio")).to_have_count(3)
        dialog.get_by_role("button", name="Go back").click()
        expect(dialog).to_be_hidden()
        figure(page, "scheduled", 2)
        confirm(page, "Purge", "Remove jobs of this queue?")
        expect(page.locator(".verdict")).to_contain_text("2 jobs removed.")
        figure(page, "scheduled", 0)
        actions.get_by_role("button", name="Purge").click()
        dialog.get_by_role("radio", name="Ready").check()
        dialog.get_by_role("button", name="Remove jobs").click()
        expect(page.locator(".verdict")).to_contain_text("2 jobs removed.")
        expect(page.get_by_text("No job is ready.")).to_be_visible()
        figure(page, "reserved", 2)


@story
def queue_of_jobs(address, queue, ready, held, dead):
    """The jobs of a queue in the lists, and on their pages."""
    with dashboard(address, f"#/queues/{queue}") as page:
        page.locator("a.figure").filter(has_text="dead").click()
        heading(page, "Dead letters")
        expect(page.get_by_text("Only jobs of the queue")).to_contain_text(queue)
        expect(page.locator("tbody th a")).to_have_text([dead])
        page.get_by_role("link", name="Show all").click()
        expect(page.locator("tbody tr")).to_have_count(2)
        page.go_back()
        page.get_by_role("button", name="Requeue all of this queue").click()
        page.get_by_role("dialog", name=f"Requeue every dead letter of the queue {queue}?").get_by_role("button", name="Requeue").click()
        expect(page.locator(".line")).to_have_text("1 dead letter: 1 requeued.")
        expect(page.get_by_text("The queue has no dead jobs.")).to_be_visible()

        go(page, f"#/jobs?state=ready&queue={queue}")
        expect(page.locator("tbody th a")).to_have_text([ready, dead])
        page.get_by_role("link", name=ready, exact=True).click()
        heading(page, f"Job {ready}")
        expect(page.locator(".job-head")).to_contain_text("Ready to be fetched")
        expect(page.get_by_role("button", name="Fire now")).to_have_count(0)
        confirm(page, "Cancel job", "Cancel this job?")
        expect(page.locator(".verdict")).to_contain_text("Verdict: cancelled")

        go(page, f"#/jobs/{held}")
        expect(page.locator(".job-head")).to_contain_text("A consumer has the job. Its lease ends")
        confirm(page, "Finish", "Finish this job?")
        expect(page.locator(".verdict")).to_contain_text("Verdict: finished")

        go(page, "#/queues/of-no-setting")
        expect(page.locator(".job-head")).to_contain_text("add its name or a pattern")
        expect(page.get_by_role("group", name="Actions").get_by_role("button")).to_have_count(0)
