"use strict";
/* What the page knows of its cells and genes. */
onmf.cells = (() => {
  const { cells, classes, genes } = onmf.data;
  const { by, number, bytes, inflate, shares } = onmf.explore, { clusterOf } = onmf.edit;
  const n = cells.barcodes.length;

  const cluster = new Int16Array(bytes(cells.cluster).buffer);
  const runnerUp = new Int16Array(bytes(cells.runner_up).buffer);
  const confidence = shares(cells.confidence), surprise = new Float32Array(bytes(cells.surprise).buffer);
  const depth = new Float32Array(bytes(cells.depth).buffer);
  const known = cells.class ? new Int32Array(bytes(cells.class).buffer) : null;
  const group = cells.group ? new Int32Array(bytes(cells.group).buffer) : null;

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

  /* Cells by the words in their names. */
  const low = cells.barcodes.map((name) => name.toLowerCase()), places = new Map(cells.barcodes.map((name, i) => [name, i])), twice = new Set(cells.barcodes.filter((name, i) => places.get(name) !== i));
  const search = (words) => low.flatMap((name, i) => { const many = words.filter((word) => name.includes(word)).length; return many ? [[i, many]] : []; });
  const columns = [["Depth", (i) => number(Math.round(depth[i]))], ...(known ? [["Class", (i) => (known[i] < 0 ? "" : classes[known[i]].name)]] : [])];
  onmf.edit.connect({
    n, cluster, runnerUp: (i) => runnerUp[i], sure: confidence, surprise, columns, search, group: (i) => onmf.data.groups[group?.[i]]?.name ?? "", name: (i) => cells.barcodes[i], find: (name) => places.get(name) ?? -1, canMove: (i) => (cluster[i] >= 0 || runnerUp[i] >= 0) && !twice.has(cells.barcodes[i]), ready: Promise.resolve(),
    open: (i) => { if (onmf.cells.map) onmf.cells.map.show(i); else by(`cluster-${Math.max(clusterOf(i), 0)}`).scrollIntoView(); },
    openCluster: (c) => { if (onmf.cells.map) onmf.cells.map.choose(c); by(`cluster-${c}`).scrollIntoView(); by(`cluster-${c}`).querySelector("button")?.focus({ preventScroll: true }); },
  });
  return { n, confidence, surprise, depth, known, group, findGene, expression };
})();
