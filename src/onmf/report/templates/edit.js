"use strict";
/* Edits of the clusters: what they do to this page, the draft that the browser keeps, and the file for `onmf edit`.

Clusters are told by their places in `clusters`, rows by their places in the page; -1 is unassigned. In edits, which
people read, clusters have their numbers and rows their names. A page connects its rows:

cluster     place of the cluster of each row, as fitted
runnerUp    function: place of the runner-up of a row, as fitted
name, find  functions: the name of a row, and the row of a name, -1 if it is not in the page
canMove     function: whether a row may be moved; if it took no part, or shares its name with others, it may not */
onmf.edit = (() => {
  const { run, kind, clusters } = onmf.data.edit;
  const { by, number, element, swatch } = onmf.explore;
  const LONGEST = 100; // characters of a name
  const places = new Map(clusters.map((cluster, at) => [cluster.number, at])), listeners = [], key = `onmf edits ${run}`;
  let edits = [], past = [], future = []; // lists of edits: the draft, those that undo brings back, and redo
  let state = replay([]), storage = null;
  let rows = { cluster: [], runnerUp: () => -1, name: () => "", find: () => -1, canMove: () => false };

  /* ---- what edits do ---- */
  function require(holds, sentence) {
    if (!holds) throw new Error(sentence);
  }
  /* The clusters after some edits: `owner` is the cluster that now has the rows of each. */
  function replay(list) {
    const next = { owner: clusters.map((_, c) => c), names: clusters.map(({ name }) => name), parts: clusters.map(() => 0), moved: new Map() };
    const given = new Set(), isThere = (c) => next.owner[c] === c;
    const take = (wanted) => {
      const c = places.get(wanted);
      require(c !== undefined && isThere(c), `There is no cluster ${wanted}.`);
      require(!next.parts[c], `Cluster ${wanted} is to be split. Edit its parts in the new report.`);
      return c;
    };
    const all = (numbers) => { require(Array.isArray(numbers), "A list of clusters is needed."); return [...new Set(numbers.map(take))]; };
    for (const edit of list) {
      if ("merge" in edit) {
        const some = all(edit.merge), into = Math.min(...some);
        require(some.length > 1, "Choose two clusters or more to merge.");
        const named = some.sort((a, b) => a - b).find((c) => given.has(c)); // a name that was given stays
        if (named !== undefined) { next.names[into] = next.names[named]; given.add(into); }
        next.owner = next.owner.map((c) => (some.includes(c) ? into : c));
      } else if ("set aside" in edit) {
        const some = all(edit["set aside"]);
        next.owner = next.owner.map((c) => (some.includes(c) ? -1 : c));
        require(next.owner.some((c) => c >= 0), "At least one cluster has to stay.");
      } else if ("split" in edit) {
        const c = take(edit.split);
        const size = clusters.reduce((sum, cluster, part) => sum + (next.owner[part] === c ? cluster.size : 0), 0);
        require(Number.isInteger(edit.into) && edit.into > 1 && edit.into <= size, `Cluster ${edit.split} can be split into 2 to ${number(size)} parts.`);
        next.parts[c] = edit.into;
      } else if ("rename" in edit) {
        for (const [wanted, name] of Object.entries(edit.rename)) {
          const c = take(Number(wanted)), other = next.names.findIndex((text, at) => at !== c && isThere(at) && text === name);
          require(typeof name === "string" && name && name === name.trim(), "A name has at least one letter.");
          require([...name].length <= LONGEST, `A name has at most ${LONGEST} characters.`);
          require(!/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u.test(name), "A name has no line breaks or control characters.");
          require(other < 0, `Cluster ${clusters[other]?.number} has this name: names must differ.`);
          next.names[c] = name;
          given.add(c);
        }
      } else {
        const to = edit.to === null ? -1 : take(edit.to);
        require(Array.isArray(edit.move), "A list of rows is needed.");
        for (const name of edit.move) next.moved.set(name, to);
      }
    }
    next.there = next.owner.flatMap((owner, c) => (owner === c ? [c] : []));
    return next;
  }
  /* Find the moved rows in the page, and count. */
  function settle() {
    state.at = new Map([...state.moved].map(([name, to]) => [rows.find(name), to]).filter(([i]) => i >= 0));
    state.sizes = clusters.map(() => 0);
    clusters.forEach(({ size }, c) => { if (state.owner[c] >= 0) state.sizes[state.owner[c]] += size; });
    for (const [i, from, to] of moves()) {
      if (from >= 0) state.sizes[from]--;
      if (to >= 0) state.sizes[to]++;
    }
  }
  const ownerOf = (c) => (c < 0 ? -1 : state.owner[c]);
  const clusterOf = (i) => ownerOf(state.at.size && state.at.has(i) ? state.at.get(i) : rows.cluster[i]);
  /* Moved rows of the page: [row, cluster that it would have, cluster that it has]. */
  const moves = () => [...state.at.keys()].map((i) => [i, ownerOf(rows.cluster[i]), clusterOf(i)]);
  /* The best other cluster of a row: of a moved one, that from which it was moved. */
  const runnerUp = (i) => [rows.runnerUp(i), rows.cluster[i]].map(ownerOf).find((c) => c >= 0 && c !== clusterOf(i)) ?? -1;
  const plain = (c) => `${state.names[c]}${state.parts[c] ? ` (to be split into ${state.parts[c]})` : ""}`;
  const named = (c) => (c < 0 ? "unassigned" : `${clusters[c].number}: ${plain(c)}`);

  /* ---- the draft ---- */
  function refresh() {
    state = replay(edits);
    settle();
    draw();
    followAll();
    listeners.forEach((listener) => listener());
  }
  function keep() {
    try {
      if (edits.length) storage.setItem(key, JSON.stringify(edits)); else storage.removeItem(key);
    } catch { storage = null; }
  }
  function recall() {
    let found = [];
    try {
      storage = window.localStorage;
      found = JSON.parse(storage.getItem(key)) ?? [];
      replay(found);
    } catch (error) {
      if (!storage) return;
      found = [];
    }
    edits = found;
    past = edits.map((_, done) => edits.slice(0, done));
    future = [];
  }
  /* Exchange the draft, unless its edits contradict each other; and say so. */
  function change(next, said) {
    try { replay(next); } catch (error) { by("edit-said").textContent = error.message; return false; }
    past.push(edits);
    [edits, future] = [next, []];
    keep();
    refresh();
    by("edit-said").textContent = said;
    return true;
  }
  function add(...more) {
    const done = change([...edits, ...more], more.map(told).join(" "));
    if (done) {
      for (const { box } of lines) box.checked = false;
      choose();
    }
    return done;
  }
  function step(from, to, word) {
    if (!from.length) return;
    to.push(edits);
    edits = from.pop();
    keep();
    refresh();
    by("edit-said").textContent = `${word}. ${number(edits.length)} ${edits.length === 1 ? "change" : "changes"} left.`;
  }
  const numberOf = (c) => clusters[c].number;
  function told(edit) {
    if ("merge" in edit) return `Merge ${edit.merge.join(" and ")} as ${Math.min(...edit.merge)}.`;
    if ("set aside" in edit) return `Set ${edit["set aside"].join(" and ")} aside.`;
    if ("split" in edit) return `Split ${edit.split} into ${edit.into}.`;
    if ("rename" in edit) return Object.entries(edit.rename).map(([given, name]) => `Rename ${given} to “${name}”.`).join(" ");
    return `Move ${edit.move.join(", ")} to ${edit.to === null ? "unassigned" : edit.to}.`;
  }

  /* ---- the panel ---- */
  const lines = clusters.map(({ colour }, c) => {
    const line = element("li"), label = element("label"), box = Object.assign(element("input"), { type: "checkbox", value: c });
    const name = element("span"), size = element("span", "", "many"), pen = Object.assign(element("button", "✎"), { type: "button" });
    label.append(box, swatch(colour), name, size);
    line.append(label, pen);
    pen.addEventListener("click", () => rename(c));
    box.addEventListener("change", choose);
    return { line, label, box, name, size, pen };
  });
  by("editor-clusters").append(...lines.map(({ line }) => line));
  const chosen = () => state.there.filter((c) => lines[c].box.checked);
  function choose() {
    const some = chosen();
    by("edit-merge").disabled = some.length < 2;
    by("edit-aside").disabled = !some.length;
    by("edit-split").disabled = some.length !== 1 || state.sizes[some[0]] < 2;
  }
  function rename(c) {
    const { line, label, pen } = lines[c], field = Object.assign(element("input"), { type: "text", value: state.names[c], maxLength: LONGEST });
    field.setAttribute("aria-label", `Name of cluster ${numberOf(c)}`);
    line.replaceChildren(field);
    field.select();
    let open = true;
    const close = (keepIt) => {
      if (!open) return;
      const name = field.value.trim();
      if (keepIt && name !== state.names[c] && !add({ rename: { [numberOf(c)]: name } })) { field.focus(); return; }
      open = false;
      line.replaceChildren(label, pen);
    };
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      close(event.key === "Enter");
      if (!open) pen.focus();
    });
    field.addEventListener("blur", () => close(true));
    field.focus();
  }
  function draw() {
    const many = edits.length, changes = `${number(many)} ${many === 1 ? "change" : "changes"}`;
    clusters.forEach((_, c) => {
      const { line, box, name, size, pen } = lines[c];
      line.hidden = state.owner[c] !== c;
      box.disabled = pen.disabled = state.parts[c] > 0;
      if (line.hidden || box.disabled) box.checked = false;
      name.textContent = named(c);
      size.textContent = number(state.sizes[c]);
      pen.setAttribute("aria-label", `Rename cluster ${named(c)}`);
    });
    choose();
    by("edit-undo").disabled = !past.length;
    by("edit-redo").disabled = !future.length;
    by("edit-download").disabled = by("edit-discard").disabled = !many;
    by("draft").hidden = !many;
    by("draft-text").textContent = `This page shows ${changes} that ${many === 1 ? "is" : "are"} not in the files yet.`;
    by("edit").textContent = many ? `Edit (${number(many)})` : "Edit";
    by("edit-kept").textContent = storage ? "This browser keeps the draft for this result, also if the page is closed or loaded again." : "This browser keeps no drafts of local pages: download the changes before you close the page.";
    by("editor-changes").replaceChildren(...edits.map((edit, at) => {
      const item = element("li", told(edit)), button = Object.assign(element("button", "✕"), { type: "button" });
      button.setAttribute("aria-label", `Remove: ${told(edit)}`);
      button.addEventListener("click", () => { change(edits.filter((other) => other !== edit), `Removed: ${told(edit)}`); by("edit-undo").focus(); });
      item.append(" ", button);
      return item;
    }));
  }
  function show(open) {
    by("editor").hidden = !open;
    document.documentElement.classList.toggle("editing", open);
    by("edit").setAttribute("aria-expanded", String(open));
    by(open ? "editor-title" : "edit").focus();
  }

  /* The file, and the command for it. */
  const written = () => `${JSON.stringify({ onmf: "edits", version: 1, kind, run }).slice(0, -1)},\n "edits": [\n  ${edits.map((edit) => JSON.stringify(edit)).join(",\n  ")}\n]}\n`; // one edit a line, as onmf writes it
  function download() {
    const link = element("a"), url = URL.createObjectURL(new Blob([written()], { type: "application/json" }));
    Object.assign(link, { href: url, download: "edits.json" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
    by("edit-said").textContent = "Downloaded edits.json.";
  }
  function command() {
    let folder = "DIR";
    if (location.protocol === "file:") {
      folder = decodeURIComponent(location.pathname).replace(/\/[^/]*$/, "").replace(/^\/([A-Za-z]:)/, "$1") || "/";
    }
    const quoted = (text) => (/^[\p{L}\p{N}_.,:+@%/-]+$/u.test(text) ? text : /^[A-Za-z]:/.test(text) ? `"${text}"` : `'${text.replaceAll("'", "'\\''")}'`);
    return `onmf edit ${quoted(folder)} edits.json --out ${quoted(folder === "DIR" ? "NEW" : `${folder}-edited`)}`;
  }
  async function copy() {
    const field = by("edit-command");
    field.select();
    let done = false;
    try { await navigator.clipboard.writeText(field.value); done = true; } catch { done = document.execCommand("copy"); }
    by("edit-said").textContent = done ? "Copied the command." : "The command is selected: copy it with Ctrl+C.";
  }

  by("edit").addEventListener("click", () => show(by("editor").hidden));
  by("draft-open").addEventListener("click", () => show(true));
  by("editor-close").addEventListener("click", () => show(false));
  by("edit-merge").addEventListener("click", () => add({ merge: chosen().map(numberOf) }));
  by("edit-aside").addEventListener("click", () => add({ "set aside": chosen().map(numberOf) }));
  by("edit-split").addEventListener("click", () => add({ split: numberOf(chosen()[0]), into: Number(by("edit-parts").value) }));
  by("edit-parts").addEventListener("keydown", (event) => { if (event.key === "Enter") by("edit-split").click(); });
  by("edit-undo").addEventListener("click", () => step(past, future, "Undone"));
  by("edit-redo").addEventListener("click", () => step(future, past, "Redone"));
  by("edit-discard").addEventListener("click", () => change([], "Discarded. Undo brings the changes back."));
  by("edit-download").addEventListener("click", download);
  by("edit-copy").addEventListener("click", copy);
  by("edit-command").value = command();
  by("editor").addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); show(false); }
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && event.target.type !== "text") {
      event.preventDefault();
      by(event.shiftKey ? "edit-redo" : "edit-undo").click();
    }
  });
  window.addEventListener("storage", (event) => { if (event.key === key) { recall(); refresh(); } }); // the same report in another tab

  /* A line of a table of clusters: its name and size follow; its other numbers are of the cluster as fitted, which is said. */
  function follow(line) {
    const c = Number(line.dataset.of), into = state.owner[c], name = line.querySelector(".name"), many = line.querySelector(".many"), total = clusters.reduce((sum, { size }) => sum + size, 0);
    const shown = name.dataset.plain === undefined ? named(c) : plain(c);
    name.textContent = into === c ? shown : `${shown}, ${into < 0 ? "set aside" : `merged into ${numberOf(into)}`}`;
    line.classList.toggle("gone", into !== c);
    const size = into === c ? state.sizes[c] : clusters[c].size;
    many.firstChild.textContent = `${number(size)} `;
    if (many.lastElementChild) many.lastElementChild.textContent = `(${(100 * size / Math.max(total, 1)).toFixed(1)}%)`;
    const bar = line.querySelector(".size-bar");
    if (bar) bar.style.width = `${100 * size / Math.max(...state.sizes, 1)}%`;
    const stale = into === c && size !== clusters[c].size;
    for (const cell of [...line.cells].slice(2)) {
      cell.classList.toggle("stale", stale);
      if (stale) cell.dataset.tip = "Of the cluster before the changes"; else delete cell.dataset.tip;
    }
  }
  function followAll() {
    for (const term of document.querySelectorAll(".facts dt")) if (term.textContent === "Clusters") term.nextElementSibling.textContent = number(state.there.length);
    document.querySelectorAll("tr[data-of]").forEach(follow);
    document.querySelectorAll("li[data-of]").forEach((item) => {
      const c = Number(item.dataset.of);
      item.hidden = state.owner[c] !== c;
      item.querySelector(".name").textContent = plain(c);
    });
  }

  recall();
  refresh();
  return {
    clusters, clusterOf, runnerUp, named, moves, mover, add, numberOf,
    canMove: (i) => rows.canMove(i),
    get state() { return state; },
    edited: () => edits.length > 0,
    connect: (those) => { rows = those; if (state.moved.size) refresh(); },
    onChange: (listener) => listeners.push(listener),
    rows: () => rows,
  };

  /* What moves a row: a list of the clusters, its runner-up first. It shows in edit mode. */
  function mover(i) {
    const made = element("span", "", "mover"), select = element("select"), button = Object.assign(element("button", "Move"), { type: "button" });
    if (!rows.canMove(i)) return made;
    const own = clusterOf(i), first = runnerUp(i), others = state.there.filter((c) => c !== own && c !== first && !state.parts[c]);
    const offered = [...(first >= 0 && !state.parts[first] ? [first] : []), ...others, ...(own >= 0 ? [-1] : [])];
    select.append(...offered.map((c) => Object.assign(element("option", named(c)), { value: c })));
    select.setAttribute("aria-label", `Move ${rows.name(i)} to`);
    button.addEventListener("click", () => {
      const to = Number(select.value);
      add({ move: [rows.name(i)], to: to < 0 ? null : numberOf(to) });
      [...document.querySelectorAll(`.mover[data-row="${i}"] button`)].find((other) => other.offsetParent)?.focus(); // drawn anew
    });
    made.dataset.row = i;
    made.append(select, button);
    return made;
  }
})();
