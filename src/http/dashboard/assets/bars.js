// A bar chart on a canvas, drawn by Chart.js in the colours of the theme.
import { plural } from './format.js';
import { onThemeChange } from './theme.js';

/**
 * Prepares the canvas. Returns a function that draws steps `{from, until, count}`; its second argument formats
 * times. Calls `open` with the step of a clicked bar.
 */
export function drawBars(canvas, open, signal) {
  let [chart, loaded, steps, write] = [null, null, [], String];
  signal.addEventListener('abort', () => chart?.destroy());
  onThemeChange(() => {
    if (!chart) return;
    chart.options = options();
    chart.data.datasets[0].backgroundColor = colour('accent');
    chart.data.datasets[0].hoverBackgroundColor = colour('accent-strong');
    chart.update('none');
  }, signal);

  const options = () => {
    const muted = colour('muted');
    const font = { family: getComputedStyle(canvas).fontFamily, size: 12 };
    return {
      animation: false,
      responsive: true,
      maintainAspectRatio: false,
      interaction: { mode: 'index', intersect: false },
      onClick: (_, [hit]) => hit && steps[hit.index].count > 0 && open(steps[hit.index]),
      scales: {
        x: {
          grid: { display: false },
          border: { color: colour('line') },
          ticks: { color: muted, font, maxRotation: 0, autoSkip: true, autoSkipPadding: 24 },
        },
        y: {
          beginAtZero: true,
          suggestedMax: 4,
          border: { display: false },
          grid: { color: colour('line') },
          ticks: { color: muted, font, precision: 0, maxTicksLimit: 5 },
        },
      },
      plugins: {
        legend: { display: false },
        tooltip: {
          displayColors: false,
          titleFont: { family: font.family },
          bodyFont: { family: font.family },
          backgroundColor: colour('ink'),
          titleColor: colour('paper'),
          bodyColor: colour('paper'),
          padding: 10,
          callbacks: {
            title: ([item]) => `${write(steps[item.dataIndex].from)} – ${write(steps[item.dataIndex].until)}`,
            label: (item) => plural(steps[item.dataIndex].count, 'job'),
          },
        },
      },
    };
  };

  return async (counted, writeTime) => {
    [steps, write] = [counted, writeTime];
    // Loaded with the first chart, so that the rest of the page appears sooner.
    loaded ??= import(new URL('assets/vendor/chart.umd.min.js', document.baseURI)).then(() => globalThis.Chart);
    const Chart = await loaded;
    if (signal.aborted) return;
    const labels = steps.map((step) => write(step.from));
    // `minBarLength` would draw a zero as a bar.
    const data = steps.map((step) => step.count || null);
    if (!chart) {
      const dataset = {
        data,
        backgroundColor: colour('accent'),
        hoverBackgroundColor: colour('accent-strong'),
        borderRadius: 2,
        categoryPercentage: 0.92,
        barPercentage: 0.92,
        minBarLength: 2,
      };
      chart = new Chart(canvas, { type: 'bar', data: { labels, datasets: [dataset] }, options: options() });
      return;
    }
    chart.data.labels = labels;
    chart.data.datasets[0].data = data;
    chart.update('none');
  };
}

/** The computed value of a theme colour, for the canvas. */
function colour(name) {
  const probe = document.createElement('span');
  probe.className = `colour-${name}`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
