"use strict";
(() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const config = (figure) => ({
    responsive: true,
    displaylogo: false,
    showSendToCloud: false, // Plotly would offer to upload the figure to its makers
    displayModeBar: innerWidth < 640 || figure.views ? false : "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  });
  const figures = JSON.parse(document.getElementById("figures").textContent);

  function themed(layout) {
    const copy = structuredClone(layout);
    const axis = { gridcolor: css("--grid"), zerolinecolor: css("--line"), linecolor: css("--line"), automargin: true };
    copy.paper_bgcolor = copy.plot_bgcolor = "rgba(0,0,0,0)";
    copy.font = { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: css("--ink") };
    copy.margin = Object.assign({ l: 56, r: 16, t: 16, b: 44 }, copy.margin);
    copy.hoverlabel = { bgcolor: css("--panel"), bordercolor: css("--line"), align: "left",
                        font: { color: css("--ink"), size: 12.5 } };
    copy.modebar = { bgcolor: "rgba(0,0,0,0)", color: css("--soft"), activecolor: css("--ink") };
    copy.hovermode = "closest";
    copy.dragmode = innerWidth < 640 ? false : "zoom";
    for (const name of Object.keys(copy).filter((key) => /^[xy]axis\d*$/.test(key))) {
      copy[name] = Object.assign({}, axis, copy[name]);
      if (copy[name].title) copy[name].title.font = { size: 12.5, color: css("--soft") };
    }
    return copy;
  }

  function traces(figure) {
    if (figure.views) return [coloured(figure.views[figure.view || ""])];
    return figure.data.map(coloured);
  }

  function coloured(trace) {
    const copy = structuredClone(trace);
    if (copy.meta === "ceiling") {
      copy.line.color = css("--ink");
      copy.textfont = { color: css("--soft"), size: 12 };
    }
    if (copy.type === "icicle") {
      copy.marker.line = { width: 1, color: css("--panel") };
      copy.textfont = { color: "#ffffff" };
      copy.pathbar.textfont = { color: "#ffffff" };
    }
    return copy;
  }

  function draw(figure) {
    const place = document.getElementById(figure.place);
    return Plotly.react(place, traces(figure), themed(figure.layout), config(figure)).then(() => place);
  }

  function unfolding(figure, place) {
    const back = document.querySelector(`[data-back="${figure.place}"]`);
    const trail = [];
    const show = (view) => {
      figure.view = view;
      back.hidden = trail.length === 0;
      return draw(figure);
    };
    place.on("plotly_icicleclick", (event) => {
      const view = event.points[0].customdata;
      if (!view) return true;
      trail.push(figure.view || "");
      show(view);
      return false;
    });
    back.addEventListener("click", () => show(trail.pop()));
  }

  for (const figure of figures) {
    draw(figure).then((place) => { if (figure.views) unfolding(figure, place); });
  }
  dark.addEventListener("change", () => figures.forEach(draw));

  // Tables: siblings are sorted among themselves, so that a sorted tree is still a tree.
  const key = (row, column) => row.cells[column].dataset.order;
  function order(column, up) {
    return (a, b) => {
      const [x, y] = [key(a, column), key(b, column)];
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
      const [m, n] = [Number(x), Number(y)];
      const less = Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y) : m - n;
      return up ? less : -less;
    };
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const isTree = table.classList.contains("tree");
    const children = new Map();
    const open = new Set();
    let compare = null;
    let flat = false;
    for (const row of rows) {
      const parent = row.dataset.parent || "";
      if (!children.has(parent)) children.set(parent, []);
      children.get(parent).push(row);
    }

    function paint() {
      const shown = [];
      const walk = (parent, depth) => {
        const list = [...(children.get(parent) || [])];
        if (compare) list.sort(compare);
        for (const row of list) {
          shown.push(row);
          row.cells[0].style.paddingLeft = isTree ? `${2 + 16 * depth}px` : "";
          if (isTree && open.has(row.dataset.id)) walk(row.dataset.id, depth + 1);
        }
      };
      if (flat) {
        shown.push(...rows.filter((row) => row.dataset.leaf === "1"));
        if (compare) shown.sort(compare);
        shown.forEach((row) => { row.cells[0].style.paddingLeft = "2px"; });
      } else walk("", 0);
      if (isTree) for (const row of shown) row.cells[0].lastChild.data = flat ? row.dataset.path : row.dataset.label;
      body.replaceChildren(...shown);
    }

    if (isTree) {
      for (const row of rows) {
        const inside = children.get(row.dataset.id);
        const mark = document.createElement(inside ? "button" : "span");
        mark.className = "fold";
        if (inside) {
          mark.type = "button";
          const label = () => {
            mark.textContent = open.has(row.dataset.id) ? "▼" : "▶";
            mark.setAttribute("aria-expanded", open.has(row.dataset.id));
          };
          if (Number(row.dataset.depth) < 1) open.add(row.dataset.id);
          mark.setAttribute("aria-label", "layers inside");
          mark.addEventListener("click", () => {
            if (!open.delete(row.dataset.id)) open.add(row.dataset.id);
            label();
            paint();
          });
          label();
        } else {
          mark.style.display = "inline-block";
          mark.style.width = "18px";
        }
        row.cells[0].prepend(mark);
      }
      const choice = document.querySelector(`[data-flat="${table.id}"]`);
      choice.addEventListener("change", () => { flat = choice.checked; paint(); });
      paint();
    }

    for (const head of table.tHead.rows[0].cells) {
      head.tabIndex = 0;
      const sort = () => {
        const up = head.getAttribute("aria-sort") === "descending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        compare = order(Number(head.dataset.column), up);
        paint();
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
    }
  }
})();
