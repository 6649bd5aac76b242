"use strict";
/* What the page knows of its rows, and which of its clusters are merged: by edits, and by the slider for the eye only. */
onmf.rows = (() => {
  const { documents, nodes, pairs, words, classes, class_counts: classCounts, periods, sure: sureName } = onmf.data;
  const { bytes, inflate } = onmf.explore, { clusters, clusterOf, runnerUp, moves, onChange } = onmf.edit;
  const array = (Kind, text) => (text === null ? null : new Kind(bytes(text).buffer));
  const cluster = array(Int16Array, documents.cluster), sure = array(Float32Array, documents.sure), surprise = array(Float32Array, documents.surprise);
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
  const wouldBe = array(Int16Array, documents.runner_up); // of rows that are left unassigned: the cluster that they would have
  const fittedRunnerUp = (i) => (told && place[i] >= 0 ? told.runnerUp[place[i]] : wouldBe[i]);
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
    [texts.ids, texts.excerpts] = raw.map((list) => JSON.parse(new TextDecoder().decode(list)));
    texts.low = texts.ids.map((id, i) => `${id}\n${texts.excerpts[i]}\n${known && known[i] >= 0 ? classes[known[i]].name : ""}`.toLowerCase());
    const places = new Map(), twice = new Set();
    texts.ids.forEach((id, i) => { if (places.has(id)) twice.add(id); places.set(id, i); });
    onmf.edit.connect({ ...rows, find: (name) => places.get(name) ?? -1, canMove: (i) => (cluster[i] >= 0 || fittedRunnerUp(i) >= 0) && !twice.has(texts.ids[i]) });
  });

  /* ---- merging ---- */
  /* A node is a set of clusters, its leaves: each cluster, those that the tree merges, and those that edits make. */
  const leaves = [];
  nodes.forEach((_, node) => leaves.push(node < k ? [node] : pairs[node - k].flatMap((part) => leaves[part]).sort((a, b) => a - b)));
  const byLeaves = new Map(leaves.map((own, node) => [own.join(), node])), fitted = nodes.map((node) => ({ ...node }));
  function nodeWith(own) {
    const key = own.join();
    if (!byLeaves.has(key)) {
      byLeaves.set(key, leaves.push(own) - 1);
      const parts = own.map((leaf) => fitted[leaf]).sort((a, b) => b.size - a.size), weights = new Map();
      for (const { words: some, size } of parts) for (const [word, width] of some) weights.set(word, (weights.get(word) ?? 0) + width * size);
      const top = [...weights].sort((a, b) => b[1] - a[1]).slice(0, 10);
      const frequent = parts[0].frequent.flatMap((_, at) => parts.map((part) => part.frequent[at])).filter(Boolean);
      fitted.push({ name: top.slice(0, 3).map(([word]) => word).join(", "), words: top.map(([word, weight]) => [word, Math.round(100 * weight / top[0][1])]), frequent: [...new Set(frequent)].slice(0, 10), found: null });
      nodes.push({ ...fitted.at(-1) });
    }
    return byLeaves.get(key);
  }
  const named = (node) => (node < 0 ? "none" : `${nodes[node].number}: ${nodes[node].name}`);
  const merged = { left: k, owner: new Int32Array(k), active: [], place: [] };
  const listeners = [];
  function regroup(left) {
    merged.left = left;
    const { owner, names, sizes, parts } = onmf.edit.state;
    let group = Int32Array.from({ length: k }, (_, leaf) => leaf);
    const join = (a, b) => { const [from, to] = [group[a], group[b]]; if (from !== to) group = group.map((other) => (other === from ? to : other)); };
    owner.forEach((to, leaf) => { if (to >= 0) join(leaf, to); });
    const stays = (leaf) => owner[leaf] >= 0;
    pairs.slice(0, k - left).forEach((_, t) => { const own = leaves[k + t].filter(stays); own.forEach((leaf) => join(leaf, own[0])); });
    const members = new Map();
    group.forEach((to, leaf) => { if (stays(leaf)) members.set(to, [...(members.get(to) ?? []), leaf]); });
    for (let leaf = 0; leaf < k; leaf++) { // what the tree and runners-up show of a cluster
      Object.assign(nodes[leaf], { name: parts[leaf] ? `${names[leaf]} (to be split into ${parts[leaf]})` : names[leaf], colour: clusters[leaf].colour, size: sizes[leaf] });
    }
    merged.owner.fill(-1);
    merged.active = [...members.values()].map((own) => {
      const node = nodeWith(own), edited = [...new Set(own.map((leaf) => owner[leaf]))];
      const [largest] = edited.slice().sort((a, b) => sizes[b] - sizes[a]), size = edited.reduce((sum, c) => sum + sizes[c], 0);
      if (edited.length === 1) Object.assign(nodes[node], { ...nodes[largest], words: fitted[node].words, frequent: fitted[node].frequent, found: fitted[node].found });
      else Object.assign(nodes[node], { number: onmf.edit.edited() ? [...edited.slice(0, 4).map((c) => clusters[c].number), ...(edited.length > 4 ? ["…"] : [])].join("+") : fitted[node].number, name: fitted[node].name, colour: clusters[largest].colour, size });
      own.forEach((leaf) => { merged.owner[leaf] = node; });
      return node;
    }).sort((a, b) => nodes[b].size - nodes[a].size || a - b);
    merged.place = new Array(nodes.length).fill(-1);
    merged.active.forEach((node, at) => { merged.place[node] = at; });
  }
  function merge(left) {
    const wanted = Math.min(k, Math.max(1, left));
    if (wanted === merged.left) return;
    regroup(wanted);
    listeners.forEach((listener) => listener());
  }
  const nodeOf = (i) => { const c = clusterOf(i); return c < 0 ? -1 : merged.owner[c]; };
  /* The node that now holds the clusters of a node; -1 if they are set aside. */
  const heir = (node) => (node < 0 ? -1 : merged.owner[leaves[node][0]]);
  /* Add the rows of a table of the clusters, such as rows by period, for a node. `column` is that of a row, which may have moved. */
  function addRows(table, node, column) {
    const sum = table[0].map((_, j) => leaves[node].reduce((all, leaf) => all + table[leaf][j], 0));
    for (const [i, from, to] of moves()) {
      const at = column(i);
      if (at < 0) continue;
      if (from >= 0 && merged.owner[from] === node) sum[at]--;
      if (to >= 0 && merged.owner[to] === node) sum[at]++;
    }
    return sum;
  }
  const classOf = (i) => known[i];
  const period = array(Int32Array, documents.period), periodOf = (i) => period[i];
  const countsByClass = (node) => addRows(classCounts, node, classOf), countsByPeriod = (node) => addRows(periods.counts, node, periodOf);
  /* The most frequent class of a node. */
  function mostly(node) {
    if (!classCounts) return "";
    const counts = countsByClass(node), best = counts.indexOf(Math.max(...counts));
    return counts[best] ? classes[best].name : "";
  }
  /* Rows by words in their names and texts; if there are no texts, also in the features that decided. Rare words count more. */
  function search(wanted) {
    const scores = new Map();
    for (const word of wanted) {
      const hits = new Map(), same = onmf.data.texts || !told ? null : new Set(words.flatMap((text, j) => (text.toLowerCase().startsWith(word) ? [j] : [])));
      for (let i = 0; i < n; i++) {
        let many = 0;
        for (let at = texts.low[i].indexOf(word); at >= 0; at = texts.low[i].indexOf(word, at + word.length)) many++;
        if (same?.size && place[i] >= 0) for (let at = told.starts[place[i]]; at < told.starts[place[i] + 1]; at++) if (same.has(told.words[at]) && told.contributions[at] > 0) many++;
        if (many) hits.set(i, many);
      }
      for (const [i, many] of hits) scores.set(i, (scores.get(i) ?? 0) + Math.log1p(many) * Math.log1p(n / hits.size));
    }
    return [...scores];
  }
  const rows = { n, cluster, runnerUp: fittedRunnerUp, sure, sureName, surprise, ready, group: (i) => onmf.data.groups[group?.[i]]?.name ?? "", open: (i) => onmf.rows.read(i), openCluster: (c) => onmf.rows.showCard(c), search, name: (i) => texts.ids[i] ?? "", find: () => -1, canMove: () => false };
  onmf.edit.connect(rows);
  regroup(k);
  onChange(() => { regroup(merged.left); listeners.forEach((listener) => listener()); });
  return { n, k, leaves, cluster, sure, surprise, length, known, group, mapped, fittedRunnerUp, runnerUp, deciding, day, days, texts, ready, named, merged, merge, nodeOf, heir, countsByClass, countsByPeriod, mostly, periods, onMerge: (listener) => listeners.push(listener) };
})();
