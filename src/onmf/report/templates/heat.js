"use strict";
/* A table of counts that came with the page, as onmf.heat(table, …). Its columns are clusters, and perhaps its rows. It follows the edits.

tell     what a cell counts: (count, header of the row, cluster of the column, share, cluster of the row) => text
whole    what shares are of: (row, cluster of the row) => count; by default the sum of the row
headOf   function: the header of the row of the table that a moved row of the data belongs to
button   the content of a cell that can be clicked: (cluster of the row, cluster of the column) => text for data-pair */
onmf.heat = (table, { tell, whole = null, headOf = null, button = null }) => {
  const { named, moves, onChange } = onmf.edit, { number, element } = onmf.explore;
  const heads = [...table.tHead.rows[0].cells].slice(1), lines = [...table.tBodies[0].rows], sides = lines.map((line) => line.cells[0]);
  const counts = lines.map((line) => [...line.cells].slice(1).map((cell) => Number(cell.textContent.replaceAll(",", ""))));
  const of = (head) => Number(head.dataset.of), isCluster = sides.some((side) => side.dataset.of !== undefined);
  const label = (head) => {
    head.dataset.tip = named(of(head));
    head.querySelectorAll(".of").forEach((text) => { text.textContent = named(of(head)); });
  };

  function draw() {
    const { owner } = onmf.edit.state;
    const across = heads.map((head) => owner[of(head)]), down = isCluster ? sides.map((side) => owner[of(side)]) : sides.map((_, r) => r);
    const shown = (list, at) => list[at] >= 0 && list.indexOf(list[at]) === at; // the first of merged clusters stands for all
    const sums = counts.map((line) => line.map(() => 0));
    counts.forEach((line, r) => line.forEach((count, j) => {
      if (down[r] >= 0 && across[j] >= 0 && !(isCluster && down[r] === across[j])) sums[down.indexOf(down[r])][across.indexOf(across[j])] += count;
    }));
    if (headOf) for (const [i, from, to] of moves()) {
      const r = sides.findIndex((side) => side.textContent === headOf(i));
      for (const [c, change] of [[from, -1], [to, 1]]) if (r >= 0 && across.includes(c)) sums[r][across.indexOf(c)] += change;
    }
    const shares = sums.map((line, r) => { const all = (whole ?? ((row) => row.reduce((a, b) => a + b, 0)))(line, down[r]); return line.map((count) => (all ? count / all : 0)); });
    const most = Math.max(...shares.flat()) || 1;
    heads.forEach((head, j) => { head.hidden = !shown(across, j); label(head); });
    lines.forEach((line, r) => {
      line.hidden = !shown(down, r);
      if (isCluster) label(sides[r]);
      sums[r].forEach((count, j) => {
        const cell = line.cells[j + 1], shade = shares[r][j] / most;
        cell.hidden = heads[j].hidden;
        cell.className = !count ? "none" : shade > 0.55 ? "dark" : "";
        cell.style.setProperty("--shade", shade.toFixed(3));
        if (count) cell.dataset.tip = tell(number(count), sides[r].textContent, across[j], `${(100 * shares[r][j]).toFixed(1)} %`, down[r]); else delete cell.dataset.tip;
        cell.textContent = number(count);
        if (!button || !count) return;
        const made = Object.assign(element("button", number(count)), { type: "button" });
        made.dataset.pair = `${down[r]} ${across[j]}`;
        cell.replaceChildren(made);
      });
    });
  }
  onChange(draw);
  draw();
};

if (document.getElementById("group-table")) {
  onmf.heat(document.getElementById("group-table"), {
    headOf: (i) => onmf.edit.rows().group?.(i) ?? "",
    tell: (count, head, c, share) => `${count} ${onmf.data.nouns.rows} of ${head} (${share} of the group) are in cluster ${onmf.edit.named(c)}.`,
  });
}
