"use strict";
/* What the page knows of its cells and genes. */
onmf.cells = (() => {
  const { cells, clusters, genes } = onmf.data;
  const { bytes, inflate, shares } = onmf.explore;
  const n = cells.barcodes.length;

  const cluster = new Int16Array(bytes(cells.cluster).buffer);
  const runnerUp = new Int16Array(bytes(cells.runner_up).buffer);
  const confidence = shares(cells.confidence);
  const depth = new Float32Array(bytes(cells.depth).buffer);
  const known = cells.class ? new Int32Array(bytes(cells.class).buffer) : null;
  const group = cells.group ? new Int32Array(bytes(cells.group).buffer) : null;
  const named = (k) => (k < 0 ? "none" : `${clusters[k].number}: ${clusters[k].name}`);

  /* ---- genes ---- */
  const geneIndex = new Map();
  genes.names.forEach((name, i) => geneIndex.set(name.toLowerCase(), i));
  genes.names.forEach((name, i) => geneIndex.set(name, i)); // an exact name wins
  const findGene = (text) => geneIndex.get(text) ?? geneIndex.get(text.toLowerCase());

  async function expression(index) {
    const raw = await inflate(genes.packed[index]);
    const entries = new DataView(raw.buffer).getUint32(0, true);
    const values = new Float32Array(n);
    let cell = -1, code = raw.length - entries;
    for (let i = 4; i < raw.length - entries; i++) {
      if (raw[i] === 0) { cell += 255; continue; }
      cell += raw[i];
      values[cell] = depth[cell] > 0 ? Math.log1p(genes.levels[raw[code]] * genes.per_cell / depth[cell]) : 0;
      code++;
    }
    return values;
  }

  return { n, cluster, runnerUp, confidence, depth, known, group, named, findGene, expression };
})();
