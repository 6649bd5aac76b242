"use strict";
/* The table of all rows: search, filter, sort, pages. It runs last, and starts the map. */
(() => {
  const { nodes, classes } = onmf.data;
  const { n, sure, surprise, known, runnerUp, day, days, texts, ready, named, merged, nodeOf, heir, onMerge, map } = onmf.rows;
  const { add, canMove, numberOf } = onmf.edit;
  const { by, number, element, swatch } = onmf.explore;
  const PAGE = matchMedia("(max-width: 52rem)").matches ? 10 : 25, ASIDE = -1;
  const [search, filter, classFilter, sorting, table] = [by("search"), by("filter"), by("class-filter"), by("sort"), by("table")];
  const head = [...table.querySelectorAll("th[aria-sort]")];
  const sureTitle = table.querySelector("[data-sort=sure]").textContent, [dated, strange] = ["date", "surprise"].map((key) => table.querySelector(`[data-sort=${key}]`) !== null);
  let matches = [], page = 0, sort = { key: "", down: false };

  function offerClusters() {
    const before = filter.value === "" ? "" : String(heir(Number(filter.value)));
    let aside = false;
    for (let i = 0; i < n && !aside; i++) aside = nodeOf(i) < 0;
    const options = [["", "All clusters"], ...merged.active.map((node) => [node, named(node)]), ...(aside ? [[ASIDE, "Unassigned"]] : [])];
    filter.replaceChildren(...options.map(([value, text]) => Object.assign(element("option", text), { value })));
    filter.value = before;
    if (filter.selectedIndex < 0) filter.value = "";
  }
  if (classFilter) classFilter.append(...classes.map(({ name }, c) => Object.assign(element("option", name), { value: c })));

  const keys = {
    id: (i) => texts.ids[i],
    cluster: (i) => (nodeOf(i) < 0 ? Infinity : merged.place[nodeOf(i)]),
    runner: (i) => (runnerUp(i) < 0 ? Infinity : runnerUp(i)),
    sure: (i) => (Number.isNaN(sure[i]) ? Infinity : sure[i]),
    surprise: (i) => (Number.isNaN(surprise[i]) ? Infinity : surprise[i]),
    label: (i) => (known[i] < 0 ? "" : classes[known[i]].name),
    date: (i) => days[i],
  };
  const collator = new Intl.Collator(undefined, { numeric: true });
  function list() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const node = filter.value === "" ? null : Number(filter.value), wanted = classFilter && classFilter.value !== "" ? Number(classFilter.value) : null;
    matches = [];
    for (let i = 0; i < n; i++) {
      if (node !== null && nodeOf(i) !== node) continue;
      if (wanted !== null && known[i] !== wanted) continue;
      if (words.length && !words.every((word) => texts.low[i].includes(word))) continue;
      matches.push(i);
    }
    if (sort.key) {
      const values = new Map(matches.map((i) => [i, keys[sort.key](i)]));
      const compare = sort.key === "id" || sort.key === "label" ? collator.compare : (a, b) => (a === b ? 0 : a < b ? -1 : 1);
      matches.sort((a, b) => (sort.down ? -1 : 1) * compare(values.get(a), values.get(b)) || a - b);
    }
    page = 0;
    paint();
  }

  function cell(row, name, content, style = "") {
    const made = element("td", "", style);
    if (name) made.dataset.name = name;
    made.append(...[content].flat());
    row.append(made);
  }
  function group(row, name, node) {
    if (node < 0) { cell(row, name, name === "Cluster" ? "unassigned" : [], "group"); return; }
    const link = element("a", named(node));
    link.href = `#cluster-${merged.active.includes(node) ? node : heir(node)}`;
    cell(row, name, [swatch(nodes[node].colour), link], "group");
  }
  function toRunnerUp(i) { // it shows in edit mode
    const made = element("span", "", "mover"), button = element("button", `Move to ${numberOf(runnerUp(i))}`);
    button.type = "button";
    button.dataset.move = i;
    made.append(button);
    return made;
  }
  function paint() {
    const pages = Math.max(1, Math.ceil(matches.length / PAGE));
    table.tBodies[0].replaceChildren(...matches.slice(page * PAGE, (page + 1) * PAGE).map((i) => {
      const row = element("tr"), name = element("button", texts.ids[i] || "(no name)", "link");
      name.type = "button";
      name.dataset.document = i;
      cell(row, "", name);
      group(row, "Cluster", nodeOf(i));
      group(row, "Runner-up", runnerUp(i));
      if (runnerUp(i) >= 0 && canMove(i) && !onmf.edit.state.parts[runnerUp(i)]) row.lastElementChild.append(toRunnerUp(i));
      cell(row, sureTitle, Number.isNaN(sure[i]) ? [] : Number.isFinite(sure[i]) ? sure[i].toFixed(3) : "∞", "number");
      if (strange) cell(row, "Surprise", Number.isNaN(surprise[i]) ? [] : surprise[i].toPrecision(2), "number");
      if (known) cell(row, "Class", known[i] < 0 ? [] : classes[known[i]].name);
      if (dated) cell(row, "Date", day(i));
      if (onmf.data.texts) cell(row, "", element("span", texts.excerpts[i], "excerpt"));
      return row;
    }));
    by("count").textContent = `${number(matches.length)} of ${number(n)} ${onmf.data.nouns.rows}`;
    by("page").textContent = `Page ${number(page + 1)} of ${number(pages)}`;
    by("previous").disabled = page === 0;
    by("next").disabled = page + 1 >= pages;
  }

  function order(key, down) {
    sort = { key, down };
    sorting.value = key;
    for (const th of head) th.setAttribute("aria-sort", th.firstElementChild.dataset.sort !== key ? "none" : down ? "descending" : "ascending");
    list();
  }
  async function choose(node, label = null) {
    await ready;
    filter.value = String(node);
    if (classFilter) classFilter.value = label === null ? "" : String(label);
    search.value = "";
    list();
    by("rows").scrollIntoView();
    search.focus({ preventScroll: true });
  }
  onmf.rows.list = choose;

  search.addEventListener("input", list);
  filter.addEventListener("change", list);
  classFilter?.addEventListener("change", list);
  sorting.addEventListener("change", () => order(sorting.value, false));
  by("clear").addEventListener("click", () => { search.value = ""; filter.value = ""; if (classFilter) classFilter.value = ""; list(); });
  by("previous").addEventListener("click", () => { page--; paint(); });
  by("next").addEventListener("click", () => { page++; paint(); });
  table.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.move) {
      const i = Number(button.dataset.move);
      add({ move: [texts.ids[i]], to: numberOf(runnerUp(i)) });
      table.querySelector(`[data-document="${i}"]`)?.focus(); // drawn anew
    } else if (button.dataset.document) onmf.rows.read(Number(button.dataset.document));
    else if (button.dataset.sort) order(button.dataset.sort, sort.key === button.dataset.sort && !sort.down);
  });
  onMerge(() => { const before = page; offerClusters(); list(); page = Math.min(before, Math.max(0, Math.ceil(matches.length / PAGE) - 1)); paint(); });

  offerClusters();
  if (map) map.start();
  onmf.showTheme();
  ready.then(() => { list(); document.documentElement.dataset.ready = "yes"; });
})();
