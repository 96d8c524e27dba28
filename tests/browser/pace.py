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
# What Chromium itself takes to paint a line of text of the same server: a problem, since that is shown as it is.
LINE = "v1/nothing"
DASHBOARD = "#/jobs"


@story
def pace(address):
    line, dashboard = f"http://{address}/{LINE}", f"http://{address}/{DASHBOARD}"
    rounds = {}

    def kept(what, figures):
        rounds.setdefault(what, []).append(figures)

    with browser() as chromium:
        lasting = chromium.new_context()
        tab, idle_tab = lasting.new_page(), lasting.new_page()
        # By turns, so that whatever else the machine does meets each of them. The first round fills the cache, and is not counted.
        for _ in range(ROUNDS + 1):
            for what, url, last, figures in (("a line of text", line, "paint", FIRST_PAINT), ("the dashboard", dashboard, "rows", FIGURES)):
                context = chromium.new_context()
                kept(f"{what}, a new tab, nothing cached", in_new_tab(context, url, last, figures))
                context.close()
                kept(f"{what}, a new tab", in_new_tab(lasting, url, last, figures))
            kept("a line of text, the same tab again", in_tab(idle_tab, line, "paint", FIRST_PAINT))
            kept("the dashboard, the same tab again", in_tab(tab, dashboard, "rows", FIGURES))
        lasting.close()
    for what, figures in rounds.items():
        show(what, [median(each) for each in zip(*figures[1:])])


def in_new_tab(context, url, last, figures):
    """The figures of a page in a tab of its own: Chromium starts a process for it."""
    page = context.new_page()
    told = in_tab(page, url, last, figures)
    page.close()
    return told


def in_tab(page, url, last, figures):
    """The figures of a page that was loaded until it told `last`."""
    if page.url == "about:blank":
        page.add_init_script(WATCH)
        page.goto("about:blank")
    with page.expect_console_message(lambda said: said.text == last):
        if page.url == url:
            page.reload(wait_until="commit")
        else:
            page.goto(url, wait_until="commit")
    # A list may be painted with the first paint, and that is told later.
    page.wait_for_timeout(50)
    return page.evaluate(figures)


def show(what, figures):
    words = ("first paint", "rows painted", "the list's call")
    print(f"{what}: " + ", ".join(f"{word} {figure:.0f} ms" for word, figure in zip(words, figures)), flush=True)
