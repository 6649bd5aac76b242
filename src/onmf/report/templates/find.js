"use strict";
/* The box that finds clusters and rows by words, the best first. A page may add to its rows:

search  function: (lower-case words) => pairs [row, score]
times   function: (word) => for each cluster how many times as frequent it is as in all rows, or null if it knows nothing of the word
open, openCluster  functions that show a row, or a cluster */
(() => {
  const { find } = onmf.data, { clusters, clusterOf, named, rows, onChange } = onmf.edit;
  const { by, number, bytes, inflate, element, swatch } = onmf.explore;
  const MOST = 10, LACKED = 0.01, field = by("find-words"), box = by("found"), noun = onmf.data.nouns.rows;
  let all = [], low = [], asked = 0;
  const array = (Kind, text) => new Kind(bytes(text).buffer);
  const starts = array(Uint32Array, find.starts), places = array(Uint32Array, find.places), frequent = array(Float32Array, find.times);
  const ready = inflate(find.features).then((raw) => { all = JSON.parse(new TextDecoder().decode(raw)); low = all.map((feature) => feature.toLowerCase()); });

  /* For each word the features that it stands for: those of this name, else those that begin like it. */
  function meant(words, whole) {
    const phrase = low.indexOf(whole);
    if (words.length > 1 && phrase >= 0) return [[phrase]];
    return words.map((word) => {
      const same = low.indexOf(word);
      return same >= 0 ? [same] : word.length < 3 ? [] : low.flatMap((feature, j) => (feature.startsWith(word) ? [j] : []));
    });
  }
  /* Clusters by how many times as frequent the words are in them as in all rows; those that are named so come first. */
  function findClusters(words, whole) {
    const { owner, names, there } = onmf.edit.state, sizes = clusters.map(() => 0);
    clusters.forEach(({ size }, c) => { if (owner[c] >= 0) sizes[owner[c]] += size; });
    const scores = clusters.map(() => 0), having = clusters.map(() => []);
    meant(words, whole).forEach((features, at) => {
      const times = clusters.map(() => 0), own = rows().times?.(words[at]), wanted = new Set(features);
      clusters.forEach(({ size }, c) => {
        if (owner[c] < 0) return;
        let most = own ? own[c] : 0;
        for (let j = starts[c]; j < starts[c + 1]; j++) if (wanted.has(places[j])) most = Math.max(most, frequent[j]);
        times[owner[c]] += most * size / Math.max(sizes[owner[c]], 1);
      });
      for (const c of there) {
        scores[c] += Math.log(times[c] + LACKED);
        if (times[c] > 1) having[c].push(`${features.length > 1 ? `${words[at]}…` : features.length ? all[features[0]] : words[at]} × ${times[c].toPrecision(2)}`);
      }
    });
    const isNamed = (c) => words.every((word) => names[c].toLowerCase().includes(word));
    return there.filter((c) => having[c].length || isNamed(c)).sort((a, b) => isNamed(b) - isNamed(a) || scores[b] - scores[a]).slice(0, MOST).map((c) => [c, having[c]]);
  }
  function listed(title, lines) {
    const list = element("ol", "", "texts");
    for (const [colour, text, more, action] of lines) {
      const item = element("li"), button = Object.assign(element("button", text, "link"), { type: "button" });
      button.addEventListener("click", action);
      item.append(...(colour ? [swatch(colour)] : []), button, element("span", more ? ` ${more}` : "", "soft"));
      list.append(item);
    }
    return [element("h3", title), lines.length ? list : element("p", "None.", "soft")];
  }
  async function look() {
    const whole = field.value.trim().toLowerCase().replace(/\s+/g, " "), words = whole.split(" ").filter(Boolean), request = ++asked;
    box.hidden = !words.length;
    if (!words.length) return;
    await Promise.all([ready, rows().ready]);
    if (request !== asked) return; // more was typed
    const { search, name, open, openCluster } = rows(), found = search(words).sort((a, b) => b[1] - a[1] || a[0] - b[0]);
    const inClusters = findClusters(words, whole).map(([c, having]) => [clusters[c].colour, named(c), having.join(", "), () => openCluster(c)]);
    const inRows = found.slice(0, MOST).map(([i]) => [clusterOf(i) < 0 ? "" : clusters[clusterOf(i)].colour, name(i) || "(no name)", named(clusterOf(i)), () => open(i)]);
    box.dataset.words = whole;
    box.replaceChildren(...listed("Clusters", inClusters), ...listed(`${noun[0].toUpperCase()}${noun.slice(1)}${found.length > MOST ? `, ${MOST} of ${number(found.length)}` : ""}`, inRows));
  }
  field.addEventListener("input", look);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") box.querySelector("button")?.focus();
    if (event.key === "Escape") { field.value = ""; look(); }
  });
  onChange(look);
})();
