"use strict";
/* The dot plot and the tables. It runs last, and starts the map. */
(() => {
  const { classes, genes, dots } = onmf.data, { clusters, clusterOf, runnerUp, named, onChange } = onmf.edit;
  const { known, findGene, map } = onmf.cells;
  const { by, number, element, swatch } = onmf.explore;
  const canShow = (name) => map && genes.names.length > 0 && findGene(name) !== undefined;

  function drawDots() {
    const [head, body] = by("dots").children;
    head.replaceChildren();
    body.replaceChildren();
    const top = element("tr");
    top.append(element("th", "Cluster"));
    for (const gene of dots.genes) {
      const header = element("th"), name = element(canShow(gene) ? "button" : "span", gene, "up");
      if (name.type) { name.type = "button"; name.dataset.gene = gene; }
      header.scope = "col";
      header.append(name);
      top.append(header);
    }
    head.append(top);
    const { owner, there } = onmf.edit.state;
    for (const k of there.filter((c) => dots.clusters.includes(c))) {
      const parts = dots.clusters.filter((c) => owner[c] === k), total = parts.reduce((sum, c) => sum + clusters[c].size, 0);
      const mean = (table, j) => parts.reduce((sum, c) => sum + clusters[c].size / total * table[c][j], 0); // over their cells
      const row = element("tr"), header = element("th");
      header.scope = "row";
      header.dataset.tip = named(k);
      header.append(swatch(clusters[k].colour), named(k));
      row.append(header);
      dots.genes.forEach((gene, j) => {
        const cell = element("td"), dot = element("i"), share = mean(dots.shares, j);
        dot.style.setProperty("--size", Math.sqrt(share).toFixed(3));
        dot.style.setProperty("--shade", mean(dots.scaled, j).toFixed(2));
        cell.dataset.tip = `${gene} in cluster ${named(k)}\n${(100 * share).toFixed(1)} % of the cells have it; mean expression ${mean(dots.means, j).toFixed(2)}`;
        cell.append(dot);
        row.append(cell);
      });
      body.append(row);
    }
  }

  const pairs = by("pairs"), classTable = by("class-table");
  function showPair(pair) {
    onmf.odd.only(pair ? (i) => clusterOf(i) === pair[0] && runnerUp(i) === pair[1] : () => true, pair ? ` of cluster ${named(pair[0])} with runner-up ${named(pair[1])}` : "");
    by("pair-clear").hidden = !pair;
    document.querySelectorAll("td.chosen").forEach((cell) => cell.classList.remove("chosen"));
  }
  if (pairs) {
    onmf.heat(pairs, {
      button: true,
      whole: (row, c) => onmf.edit.state.sizes[c],
      tell: (count, head, to, share, from) => `${count} of the ${number(onmf.edit.state.sizes[from])} cells of cluster ${named(from)} (${share}) have cluster ${named(to)} close behind.`,
    });
    by("pair-clear").addEventListener("click", () => showPair(null));
  }
  if (classTable) {
    onmf.heat(classTable, {
      headOf: (i) => (known[i] < 0 ? "" : classes[known[i]].name),
      tell: (count, head, c, share) => `${count} cells of ${head} (${share} of the class) are in cluster ${named(c)}.`,
    });
  }

  function sortClusters(button) {
    const header = button.parentElement, key = button.dataset.sort;
    const down = header.getAttribute("aria-sort") === "ascending";
    const body = by("clusters-table").tBodies[0];
    document.querySelectorAll("#clusters-table th[aria-sort]").forEach((other) => other.setAttribute("aria-sort", "none"));
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...[...body.rows].sort((a, b) => (down ? -1 : 1) * (a.dataset[key] - b.dataset[key])));
  }

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-gene], [data-cluster], [data-sort], [data-pair]");
    if (!target) return;
    if (target.dataset.sort) sortClusters(target);
    else if (target.dataset.pair) {
      showPair(target.dataset.pair.split(" ").map(Number));
      target.parentElement.classList.add("chosen");
    } else if (target.dataset.cluster) {
      map.choose(Number(target.dataset.cluster));
      by("map").scrollIntoView();
    } else if (map && genes.names.length) map.askGene(target.dataset.gene);
  });

  if (map) map.start();
  drawDots();
  onChange(drawDots);
  onChange(() => { if (pairs) showPair(null); });
  onmf.showTheme();
})();
