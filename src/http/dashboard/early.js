// What cannot wait for the modules. A classic script, before the style: it runs as soon as it is there.

// The theme that was chosen here before: no page flashes in the other one.
try {
  const chosen = localStorage.getItem('dwell-theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is forbidden: the system's theme it is.
}

// The list that the page asks for first: `request` in api.js takes the answer, if this is what it is asked for.
{
  const lists = { '': 'jobs?limit=8', '#/': 'jobs?limit=8', '#/jobs': 'jobs?state=scheduled&limit=50' };
  const path = lists[location.hash];
  if (path !== undefined) {
    let token = null;
    try {
      token = sessionStorage.getItem('dwell-token');
    } catch {
      // As above: then there is none.
    }
    // A token with characters that no header can hold is refused where it is asked for.
    if (token === null || /^[\x20-\x7e]*$/.test(token)) {
      const headers = token === null ? {} : { authorization: `Bearer ${token}` };
      const answer = fetch(new URL(`v1/${path}`, document.baseURI), { headers, cache: 'no-store', credentials: 'omit' });
      // Whoever takes it hears of a failure.
      answer.catch(() => {});
      globalThis.early = { path, token, answer };
    }
  }
}
