// The theme that was chosen here before, set before the first paint. A classic script: modules run too late for that.
try {
  const chosen = localStorage.getItem('dwell-theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is forbidden: the system's theme it is.
}
