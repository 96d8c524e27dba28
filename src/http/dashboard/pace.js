// How often a page asks again: with the news, but never in a crowd, and the more seldom the longer an answer takes.
import { live, onNews } from './live.js';

/** Of the time, the part that asking may take. */
const SHARE = 10;

/**
 * Calls `ask` now, and with the news while the page is shown, at most every `every` ms. Gives back a function that asks at once. What goes
 * wrong is told to `failed`.
 */
export function keepAsking({ ask, failed, every, signal }) {
  let [next, running] = [0, null];
  const run = async () => {
    const begun = performance.now();
    try {
      await ask();
    } catch (problem) {
      if (!signal.aborted) failed(problem);
    } finally {
      const ended = performance.now();
      next = ended + Math.max(every(), (ended - begun) * SHARE);
      running = null;
    }
  };
  const start = () => {
    running = run();
    return running;
  };
  onNews(() => {
    if (!running && live.state !== 'lost' && performance.now() >= next) start();
  }, signal);
  start();
  return async () => {
    // What is on its way may have been answered before what is asked for now.
    await running;
    return start();
  };
}
