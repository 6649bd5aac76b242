"use strict";
/* What the page knows of its cells and genes, and the tips under the pointer. Texts are inserted as text, never as HTML. */
onmf.cells = (() => {
  const { cells, clusters, genes } = onmf.data;
  const by = (id) => document.getElementById(id);
  const number = (value) => value.toLocaleString("en");
  const n = cells.barcodes.length;

  function bytes(text) {
    const letters = atob(text), out = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) out[i] = letters.charCodeAt(i);
    return out;
  }
  const cluster = new Int16Array(bytes(cells.cluster).buffer);
  const runnerUp = new Int16Array(bytes(cells.runner_up).buffer);
  const confidence = Float32Array.from(new Uint16Array(bytes(cells.confidence).buffer), (code) => (code === 65535 ? NaN : code / 65534));
  const depth = new Float32Array(bytes(cells.depth).buffer);
  const known = cells.class ? new Int32Array(bytes(cells.class).buffer) : null;
  const named = (k) => (k < 0 ? "none" : `${k}: ${clusters[k].name}`);

  /* ---- tips ---- */
  const tip = by("tip");
  function showTip(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 4))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18}px`;
  }
  document.addEventListener("pointerover", (event) => {
    const owner = event.target.closest("[data-tip]");
    if (owner) showTip(owner.dataset.tip, event.clientX, event.clientY);
    else if (event.target.id !== "cells") tip.hidden = true;
  });
  document.addEventListener("focusin", (event) => {
    const owner = event.target.closest("[data-tip]");
    if (!owner) { if (event.target.id !== "cells") tip.hidden = true; return; }
    const box = owner.getBoundingClientRect();
    showTip(owner.dataset.tip, box.left, box.bottom - 18);
  });
  document.addEventListener("scroll", (event) => { if (event.target.id !== "legend") tip.hidden = true; }, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

  /* ---- genes ---- */
  const geneIndex = new Map();
  genes.names.forEach((name, i) => geneIndex.set(name.toLowerCase(), i));
  genes.names.forEach((name, i) => geneIndex.set(name, i)); // an exact name wins
  const findGene = (text) => geneIndex.get(text) ?? geneIndex.get(text.toLowerCase());

  async function expression(index) {
    const stream = new Blob([bytes(genes.packed[index])]).stream().pipeThrough(new DecompressionStream("deflate"));
    const raw = new Uint8Array(await new Response(stream).arrayBuffer());
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

  return { n, cluster, runnerUp, confidence, depth, known, named, number, by, bytes, tip, showTip, findGene, expression };
})();
