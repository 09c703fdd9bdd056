"use strict";
// Tables: sorted, searched, copied, walked through by keyboard; long ones draw the rows in sight only.
const sonda = { tables: new Map(), paper: [] };
(() => {
  const WHOLE = 400; // rows that are drawn at once
  const MARGIN = 15; // rows drawn above and below those in sight
  const PRINTED = 1000;
  const FEW = 5; // rows that nobody needs to search
  const number = (value) => value.toLocaleString("en-US");
  const words = new Intl.Collator("en", { numeric: true }); // layer 2 before layer 10

  /* ---- what a table holds: read from its elements, or from data where it is long ---- */

  function fromElements(table) {
    const rows = [...table.tBodies[0].rows];
    const place = new Map(rows.map((row, index) => [row.dataset.id, index]));
    const texts = rows.map((row) => [...row.cells].map((cell) => cell.textContent));
    return {
      count: rows.length,
      text: (row, column) => texts[row][column],
      order: (row, column) => rows[row].cells[column].dataset.order,
      given: (row, column) => rows[row].cells[column].dataset,
      hint: (row, column) => rows[row].cells[column].title,
      element: (row) => rows[row],
      parent: (row) => place.get(rows[row].dataset.parent) ?? -1,
      leaf: (row) => rows[row].dataset.leaf === "1",
      path: (row) => rows[row].dataset.path,
    };
  }

  function fromData(script, heads) {
    const data = JSON.parse(script.textContent);
    const aligned = heads.map((head) => (head.classList.contains("number") ? "number" : "word"));
    const made = new Map();
    const hint = (row, column) => {
      const { hint: codes, templates } = data.columns[column];
      if (!codes) return "";
      const [template, ...numbers] = codes[row].split("|");
      let at = 0;
      return templates[template].replace(/\0/g, () => numbers[at++]);
    };
    const element = (row) => {
      if (made.has(row)) return made.get(row);
      const line = document.createElement("tr");
      data.columns.forEach((column, index) => {
        const cell = document.createElement(index ? "td" : "th");
        if (!index) cell.scope = "row";
        cell.className = `${aligned[index]} ${column.tone ? column.tones[column.tone[row]] : ""}`.trim();
        cell.textContent = column.text[row];
        const said = hint(row, index);
        if (said) cell.title = said;
        line.append(cell);
      });
      if (made.size > 4 * WHOLE) made.clear();
      made.set(row, line);
      return line;
    };
    return {
      count: data.count,
      text: (row, column) => data.columns[column].text[row],
      order: (row, column) => {
        const { order, text } = data.columns[column];
        return order ? order[row] ?? undefined : text[row];
      },
      given: (row, column) => {
        const { unit, low, high } = data.columns[column];
        return { unit: Array.isArray(unit) ? unit[row] : unit, low: low?.[row] ?? undefined, high: high?.[row] ?? undefined };
      },
      hint, element,
      parent: (row) => (data.parent ? data.parent[row] : -1),
      leaf: (row) => Boolean(data.leaf && data.leaf[row]),
      path: (row) => (data.path ? data.path[row] : undefined),
    };
  }

  /* ---- a table on the page ---- */

  function alive(table) {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const box = table.parentElement;
    const script = box.nextElementSibling?.matches("script.rows") ? box.nextElementSibling : null;
    const isTree = table.classList.contains("tree");
    const rows = script ? fromData(script, heads) : fromElements(table);
    const children = new Map();
    const open = new Set();
    let shown = [];
    let depths = [];
    let compare = null;
    let flat = false;
    let wanted = "";
    let position = { place: 0, column: 0 };
    let height = 0;

    const all = Array.from({ length: rows.count }, (_, row) => row);
    if (isTree) for (const row of all) {
      const parent = rows.parent(row);
      if (!children.has(parent)) children.set(parent, []);
      children.get(parent).push(row);
    }
    const nameOf = (row) => (isTree ? rows.path(row) : rows.text(row, 0));
    const matches = (row) =>
      nameOf(row).toLowerCase().includes(wanted) ||
      heads.some((_, column) => column && rows.text(row, column).toLowerCase().includes(wanted));

    function listed() {
      // Siblings are sorted among themselves, so that a sorted tree is still a tree.
      if (!isTree || flat || wanted) {
        const list = all.filter((row) => (!flat || rows.leaf(row)) && (!wanted || matches(row)));
        return [compare ? list.sort(compare) : list, []];
      }
      const [list, levels] = [[], []];
      const walk = (parent, depth) => {
        const inside = children.get(parent) || [];
        for (const row of compare ? [...inside].sort(compare) : inside) {
          list.push(row);
          levels.push(depth);
          if (open.has(row)) walk(row, depth + 1);
        }
      };
      walk(-1, 0);
      return [list, levels];
    }

    function lined(place) {
      const row = shown[place];
      const line = rows.element(row);
      line.ariaRowIndex = String(place + 2);
      for (const cell of line.cells) cell.tabIndex = -1;
      if (!isTree) return line;
      const [first, depth] = [line.cells[0], depths[place]];
      first.style.paddingLeft = `${2 + 16 * (depth ?? 0)}px`;
      const mark = document.createElement(children.has(row) && depth !== undefined ? "button" : "span");
      mark.className = "fold";
      if (mark.type) {
        mark.tabIndex = -1;
        mark.ariaLabel = "layers inside";
        mark.ariaExpanded = open.has(row);
        mark.textContent = open.has(row) ? "▼" : "▶";
        mark.addEventListener("click", () => fold(row));
      }
      first.replaceChildren(mark, document.createTextNode(depth === undefined ? nameOf(row) : rows.text(row, 0)));
      return line;
    }

    function fold(row) {
      if (!open.delete(row)) open.add(row);
      paint();
    }

    const space = (pixels) => {
      const line = document.createElement("tr");
      line.className = "space";
      line.ariaHidden = "true";
      line.innerHTML = `<td colspan="${heads.length}" style="height:${pixels}px"></td>`;
      return line;
    };
    const span = (first, last) => Array.from({ length: last - first }, (_, at) => lined(first + at));

    function render() {
      const held = body.contains(document.activeElement);
      let first = 0;
      let last = shown.length;
      if (shown.length <= WHOLE) body.replaceChildren(...span(0, last));
      else if (document.documentElement.classList.contains("paper")) {
        last = Math.min(PRINTED, last);
        const note = space(0);
        note.cells[0].textContent = `${number(last)} of ${number(shown.length)} rows are printed; Copy as CSV has all.`;
        note.className = "said";
        body.replaceChildren(...span(0, last), ...(last < shown.length ? [note] : []));
      } else {
        if (!height) measure();
        first = Math.max(0, Math.floor(box.scrollTop / height) - MARGIN);
        last = Math.min(shown.length, first + Math.ceil(box.clientHeight / height) + 2 * MARGIN);
        body.replaceChildren(space(first * height), ...span(first, last), space((shown.length - last) * height));
      }
      table.ariaRowCount = String(shown.length + 1);
      const at = Math.min(Math.max(position.place, first), last - 1);
      const cell = last > first ? rows.element(shown[at]).cells[position.column] : null;
      if (cell) {
        cell.tabIndex = 0;
        if (held) cell.focus({ preventScroll: true });
      }
    }

    function measure() {
      // Rows come and go while a reader scrolls: columns keep the widths of the first ones.
      box.classList.add("tall");
      body.replaceChildren(...span(0, Math.min(shown.length, 60)));
      height = body.rows[0].getBoundingClientRect().height || 30;
      if (!table.style.tableLayout && box.clientWidth) {
        const widths = heads.map((head) => head.getBoundingClientRect().width);
        heads.forEach((head, index) => { head.style.width = `${widths[index]}px`; });
        table.style.width = `${Math.max(box.clientWidth, widths.reduce((sum, one) => sum + one, 0))}px`;
        table.style.tableLayout = "fixed";
      }
    }

    function paint() {
      [shown, depths] = listed();
      count.textContent = wanted || flat ? `${number(shown.length)} of ${number(rows.count)} rows` : `${number(rows.count)} rows`;
      render();
    }

    function order(column, up) {
      const keys = all.map((row) => rows.order(row, column));
      const numeric = keys.every((key) => key === undefined || (key !== "" && !Number.isNaN(Number(key))));
      const values = numeric ? keys.map((key) => (key === undefined ? undefined : Number(key))) : keys;
      const sign = up ? 1 : -1;
      return (a, b) => {
        const [x, y] = [values[a], values[b]];
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined) || a - b;
        return sign * (numeric ? x - y : words.compare(x, y)) || a - b;
      };
    }

    function sortable(head, column) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      const ways = head.classList.contains("number") ? ["descending", "ascending"] : ["ascending", "descending"];
      head.addEventListener("click", () => {
        const next = ways[ways.indexOf(head.getAttribute("aria-sort")) + 1];
        for (const other of heads) other.removeAttribute("aria-sort");
        if (next) head.setAttribute("aria-sort", next);
        compare = next ? order(column, next === "ascending") : null;
        box.scrollTop = 0;
        paint();
      });
    }

    function go(place, column) {
      position = {
        place: Math.min(Math.max(place, 0), shown.length - 1), column: Math.min(Math.max(column, 0), heads.length - 1),
      };
      if (shown.length > WHOLE) {
        const top = position.place * height;
        const roof = table.tHead.getBoundingClientRect().height;
        if (top < box.scrollTop) box.scrollTop = top;
        else if (top + height + roof > box.scrollTop + box.clientHeight) box.scrollTop = top + 2 * height + roof - box.clientHeight;
        render();
      }
      const cell = rows.element(shown[position.place]).cells[position.column];
      for (const other of body.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
      cell.tabIndex = 0;
      cell.focus();
    }

    body.addEventListener("focusin", (event) => {
      const cell = event.target.closest("th, td");
      const row = cell && Number(cell.parentElement.ariaRowIndex) - 2;
      if (cell && row >= 0) position = { place: row, column: cell.cellIndex };
    });
    body.addEventListener("keydown", (event) => {
      const { place, column } = position;
      const moves = {
        ArrowDown: [place + 1, column], ArrowUp: [place - 1, column], ArrowRight: [place, column + 1],
        ArrowLeft: [place, column - 1], PageDown: [place + 15, column], PageUp: [place - 15, column],
        Home: [event.ctrlKey ? 0 : place, 0], End: [event.ctrlKey ? shown.length - 1 : place, heads.length - 1],
      };
      if (moves[event.key]) go(...moves[event.key]);
      else if ((event.key === "Enter" || event.key === " ") && isTree && !column && children.has(shown[place])) fold(shown[place]);
      else return;
      event.preventDefault();
    });
    let asked = 0;
    box.addEventListener("scroll", () => {
      if (shown.length <= WHOLE || asked) return;
      asked = requestAnimationFrame(() => { asked = 0; render(); });
    });
    addEventListener("resize", () => {
      if (!height) return;
      heads.forEach((head) => { head.style.width = ""; });
      table.style.width = table.style.tableLayout = "";
      height = 0;
      render();
    });

    /* ---- searching and copying ---- */

    const tools = document.createElement("div");
    tools.className = "tools table-tools";
    const count = document.createElement("span");
    count.setAttribute("role", "status");
    if (rows.count > FEW) {
      const field = document.createElement("input");
      field.type = "search";
      field.placeholder = "Search rows";
      field.ariaLabel = `Search rows${table.ariaLabel ? ` of ${table.ariaLabel}` : ""}`;
      field.addEventListener("input", () => {
        wanted = field.value.trim().toLowerCase();
        box.scrollTop = 0;
        paint();
      });
      tools.append(field, count);
    }
    const choice = document.querySelector(`[data-flat="${table.id}"]`);
    if (choice) {
      choice.addEventListener("change", () => { flat = choice.checked; paint(); });
      tools.append(choice.closest("label"));
    }
    const copy = document.createElement("button");
    copy.type = "button";
    copy.className = "plain copy";
    copy.textContent = "Copy as CSV";
    copy.addEventListener("click", async () => {
      const done = await copied(csv());
      copy.textContent = done ? "Copied" : "The browser does not allow copying";
      setTimeout(() => { copy.textContent = "Copy as CSV"; }, 2000);
    });
    tools.append(copy);
    if (rows.count > FEW || choice) box.before(tools);
    else (script || box).after(tools);

    function csv() {
      let list = all.filter((row) => (!flat || rows.leaf(row)) && (!wanted || matches(row)));
      if (compare) list = list.sort(compare);
      return sonda.csv(heads, rows, list, nameOf);
    }

    box.tabIndex = -1;
    if (isTree) for (const row of children.get(-1) || []) open.add(row);
    if (table.classList.contains("sortable")) heads.forEach(sortable);
    if (isTree || script) paint();
    else {
      shown = all;
      if (rows.count) rows.element(0).cells[0].tabIndex = 0;
      shown.forEach((row, place) => { rows.element(row).ariaRowIndex = String(place + 2); });
      count.textContent = `${number(rows.count)} rows`;
    }
    sonda.paper.push(() => { if (shown.length > WHOLE) render(); });
    return { rows, heads: heads.map((head) => head.textContent.trim()), csv };
  }

  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  const start = (table) => {
    if (!sonda.tables.has(table)) sonda.tables.set(table, alive(table));
    return sonda.tables.get(table);
  };
  sonda.table = (id) => {
    const table = document.getElementById(id);
    return table ? start(table) : null;
  };
  for (const table of document.querySelectorAll(".scroll > table")) {
    if (!table.tHead) continue;
    // What nobody has opened yet is made when it is opened.
    const closed = table.closest("details:not([open])");
    if (closed) closed.addEventListener("toggle", () => start(table), { once: true });
    else start(table);
  }

  /* ---- paper ---- */

  function print(on) {
    const root = document.documentElement.classList;
    if (root.contains("paper") === on) return;
    root.toggle("paper", on);
    // Paper shows what readers open; what stands behind pictures stays there, but for layers: a tree has few names.
    for (const panel of document.querySelectorAll("details:is(.panel, .tree)")) {
      if (on && !panel.open) panel.dataset.closed = "";
      if (on || panel.dataset.closed !== undefined) panel.open = on;
      if (!on) delete panel.dataset.closed;
      // What opens here has no time to be made when it is opened.
      if (on) for (const table of panel.querySelectorAll(".scroll > table")) if (table.tHead) start(table);
    }
    for (const change of sonda.paper) change(on);
  }
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  matchMedia("print").addEventListener("change", (event) => print(event.matches));
})();
