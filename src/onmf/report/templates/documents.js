"use strict";
/* The table of all documents: search, filter, sort, pages. Texts are inserted as text, never as HTML. */
(() => {
  const { documents, clusters, classes } = onmf.data;
  const PAGE = 50;
  const n = documents.id.length;
  const by = (id) => document.getElementById(id);
  const [search, filter, body] = [by("search"), by("filter"), document.querySelector("#table tbody")];
  const low = new Array(n);
  const haystack = (i) => (low[i] ??= [documents.id[i], documents.text[i] ?? "", classes ? classes[documents.label[i]] ?? "" : ""].join("\n").toLowerCase());
  let matches = [], page = 0, sort = { key: null, down: false };

  function cell(row, text, style) {
    const td = document.createElement("td");
    if (style) td.className = style;
    td.textContent = text;
    row.append(td);
    return td;
  }

  function list() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const cluster = filter.value === "" ? null : Number(filter.value);
    matches = [];
    for (let i = 0; i < n; i++) {
      if (cluster !== null && documents.cluster[i] !== cluster) continue;
      if (words.length && !words.every((word) => haystack(i).includes(word))) continue;
      matches.push(i);
    }
    if (sort.key) {
      const value = sort.key === "label" ? (i) => classes[documents.label[i]] ?? "" : (i) => documents[sort.key][i];
      const text = sort.key === "id" || sort.key === "label";
      const compare = text ? (a, b) => value(a).localeCompare(value(b), undefined, { numeric: true }) : (a, b) => value(a) - value(b);
      matches.sort((a, b) => (sort.down ? compare(b, a) : compare(a, b)));
    }
    page = 0;
    paint();
  }

  function paint() {
    const pages = Math.max(1, Math.ceil(matches.length / PAGE));
    body.replaceChildren(...matches.slice(page * PAGE, (page + 1) * PAGE).map((i) => {
      const row = document.createElement("tr");
      cell(row, documents.id[i]);
      const k = documents.cluster[i];
      const td = cell(row, "");
      if (k < 0) td.textContent = "set aside";
      else {
        const swatch = document.createElement("span");
        swatch.className = "swatch";
        swatch.style.setProperty("--colour", clusters[k].colour);
        const link = document.createElement("a");
        link.href = `#cluster-${k}`;
        link.textContent = `${clusters[k].number}: ${clusters[k].name}`;
        td.append(swatch, link);
      }
      cell(row, k < 0 ? "" : documents.margin[i].toFixed(3), "number");
      if (classes) cell(row, classes[documents.label[i]] ?? "");
      cell(row, documents.text[i] ?? "");
      return row;
    }));
    by("count").textContent = `${matches.length.toLocaleString("en")} of ${n.toLocaleString("en")} documents`;
    by("page").textContent = `Page ${page + 1} of ${pages}`;
    by("previous").disabled = page === 0;
    by("next").disabled = page + 1 >= pages;
  }

  function choose(cluster) {
    filter.value = String(cluster);
    search.value = "";
    list();
    by("documents").scrollIntoView();
    search.focus({ preventScroll: true });
  }

  search.addEventListener("input", list);
  filter.addEventListener("change", list);
  by("clear").addEventListener("click", () => { search.value = ""; filter.value = ""; list(); });
  by("previous").addEventListener("click", () => { page--; paint(); });
  by("next").addEventListener("click", () => { page++; paint(); });
  document.querySelectorAll("button[data-cluster]").forEach((button) => button.addEventListener("click", () => choose(button.dataset.cluster)));
  document.querySelectorAll("button[data-sort]").forEach((button) => button.addEventListener("click", () => {
    sort = { key: button.dataset.sort, down: sort.key === button.dataset.sort && !sort.down };
    document.querySelectorAll("th[aria-sort]").forEach((th) => th.setAttribute("aria-sort", "none"));
    button.parentElement.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
    list();
  }));
  onmf.onClick("map", (point) => choose(point.customdata));
  list();
  onmf.drawAll();
})();
