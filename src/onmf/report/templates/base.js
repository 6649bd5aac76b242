"use strict";
/* Shared by all reports: data, colours and charts. */
const onmf = (() => {
  const data = JSON.parse(document.getElementById("onmf-data").textContent);
  const root = document.documentElement;
  const preference = window.matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : preference.matches);
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const handlers = {};

  function draw(element) {
    const name = element.dataset.figure;
    const figure = (data.figures || {})[name];
    if (!figure) return;
    const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"), automargin: true };
    const layout = Object.assign(
      { margin: { l: 40, r: 15, t: 10, b: 40 }, hoverlabel: { align: "left" }, dragmode: false, showlegend: false },
      figure.layout,
      { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("--ink"), family: "inherit", size: 13 } });
    for (const key of ["xaxis", "yaxis"]) layout[key] = Object.assign({}, axis, (figure.layout || {})[key]);
    const traces = figure.data.map((trace) => {
      const drawn = Object.assign({}, trace);
      if (drawn.dark_colorscale) { if (isDark()) drawn.colorscale = drawn.dark_colorscale; delete drawn.dark_colorscale; }
      return drawn;
    });
    Plotly.react(element, traces, layout, { displaylogo: false, responsive: true, displayModeBar: false }).then(() => {
      if (handlers[name] && !element.dataset.bound) {
        element.dataset.bound = "yes";
        element.on("plotly_click", (event) => handlers[name](event.points[0]));
      }
    });
  }

  function drawAll() {
    const dark = isDark();
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(dark));
    document.querySelectorAll("[data-figure]").forEach(draw);
  }

  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; drawAll(); });
  preference.addEventListener("change", drawAll);
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;"); // Plotly interprets some HTML
  return { data, drawAll, escaped, onClick: (name, handler) => { handlers[name] = handler; } };
})();
