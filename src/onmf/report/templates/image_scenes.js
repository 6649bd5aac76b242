"use strict";
/* The spectra that the scenes share, or those in one of them; and the factors by which each scene multiplies them. */
onmf.scenes = (() => {
  const { at, axis, gaps, names, colours, spectra, scenes } = onmf.data;
  const by = (id) => document.getElementById(id);
  const axes = { x: at, title: axis, gaps }, select = by("shown");
  const drawSpectra = onmf.lines(by("cluster-chart"), { ...axes, valueTitle: "mean of the cluster" });
  const show = () => {
    const shown = Number(select.value) < 0 ? spectra : scenes[Number(select.value)].spectra;
    drawSpectra(shown.map((y, k) => ({ name: names[k], y, colour: colours[k] })));
  };
  select.addEventListener("change", show);
  show();
  onmf.lines(by("factor-chart"), { ...axes, valueTitle: "factor of the band" })(scenes.map(({ name, colour, factors }) => ({ name, y: factors, colour })));
  onmf.showTheme();
})();
