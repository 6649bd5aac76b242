"use strict";
/* The dot plot, the table of clusters and the list of doubtful cells. It runs last, and starts the map. */
(() => {
  const { clusters, classes, cells, genes, dots, doubtful } = onmf.data;
  const { n, cluster, runnerUp, confidence, depth, known, named, findGene, map } = onmf.cells;
  const { by, number, element, swatch } = onmf.explore;
  const LISTED = 50;
  const canShow = (name) => map && genes.names.length > 0 && findGene(name) !== undefined;

  function drawDots() {
    const [head, body] = by("dots").children;
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
    for (const k of dots.clusters) {
      const row = element("tr"), header = element("th");
      header.scope = "row";
      header.dataset.tip = named(k);
      header.append(swatch(clusters[k].colour), named(k));
      row.append(header);
      dots.genes.forEach((gene, j) => {
        const cell = element("td"), dot = element("i"), share = dots.shares[k][j];
        dot.style.setProperty("--size", Math.sqrt(share).toFixed(3));
        dot.style.setProperty("--shade", dots.scaled[k][j]);
        cell.dataset.tip = `${gene} in cluster ${named(k)}\n${(100 * share).toFixed(1)} % of the cells have it; mean expression ${dots.means[k][j].toFixed(2)}`;
        cell.append(dot);
        row.append(cell);
      });
      body.append(row);
    }
  }

  /* Cells of all pairs or of one, the least sure first. */
  const doubtfulCells = Array.from({ length: n }, (_, i) => i)
    .filter((i) => confidence[i] < doubtful && runnerUp[i] >= 0)
    .sort((a, b) => confidence[a] - confidence[b]);
  function listDoubtful(pair) {
    const found = pair ? doubtfulCells.filter((i) => cluster[i] === pair[0] && runnerUp[i] === pair[1]) : doubtfulCells;
    by("doubtful").tBodies[0].replaceChildren(...found.slice(0, LISTED).map((i) => {
      const row = element("tr");
      row.append(element("td", cells.barcodes[i]));
      for (const k of [cluster[i], runnerUp[i]]) {
        const cell = element("td");
        cell.append(swatch(clusters[k].colour), named(k));
        row.append(cell);
      }
      row.append(element("td", confidence[i].toFixed(3), "number"), element("td", number(Math.round(depth[i])), "number"));
      if (classes.length) row.append(element("td", known[i] < 0 ? "" : classes[known[i]].name));
      return row;
    }));
    const those = pair ? ` of cluster ${named(pair[0])} with runner-up ${named(pair[1])}` : "";
    by("doubtful-count").textContent = `${number(Math.min(found.length, LISTED))} of ${number(found.length)} doubtful cells${those}, the least sure first.`;
    by("pair-clear").hidden = !pair;
    document.querySelectorAll("td.chosen").forEach((cell) => cell.classList.remove("chosen"));
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
      listDoubtful(target.dataset.pair.split(" ").map(Number));
      target.parentElement.classList.add("chosen");
    } else if (target.dataset.cluster) {
      map.choose(Number(target.dataset.cluster), true);
      by("map").scrollIntoView();
    } else if (map && genes.names.length) map.askGene(target.dataset.gene);
  });

  if (map) map.start();
  drawDots();
  if (by("doubtful")) { // not there if no cell is doubtful
    by("pair-clear").addEventListener("click", () => listDoubtful(null));
    listDoubtful(null);
  }
  onmf.showTheme();
})();
