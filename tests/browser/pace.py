# How fast a page is there: when something is painted, when the rows of the list are. A measurement, no story that can fail by time.
from statistics import median

from page import browser, story

ROUNDS = 15
# The page tells by itself: the first row is in it, and the frame that shows it was made. Whoever asks a page while it loads, brings
# scripts of his own and has it laid out at once: that alone was 50 ms.
WATCH = """
new MutationObserver((_, watch) => {
  if (!document.querySelector('tbody tr')) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => {
    window.rowsPainted = performance.now();
    console.debug('rows');
  }));
}).observe(document, { childList: true, subtree: true });
new PerformanceObserver((list) => {
  if (list.getEntriesByName('first-contentful-paint').length) console.debug('paint');
}).observe({ type: 'paint', buffered: true });
"""
FIRST_PAINT = "() => [performance.getEntriesByName('first-contentful-paint')[0].startTime]"
FIGURES = """() => [
  performance.getEntriesByName('first-contentful-paint')[0].startTime,
  window.rowsPainted,
  performance.getEntriesByType('resource').find((entry) => entry.name.includes('/v1/jobs')).duration,
]"""
# What Chromium itself takes to paint a word.
EMPTY = "data:text/html,<p>nothing</p>"


@story
def pace(address):
    jobs = f"http://{address}/#/jobs"
    empty, bare, kept = [], [], []
    with browser() as chromium:
        lasting = chromium.new_context()
        # By turns, so that whatever else the machine does meets each of them. The first round fills the cache, and is not counted.
        for _ in range(ROUNDS + 1):
            for rounds, url, last, figures in ((empty, EMPTY, "paint", FIRST_PAINT), (bare, jobs, "rows", FIGURES)):
                context = chromium.new_context()
                rounds.append(paint(context, url, last, figures))
                context.close()
            kept.append(paint(lasting, jobs, "rows", FIGURES))
        lasting.close()
    for what, rounds in (("an empty page", empty), ("nothing cached", bare), ("cached", kept)):
        show(what, [median(figures) for figures in zip(*rounds[1:])])


def paint(context, url, last, figures):
    """The figures of a page that was loaded until it told `last`."""
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto("about:blank")
    with page.expect_console_message(lambda said: said.text == last):
        page.goto(url, wait_until="commit")
    # A list may be painted with the first paint, and that is told later.
    page.wait_for_timeout(50)
    told = page.evaluate(figures)
    page.close()
    return told


def show(what, figures):
    words = ("first paint", "rows painted", "the list's call")
    print(f"{what}: " + ", ".join(f"{word} {figure:.0f} ms" for word, figure in zip(words, figures)), flush=True)
