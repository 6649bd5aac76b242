"use strict";
/* What the page knows of its rows, and how many of its clusters are merged. */
onmf.rows = (() => {
  const { documents, nodes, pairs, words, classes, class_counts: classCounts, periods } = onmf.data;
  const { bytes, inflate } = onmf.explore;
  const array = (Kind, text) => (text === null ? null : new Kind(bytes(text).buffer));
  const cluster = array(Int16Array, documents.cluster), sure = array(Float32Array, documents.sure);
  const length = array(Float32Array, documents.length), known = array(Int16Array, documents.class), group = array(Int32Array, documents.group);
  const n = cluster.length, k = pairs.length + 1;

  /* Rows on the map are those with a cluster, in their order; only they have a runner-up and deciding features. */
  const mapped = [], place = new Int32Array(n).fill(-1);
  for (let i = 0; i < n; i++) if (cluster[i] >= 0) { place[i] = mapped.length; mapped.push(i); }
  const told = documents.deciding && {
    runnerUp: array(Int16Array, documents.deciding.runner_up), starts: array(Uint32Array, documents.deciding.starts),
    words: array(Uint32Array, documents.deciding.words), contributions: array(Int8Array, documents.deciding.contributions),
    largest: array(Float32Array, documents.deciding.largest),
  };
  const runnerUp = (i) => (told && place[i] >= 0 ? told.runnerUp[place[i]] : -1);
  function deciding(i) {
    if (!told || place[i] < 0) return [];
    const found = [];
    for (let at = told.starts[place[i]]; at < told.starts[place[i] + 1]; at++) found.push({ word: words[told.words[at]], weight: told.contributions[at] / 127 * told.largest[place[i]] });
    return found;
  }
  const days = array(Int32Array, documents.date);
  const YEAR_ONE = -719162; // stands for an unknown date
  const day = (i) => (days && days[i] !== YEAR_ONE ? new Date(days[i] * 86400000).toISOString().slice(0, 10) : "");

  /* Names and texts are unpacked after the first paint. */
  const texts = { ids: [], excerpts: [], low: [] };
  const ready = Promise.all([documents.ids, documents.texts].map(inflate)).then((raw) => {
    [texts.ids, texts.excerpts] = raw.map((lines) => new TextDecoder().decode(lines).split("\n"));
    texts.low = texts.ids.map((id, i) => `${id}\n${texts.excerpts[i]}\n${known && known[i] >= 0 ? classes[known[i]].name : ""}`.toLowerCase());
  });

  /* ---- merging ---- */
  const named = (node) => (node < 0 ? "none" : `${nodes[node].number}: ${nodes[node].name}`);
  const merged = { left: k, owner: new Int32Array(k), active: [], place: new Int32Array(2 * k - 1) };
  const listeners = [];
  function regroup(left) {
    merged.left = left;
    merged.owner = Int32Array.from({ length: k }, (_, leaf) => leaf);
    pairs.slice(0, k - left).forEach(([a, b], t) => { merged.owner = merged.owner.map((node) => (node === a || node === b ? k + t : node)); });
    merged.active = [...new Set(merged.owner)].sort((a, b) => nodes[b].size - nodes[a].size || a - b);
    merged.active.forEach((node, at) => { merged.place[node] = at; });
  }
  function merge(left) {
    const wanted = Math.min(k, Math.max(1, left));
    if (wanted === merged.left) return;
    regroup(wanted);
    listeners.forEach((listener) => listener());
  }
  const nodeOf = (i) => (cluster[i] < 0 ? -1 : merged.owner[cluster[i]]);
  /* The cluster that now holds the clusters of a node. */
  function heir(node) {
    let leaf = node;
    while (leaf >= k) [leaf] = pairs[leaf - k];
    return merged.owner[leaf];
  }
  const leavesOf = (node) => (node < k ? [node] : pairs[node - k].flatMap(leavesOf));
  /* Add the rows of a table of the model's clusters, such as rows by period, for a node. */
  const addRows = (table, node) => leavesOf(node).reduce((sum, leaf) => sum.map((value, j) => value + table[leaf][j]), table[0].map(() => 0));
  /* The most frequent class of a node. */
  function mostly(node) {
    if (!classCounts) return "";
    const counts = addRows(classCounts, node), best = counts.indexOf(Math.max(...counts));
    return counts[best] ? classes[best].name : "";
  }
  regroup(k);
  return { n, k, cluster, sure, length, known, group, mapped, runnerUp, deciding, day, days, texts, ready, named, merged, merge, nodeOf, heir, leavesOf, addRows, mostly, periods, onMerge: (listener) => listeners.push(listener) };
})();
