"use strict";
/* The map of the clusters after edits, as the address of a picture. */
onmf.paintClusters = (labels, lines, samples) => {
  const canvas = Object.assign(document.createElement("canvas"), { width: samples, height: lines });
  const pen = canvas.getContext("2d"), drawn = pen.createImageData(samples, lines), out = new Uint32Array(drawn.data.buffer);
  const colours = onmf.edit.clusters.map(({ colour }) => { // little-endian, as all browsers are
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  });
  labels.forEach((c, i) => { if (c >= 0) out[i] = colours[c]; });
  pen.putImageData(drawn, 0, 0);
  return canvas.toDataURL();
};

/* The spectrum of a cluster; of merged clusters, the mean over their pixels. */
onmf.meanSpectrum = (spectra, c) => {
  const { clusters, state } = onmf.edit, parts = state.owner.flatMap((into, part) => (into === c ? [part] : []));
  const total = parts.reduce((sum, part) => sum + clusters[part].size, 0);
  return parts.length < 2 ? spectra[c] : spectra[c].map((_, j) => parts.reduce((sum, part) => sum + spectra[part][j] * clusters[part].size / total, 0));
};
