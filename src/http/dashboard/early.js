// What cannot wait for the modules. A classic script, before the style: it runs as soon as it is there.

// First the list that the page will ask for, since its answer takes a while: `request` in api.js takes it, if this is what it is asked for.
{
  const lists = { '': 'jobs?limit=8', '#/': 'jobs?limit=8', '#/jobs': 'jobs?state=scheduled&limit=50' };
  const path = lists[location.hash];
  if (path !== undefined) {
    let token = null;
    try {
      token = sessionStorage.getItem('dwell-token');
    } catch {
      // Storage is forbidden: then there is none.
    }
    // A token with characters that no header can hold is refused where it is asked for.
    if (token === null || /^[\x20-\x7e]*$/.test(token)) {
      const headers = token === null ? {} : { authorization: `Bearer ${token}` };
      const asked = fetch(new URL(`v1/${path}`, document.baseURI), { headers, cache: 'no-store', credentials: 'omit' });
      // Its text too is read as it comes, not when somebody asks for it.
      const answer = asked.then(async (response) => {
        const text = await response.text();
        return { ok: response.ok, status: response.status, text: async () => text };
      });
      // Whoever takes it hears of a failure.
      answer.catch(() => {});
      globalThis.early = { path, token, answer };
    }
  }
}

// The theme that was chosen here before: no page flashes in the other one.
try {
  const chosen = localStorage.getItem('dwell-theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch {
  // As above: the system's theme it is.
}
