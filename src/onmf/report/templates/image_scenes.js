"use strict";
/* The spectra that the scenes share, or those in one of them; and the factors by which each scene multiplies them. */
onmf.scenes = (() => {
  const { at, axis, gaps, spectra, scenes, maps } = onmf.data, { clusters } = onmf.edit, { by, inflate } = onmf.explore;
  const axes = { x: at, title: axis, gaps }, select = by("shown");
  const drawSpectra = onmf.lines(by("cluster-chart"), { ...axes, valueTitle: "mean of the cluster" });
  const show = () => {
    const { names, there } = onmf.edit.state, shown = Number(select.value) < 0 ? spectra : scenes[Number(select.value)].spectra;
    drawSpectra(there.map((c) => ({ name: names[c], y: onmf.meanSpectrum(shown, c), colour: clusters[c].colour })));
  };
  select.addEventListener("change", show);
  show();
  onmf.edit.onChange(show);
  document.querySelectorAll("[data-labels]").forEach(async (picture) => {
    const { lines, samples, labels } = maps[Number(picture.dataset.labels)], drawn = picture.src, fitted = new Int16Array((await inflate(labels)).buffer);
    const paint = () => { picture.src = onmf.edit.edited() ? onmf.paintClusters(fitted.map((c) => (c < 0 ? -1 : onmf.edit.state.owner[c])), lines, samples) : drawn; };
    paint();
    onmf.edit.onChange(paint);
  });
  onmf.lines(by("factor-chart"), { ...axes, valueTitle: "factor of the band" })(scenes.map(({ name, colour, factors }) => ({ name, y: factors, colour })));
  onmf.showTheme();
})();
