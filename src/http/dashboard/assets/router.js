// Reads and builds addresses. The part after `#` names the page, so that users can bookmark and share it.

/** The page that the address names: `{page, id, filters}`. */
export function route() {
  const [path, query = ''] = location.hash.replace(/^#/, '').split('?');
  const [page, id, part] = path.split('/').filter(Boolean);
  const filters = Object.fromEntries(new URLSearchParams(query));
  if (page === undefined) return { page: 'overview', filters };
  if (page === 'jobs' && id !== undefined) return { page: 'job', id: decoded(id), filters };
  if (page === 'queues' && id !== undefined) return { page: 'queue', id: decoded(id), filters };
  if (page === 'schedules' && id !== undefined && part === 'edit') return { page: 'schedule_form', id: decoded(id), filters };
  if (page === 'schedules' && id !== undefined) return { page: 'schedule', id: decoded(id), filters };
  if (page === 'new-schedule') return { page: 'schedule_form', filters };
  if (page === 'jobs' || page === 'dead' || page === 'queues' || page === 'schedules') return { page, filters };
  return { page: 'nowhere', filters };
}

/** The address of a job's page. */
export const jobHref = (id) => `#/jobs/${encodeURIComponent(id)}`;

/** The address of a queue's page. */
export const queueHref = (name) => `#/queues/${encodeURIComponent(name)}`;

/** The address of a recurring schedule's page. */
export const scheduleHref = (id) => `#/schedules/${encodeURIComponent(id)}`;

/** The address of a list, without empty filters. */
export function listHref(page, filters) {
  const set = Object.entries(filters).filter(([, value]) => value);
  return `#/${page}${set.length ? `?${new URLSearchParams(set)}` : ''}`;
}

/** Opens this address. */
export function go(href) {
  location.hash = href;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
