"use strict";
/* Classes against clusters. The table may have many thousands of cells, so it is drawn when it comes into view. */
(() => {
  const { nodes, classes, class_counts: counts } = onmf.data;
  const { merged, named, countsByClass, onMerge } = onmf.rows;
  const { by, number, element, swatch, whenSeen } = onmf.explore;
  if (!counts) return;
  const table = by("class-table"), order = by("class-order");
  let columns = [], rows = [];

  function draw() {
    columns = merged.active.map(countsByClass);
    const sizes = classes.map((_, c) => columns.reduce((sum, column) => sum + column[c], 0));
    const home = classes.map((_, c) => columns.reduce((best, column, j) => (column[c] > columns[best][c] ? j : best), 0));
    const compare = {
      cluster: (a, b) => home[a] - home[b] || columns[home[b]][b] / sizes[b] - columns[home[a]][a] / sizes[a],
      size: (a, b) => sizes[b] - sizes[a],
      name: (a, b) => classes[a].name.localeCompare(classes[b].name, undefined, { numeric: true }),
    }[order.value];
    rows = classes.map((_, c) => c).sort((a, b) => compare(a, b) || a - b);
    const top = element("tr");
    top.append(element("th", "Class ↓ cluster →"));
    for (const node of merged.active) {
      const head = element("th"), text = element("span", named(node), "up");
      head.scope = "col";
      head.dataset.tip = named(node);
      head.append(text, swatch(nodes[node].colour));
      top.append(head);
    }
    const empty = element("tr");
    empty.append(element("th"), ...columns.map(() => element("td", "", "none")));
    table.tHead.replaceChildren(top);
    table.tBodies[0].replaceChildren(...rows.map((c) => {
      const row = empty.cloneNode(true), [head, ...cells] = row.children;
      head.scope = "row";
      head.textContent = classes[c].name;
      head.dataset.tip = `${classes[c].name}, ${number(sizes[c])} ${onmf.data.nouns.rows}`;
      columns.forEach((column, j) => {
        if (!column[c]) return;
        const share = column[c] / sizes[c], cell = cells[j], button = element("button", number(column[c]));
        cell.className = share > 0.55 ? "dark" : "";
        cell.style.setProperty("--shade", share.toFixed(3));
        cell.dataset.tip = `${number(column[c])} ${onmf.data.nouns.rows} of ${classes[c].name} (${(100 * share).toFixed(1)} % of the class) are in cluster ${named(merged.active[j])}`;
        button.type = "button";
        button.dataset.pair = `${c} ${merged.active[j]}`;
        cell.append(button);
      });
      return row;
    }));
  }
  const refresh = whenSeen(by("classes"), draw, true);
  order.addEventListener("change", refresh);
  table.addEventListener("click", (event) => {
    const pair = event.target.closest("[data-pair]")?.dataset.pair.split(" ").map(Number);
    if (pair) onmf.rows.list(pair[1], pair[0]);
  });
  onMerge(refresh);
})();
