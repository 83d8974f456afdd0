// Before the page is drawn, so that it does not flash in the other colours.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("cormorant-theme"); } catch { /* a browser that keeps nothing */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
