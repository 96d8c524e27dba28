// How often a page repeats a request: with the events of the stream, one request at a time, and more rarely if
// answers are slow.
import { live, onNews } from './live.js';

/** After an answer that took t, the pause is at least this many times t. */
const SHARE = 10;

/**
 * Calls `ask` now, and again with the events of the stream until `signal` is aborted, with a pause of at least
 * `every()` ms. Passes errors to `failed`. Returns a function that asks again at once.
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
    // The running request may return data from before the change.
    await running;
    return start();
  };
}
