"use strict";
/* The slider that merges clusters, and the tree of the merges. */
(() => {
  const { nodes, pairs, lost, costs } = onmf.data;
  const { k, leaves, named, merged, merge, onMerge } = onmf.rows;
  const { by, whenSeen } = onmf.explore;
  if (k < 2) return;
  const ROW = 22, HEAD = 36, slider = by("level"), area = by("dendrogram");
  const levels = new Map([...by("levels").options].map((option) => [Number(option.value), `, the ${option.label} level`]));
  const halves = (node) => (nodes[node].found === null ? "" : `\nfound by ${percent(nodes[node].found)} of the halves`);
  const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

  function tell() {
    const done = k - merged.left;
    by("level-text").textContent = done
      ? `${merged.left} of ${k} clusters${levels.get(merged.left) ?? ""}; ${percent(lost[done - 1])} of the information lost. Last merge: ${named(pairs[done - 1][0])} and ${named(pairs[done - 1][1])}`
      : `${k} clusters, as found`;
    if (onmf.edit.edited()) by("level-text").textContent += `; ${merged.active.length} with the changes`;
    slider.value = merged.left;
    slider.setAttribute("aria-valuetext", `${merged.left} clusters`);
    by("fewer").disabled = merged.left === 1;
    by("more").disabled = merged.left === k;
  }

  function svg(tag, attributes, parent) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "tip") made.dataset.tip = value;
      else if (name === "colour") made.style.setProperty("--colour", value);
      else made.setAttribute(name, value);
    }
    parent.append(made);
    return made;
  }

  /* Clusters in an order in which no branches cross; the larger branch comes first. */
  const rows = [];
  (function walk(stack) {
    while (stack.length) {
      const node = stack.pop();
      if (node < k) { rows.push(node); continue; }
      const [a, b] = [...pairs[node - k]].sort((one, other) => nodes[other].size - nodes[one].size);
      stack.push(b, a);
    }
  })([2 * k - 2]);

  function draw() {
    const width = area.clientWidth, names = Math.min(300, width * 0.42), span = width - names - 26;
    if (width < 50) return;
    const x = (share) => names + 8 + share * span, height = k * ROW + HEAD, done = k - merged.left;
    const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    drawing.setAttribute("height", height);
    drawing.setAttribute("role", "img");
    drawing.setAttribute("aria-label", "Tree of the clusters. The slider above merges them in this order.");
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      svg("line", { class: "grid", x1: x(share), x2: x(share), y1: HEAD, y2: height }, drawing);
      svg("text", { class: "axis", x: x(share), y: 26 }, drawing).textContent = percent(share);
    }
    svg("text", { class: "axis", x: x(0.5), y: 9 }, drawing).textContent = width < 600 ? "information lost" : `information about the ${onmf.data.nouns.features} that is lost`;
    const at = new Array(2 * k - 1), letters = Math.floor(names / 7.4);
    rows.forEach((leaf, row) => {
      at[leaf] = [x(0), HEAD + (row + 0.5) * ROW];
      const text = named(leaf), label = svg("text", { x: 14, y: at[leaf][1], tip: text + halves(leaf) }, drawing);
      label.textContent = text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
      svg("rect", { x: 0, y: at[leaf][1] - 5, width: 10, height: 10, rx: 2, fill: merged.owner[leaf] < 0 ? "var(--line)" : nodes[merged.owner[leaf]].colour }, drawing);
    });
    pairs.forEach(([a, b], t) => {
      const [[xa, ya], [xb, yb]] = [at[a], at[b]], here = x(lost[t]);
      at[k + t] = [here, (ya + yb) / 2];
      svg("path", { d: `M${xa} ${ya}H${here}V${yb}H${xb}`, class: t < done ? "merged" : "", colour: nodes[k + t].colour }, drawing);
    });
    const cut = (x(done ? lost[done - 1] : 0) + x(done < k - 1 ? lost[done] : 1)) / 2;
    svg("line", { class: "cut", x1: cut, x2: cut, y1: HEAD, y2: height }, drawing);
    pairs.forEach(([a, b], t) => {
      const joint = svg("circle", { cx: at[k + t][0], cy: at[k + t][1], r: 4.5, class: t < done ? "merged" : "", colour: nodes[k + t].colour,
        tip: `${named(a)}\nand ${named(b)}\nmerge at a cost of ${Number(costs[t].toPrecision(4)).toLocaleString("en")} in the objective; ${percent(lost[t])} of the information is then lost, and ${k - t - 1} ${k - t - 1 === 1 ? "cluster is" : "clusters are"} left${halves(k + t)}` }, drawing);
      joint.dataset.left = k - t - 1;
    });
    area.replaceChildren(drawing);
  }

  /* The merges that the slider shows become edits. */
  const shown = () => merged.active.map((node) => [...new Set(leaves[node].map((leaf) => onmf.edit.state.owner[leaf]))]).filter((some) => some.length > 1);
  function offer() {
    by("edit-shown").hidden = !shown().length;
    by("edit-shown").textContent = `Merge as shown: ${merged.active.length} ${merged.active.length === 1 ? "cluster" : "clusters"}`;
  }
  by("edit-shown").addEventListener("click", () => {
    if (onmf.edit.add(...shown().map((some) => ({ merge: some.map(onmf.edit.numberOf) })))) merge(k);
  });
  onMerge(offer);

  area.addEventListener("click", (event) => { if (event.target.dataset.left) merge(Number(event.target.dataset.left)); });
  let frame = 0;
  slider.addEventListener("input", () => { frame ||= requestAnimationFrame(() => { frame = 0; merge(Number(slider.value)); }); });
  by("fewer").addEventListener("click", () => merge(merged.left - 1));
  by("more").addEventListener("click", () => merge(merged.left + 1));
  onMerge(tell);
  onMerge(whenSeen(by("tree"), draw));
  new ResizeObserver(draw).observe(area);
  tell();
  draw();
})();
