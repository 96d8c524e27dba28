# How fast a page is there: when something is painted, when the rows of the list are. A measurement, no story that can fail by time.
from statistics import median

from page import browser, story

ROUNDS = 15
# Told by the page itself: the first row is in it, and the frame that shows it was made.
WATCH = """new MutationObserver((_, watch) => {
  if (!document.querySelector('tbody tr')) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.rowsPainted = performance.now(); }));
}).observe(document, { childList: true, subtree: true });"""
FIGURES = """() => [
  performance.getEntriesByName('first-contentful-paint')[0].startTime,
  window.rowsPainted,
  performance.getEntriesByType('resource').find((entry) => entry.name.includes('/v1/jobs')).duration,
]"""
FIRST_PAINT = """() => new Promise((done) => {
  new PerformanceObserver((list) => done(list.getEntriesByName('first-contentful-paint')[0].startTime)).observe({ type: 'paint', buffered: true });
})"""
# What Chromium itself takes to paint a word.
EMPTY = "data:text/html,<p>nothing</p>"


@story
def pace(address):
    with browser() as chromium:
        context = chromium.new_context()
        empty = median(paint(context, EMPTY, lambda page: page.evaluate(FIRST_PAINT)) for _ in range(ROUNDS))
        context.close()
        show("an empty page", [empty])
        for cache in ("nothing cached", "cached"):
            rounds, context = [], chromium.new_context()
            for _ in range(ROUNDS + 1):
                if cache == "nothing cached":
                    context.close()
                    context = chromium.new_context()
                rounds.append(paint(context, f"http://{address}/#/jobs", listed))
            context.close()
            # The first fills the cache.
            show(cache, [median(figures) for figures in zip(*rounds[1:])])


def paint(context, url, figures):
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto("about:blank")
    page.goto(url, wait_until="commit")
    told = figures(page)
    page.close()
    return told


def listed(page):
    page.wait_for_selector("tbody tr")
    # Two frames later it is painted; the page's policy forbids to wait for a condition made of text.
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))")
    return page.evaluate(FIGURES)


def show(what, figures):
    words = ("first paint", "rows painted", "the list's call")
    print(f"{what}: " + ", ".join(f"{word} {figure:.0f} ms" for word, figure in zip(words, figures)), flush=True)
