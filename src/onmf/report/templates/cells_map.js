"use strict";
/* The map of the cells: what it can be coloured by, and the gene field. */
onmf.cells.map = (() => {
  const { cells, classes, groups, genes, dots } = onmf.data, { clusters, clusterOf, runnerUp, named, numberOf, onChange } = onmf.edit;
  const { n, confidence, surprise, depth, known, group, findGene, expression } = onmf.cells;
  const { by, number, bytes } = onmf.explore;
  if (!cells.places) return null;
  const [select, field, answer] = [by("colour"), by("gene"), by("gene-answer")];
  const greeting = answer ? answer.textContent : "";
  const byCluster = () => {
    const { there } = onmf.edit.state, place = new Map(there.map((c, at) => [c, at]));
    return { members: Int16Array.from({ length: n }, (_, i) => place.get(clusterOf(i)) ?? -1), title: "Clusters", groups: there.map((c) => ({ colour: clusters[c].colour, name: named(c), label: String(numberOf(c)) })) };
  };
  const groupings = { cluster: byCluster() };
  if (known) groupings.class = { members: known, title: "Classes", groups: classes };
  if (group) groupings.group = { members: group, title: "Groups", groups };
  const map = onmf.pointMap({ canvas: by("cells"), places: new Uint16Array(bytes(cells.places).buffer), groupings, describe });

  function describe(i) {
    const lines = [cells.barcodes[i], clusterOf(i) < 0 ? "Unassigned" : `Cluster ${named(clusterOf(i))}`];
    if (!Number.isNaN(confidence[i])) lines.push(`Confidence ${confidence[i].toFixed(2)}${runnerUp(i) < 0 ? "" : `; runner-up ${named(runnerUp(i))}`}`);
    if (!Number.isNaN(surprise[i])) lines.push(`Surprise ${surprise[i].toPrecision(2)}`);
    lines.push(`Depth ${number(Math.round(depth[i]))}`);
    if (group && group[i] >= 0) lines.push(`Group ${groups[group[i]].name}`);
    if (known && known[i] >= 0) lines.push(`Class ${classes[known[i]].name}`);
    if (map.state.by === "gene") lines.push(`${map.state.detail} ${map.state.values[i].toFixed(2)}`);
    return lines.join("\n");
  }

  function colourBy(what, values = null, name = "") {
    select.value = what;
    if (what === "confidence") { // doubtful cells are painted last, in the strongest colour
      map.colourBy(what, { values: confidence.map((value) => 1 - value), ends: ["1, sure", "0, doubtful"] });
    } else if (what === "surprise") {
      map.colourBySurprise(surprise);
    } else if (what === "depth") { // on a logarithmic scale, from the lowest depth
      const logs = depth.map((value) => Math.log1p(value)), floor = logs.reduce((a, b) => Math.min(a, b), Infinity);
      const above = logs.map((value) => value - floor), top = map.top(above);
      map.colourBy(what, { values: above, top, ends: [floor, floor + top].map((value) => number(Math.round(Math.expm1(value)))) });
    } else if (what === "gene") {
      const top = map.top(values);
      map.colourBy(what, { values, top, ends: ["0", top.toFixed(1)], detail: name });
    } else map.colourBy(what);
  }

  let asked = 0;
  async function showGene(text) {
    const index = findGene(text), request = ++asked;
    if (index === undefined) {
      answer.textContent = text ? `No gene on this page is called “${text}”. ${greeting}` : greeting;
      return false;
    }
    const name = genes.names[index], values = await expression(index);
    if (request !== asked) return true; // a later gene was faster
    let having = 0;
    for (let i = 0; i < n; i++) if (values[i] > 0) having++;
    answer.textContent = `${name}: in ${number(having)} of ${number(n)} cells (${(100 * having / n).toFixed(1)} %). Colour: log(1 + counts per 10,000).`;
    // Leaving the field asks again. The legend must not be built anew then: it may be what is being clicked.
    if (map.state.by !== "gene" || map.state.detail !== name) colourBy("gene", values, name);
    return true;
  }
  function askGene(text) {
    field.value = text;
    showGene(text);
    by("map").scrollIntoView();
  }
  if (field) {
    const list = by("gene-names");
    field.addEventListener("input", () => {
      const text = field.value.trim().toLowerCase();
      const begin = [], inside = [];
      for (const name of genes.names) {
        const at = name.toLowerCase().indexOf(text);
        if (at === 0) begin.push(name); else if (at > 0) inside.push(name);
      }
      begin.sort((a, b) => a.length - b.length);
      list.replaceChildren(...[...begin, ...inside].slice(0, 40).map((name) => Object.assign(document.createElement("option"), { value: name })));
      if (findGene(field.value.trim()) !== undefined || !begin.length) showGene(field.value.trim());
    });
    field.addEventListener("change", () => showGene(field.value.trim()));
  }
  select.addEventListener("change", () => {
    asked++; // forget a gene that is still being unpacked
    if (select.value !== "gene") { if (answer) answer.textContent = greeting; colourBy(select.value); return; }
    if (!field.value.trim()) field.value = dots.genes.find((name) => findGene(name) !== undefined) ?? genes.names[0];
    showGene(field.value.trim()).then((found) => { if (!found) select.value = map.state.by; });
  });
  map.tellFar({ row: "cell", rows: "cells", name: (i) => cells.barcodes[i] });
  onChange(() => map.regroup("cluster", byCluster()));
  /* Show a cell: its cluster, and what is known of it. */
  function show(i) {
    by("map").scrollIntoView({ behavior: "instant" });
    choose(clusterOf(i));
    const { x, y } = map.at(i);
    requestAnimationFrame(() => requestAnimationFrame(() => onmf.explore.showTip(describe(i), x, y))); // scrolling hides tips
  }
  function choose(c) {
    const at = onmf.edit.state.there.indexOf(onmf.edit.state.owner[c] ?? -1);
    if (map.state.by !== "cluster") colourBy("cluster");
    if (at >= 0) map.choose(at, true);
  }
  return { ...map, askGene, show, choose };
})();
