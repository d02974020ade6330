// The chosen colors, before anything is drawn: "light", "dark", or the system's.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch {
  // a browser that keeps nothing has the system's colors
}
