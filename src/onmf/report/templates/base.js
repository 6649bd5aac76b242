"use strict";
/* Shared by all reports: data, and the light or dark theme. */
const onmf = (() => {
  const data = JSON.parse(document.getElementById("onmf-data").textContent);
  const root = document.documentElement;
  const preference = window.matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : preference.matches);

  function showTheme() {
    const dark = isDark();
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(dark));
  }

  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; showTheme(); });
  preference.addEventListener("change", showTheme);
  return { data, showTheme };
})();
