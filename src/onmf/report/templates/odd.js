"use strict";
/* Two lists of rows: doubtful ones, whose cluster is not sure, and unusual ones, which fit nowhere well. A page adds to its rows:

n, sure, surprise  how many there are, and numbers for each; surprise may be null
columns            further columns: [title, function of a row] */
onmf.odd = (() => {
  const { clusters, clusterOf, runnerUp, named, mover, rows, onChange } = onmf.edit, { sure: sureName, nouns } = onmf.data, noun = nouns.rows;
  const { by, number, element, swatch } = onmf.explore;
  const LISTED = 50, UNUSUAL = 0.05, { doubtful: DOUBTFUL } = onmf.data;
  const { n, sure, surprise } = rows(), capital = (text) => text[0].toUpperCase() + text.slice(1);
  const isUnusual = (value) => value <= Math.fround(UNUSUAL); // numbers of the page have single precision
  const all = Array.from({ length: n }, (_, i) => i), limit = sureName === "confidence" ? DOUBTFUL : Infinity;
  const doubtful = all.filter((i) => sure[i] < limit && rows().cluster[i] >= 0 && rows().runnerUp(i) >= 0).sort((a, b) => sure[a] - sure[b]);
  const unusual = surprise ? all.filter((i) => isUnusual(surprise[i])).sort((a, b) => surprise[a] - surprise[b]) : [];
  let only = () => true, which = "";

  function list(table, found, title, value) {
    const { name, open, columns = [] } = rows(), head = element("tr");
    for (const text of [capital(nouns.row), "Cluster", "Runner-up", title, ...columns.map(([column]) => column)]) {
      head.append(Object.assign(element("th", text, text === title ? "number" : ""), { scope: "col" }));
    }
    table.tHead.replaceChildren(head);
    table.tBodies[0].replaceChildren(...found.slice(0, LISTED).map((i) => {
      const row = element("tr"), first = element("td"), button = Object.assign(element("button", name(i) || "(no name)", "link"), { type: "button" });
      button.addEventListener("click", () => open(i));
      first.append(button, " ", mover(i));
      row.append(first);
      for (const [c, none] of [[clusterOf(i), "unassigned"], [runnerUp(i), ""]]) { // after a merge, the page may not know the runner-up
        const cell = element("td");
        if (c >= 0) cell.append(swatch(clusters[c].colour));
        cell.append(c < 0 ? none : named(c));
        row.append(cell);
      }
      row.append(element("td", value(i), "number"), ...columns.map(([, text]) => element("td", text(i))));
      return row;
    }));
    table.hidden = !found.length;
  }
  function draw() {
    const found = doubtful.filter(only);
    list(by("doubtful"), found, capital(sureName), (i) => sure[i].toFixed(3));
    by("doubtful-count").textContent = found.length || which
      ? `${number(Math.min(found.length, LISTED))} of ${number(found.length)} ${limit < 1 ? "doubtful " : ""}${noun}${which}, the least sure first.${limit < 1 ? ` They have a confidence below ${DOUBTFUL}.` : ""}`
      : sure.some(Number.isFinite) ? `No ${nouns.row} has a ${sureName} below ${DOUBTFUL}.` : `The ${sureName} is not known.`;
    if (!surprise || !by("unusual")) return;
    list(by("unusual"), unusual, "Surprise", (i) => surprise[i].toPrecision(2));
    const told = surprise.filter(isUnusual).length, known = surprise.filter((value) => value >= 0).length;
    by("unusual-count").textContent = `${number(told)} of ${number(known)} ${noun} have a surprise of at most ${UNUSUAL}, and about ${number(Math.round(UNUSUAL * known))} would if all were from one source. The most unusual first.`;
  }
  rows().ready.then(() => { draw(); onChange(draw); });
  return { only: (filter, text) => { [only, which] = [filter, text]; draw(); } };
})();
