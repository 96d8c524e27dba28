// Runs before the modules are loaded: a classic script, placed before the style.

// Requests the list of the page early, because the answer takes time. `request` in api.js uses the
// answer if path and token are the same.
{
  const lists = { '': 'jobs?limit=8', '#/': 'jobs?limit=8', '#/jobs': 'jobs?state=scheduled&limit=50' };
  const path = lists[location.hash];
  if (path !== undefined) {
    let token = null;
    try {
      token = sessionStorage.getItem('dwell-token');
    } catch {
      // Storage is forbidden: there is no token.
    }
    // `request` in api.js reports a token with characters that no header allows.
    if (token === null || /^[\x20-\x7e]*$/.test(token)) {
      const headers = token === null ? {} : { authorization: `Bearer ${token}` };
      const asked = fetch(new URL(`v1/${path}`, document.baseURI), { headers, cache: 'no-store', credentials: 'omit' });
      // Reads the text as it arrives, not only when `request` wants it.
      const answer = asked.then(async (response) => {
        const text = await response.text();
        return { ok: response.ok, status: response.status, text: async () => text };
      });
      // `request` handles a failure.
      answer.catch(() => {});
      globalThis.early = { path, token, answer };
    }
  }
}

// Applies the stored theme before the first paint, so that the page does not flash.
try {
  const chosen = localStorage.getItem('dwell-theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is forbidden: the system's theme applies.
}
