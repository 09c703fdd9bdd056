"use strict";
// Figures: drawn when the reader comes near, one after the other, so that the page answers meanwhile; in the reader's
// colours, and in light on paper.
(() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const LEAST_CONTRAST = 2; // of a mark without a border
  const paper = () => document.documentElement.classList.contains("paper");
  const phone = matchMedia("(max-width: 639px)"); // innerWidth is that of a phone's page, which may be wider for a moment
  const hovers = matchMedia("(hover: hover)");
  const narrow = () => phone.matches && !paper();
  const PAPER = 680; // px of width that fit on a sheet
  const config = (figure) => ({
    responsive: true,
    displaylogo: false,
    showSendToCloud: false, // Plotly would offer to upload the figure to its makers
    // Where nothing hovers, Plotly would show its buttons always, over the names.
    displayModeBar: !hovers.matches || phone.matches || figure.measures || paper() ? false : "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  });
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const escaped = (text) => text.replace(/[&<>]/g, (char) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[char]);

  function themed(figure) {
    const copy = structuredClone(figure.layout);
    const axis = { gridcolor: css("--grid"), zerolinecolor: css("--line"), linecolor: css("--line"), automargin: true };
    copy.paper_bgcolor = copy.plot_bgcolor = "rgba(0,0,0,0)";
    copy.font = { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: css("--ink") };
    copy.margin = Object.assign({ l: 56, r: 16, t: 16, b: 44 }, copy.margin);
    // What is written at a mark reaches beyond it.
    if (figure.data?.some((trace) => trace.mode?.includes("text") && !trace.meta)) copy.margin.r = 64;
    copy.hoverlabel = { bgcolor: css("--panel"), bordercolor: css("--line"), align: "left",
                        font: { color: css("--ink"), size: 12.5 } };
    copy.modebar = { bgcolor: "rgba(0,0,0,0)", color: css("--soft"), activecolor: css("--ink") };
    copy.hovermode = "closest";
    copy.dragmode = phone.matches ? false : "zoom";
    if (paper()) copy.width = PAPER;
    for (const name of Object.keys(copy).filter((key) => /^[xy]axis\d*$/.test(key))) {
      copy[name] = Object.assign({}, axis, copy[name]);
      if (copy[name].title) copy[name].title.font = { size: 12.5, color: css("--soft") };
      if (copy[name].title && name.startsWith("y")) copy[name].title.standoff = 6; // px beside labels, however long they are
    }
    for (const { line } of copy.shapes || []) if (line.width !== 0 && !line.color) line.color = css("--ink");
    if (narrow()) {
      slender(copy, figure);
      lengthen(copy, figure);
    }
    return copy;
  }

  /* ---- phones: names stand above what they name, titles go on in another line ---- */

  const LETTER = 6.8; // px of width
  const LINE = 17; // px of height
  const SHORT = 12; // letters that there is room for beside a picture
  const BELOW = 18; // letters of a name that stands upright
  const ENTRY = 44; // px of a name of the legend beside its letters
  const decoder = document.createElement("textarea");
  const plain = (html) => {
    decoder.innerHTML = html;
    return decoder.value;
  };
  const cut = (html, most) => {
    const text = plain(html);
    return escaped(text.length > most ? `${text.slice(0, most - 1)}…` : text);
  };

  function slender(copy, figure) {
    const letters = Math.floor((document.getElementById(figure.place).clientWidth - 24) / LETTER);
    const [across, upright] = [copy.xaxis, copy.yaxis];
    const lines = across?.title ? folded(across.title.text, letters) : [];
    if (lines.length > 1) {
      across.title.text = lines.join("<br>");
      copy.margin.b += LINE * (lines.length - 1);
      copy.height += LINE * (lines.length - 1);
    }
    const map = figure.data.find((trace) => trace.type === "heatmap" && Array.isArray(trace.y));
    for (const [axis, named, most] of map ? [[across, map.x, BELOW], [upright, map.y, SHORT]] : []) {
      if (named?.some((name) => typeof name === "string"))
        Object.assign(axis, { tickvals: named, ticktext: named.map((name) => cut(String(name), most)) });
    }
    if (map) {
      Object.assign(copy.margin, { l: 12, r: 12 });
      if (across.ticktext?.some((name) => plain(name).length > 4)) across.tickangle = -90;
      copy.height += LINE; // of names that stand upright
    }
    if (!map && across?.ticktext?.some((name) => plain(name).length > SHORT)) { // Plotly would leave some out
      Object.assign(across, { ticktext: across.ticktext.map((name) => cut(name, BELOW)), tickangle: -90 });
      copy.height += LETTER * BELOW;
    }
    const names = map ? [] : upright?.ticktext || upright?.categoryarray || [];
    if (!names.some((name) => plain(name).length > SHORT)) return;
    const bars = figure.data.some((trace) => trace.type === "bar");
    // Published marks lie above and below those of ours.
    const clear = bars ? 8 : figure.data.some((trace) => trace.mode === "lines+markers") ? 12 : 6;
    Object.assign(upright, { showticklabels: false });
    Object.assign(copy.margin, { l: 12, r: 12 });
    copy.bargap = 0.55;
    copy.height += (bars ? LINE : LINE + clear / 2) * names.length;
    copy.annotations = [...(copy.annotations || []), ...names.map((name, at) => ({
      text: cut(name, letters), x: 0, xref: "paper", xanchor: "left", y: upright.tickvals ? upright.tickvals[at] : name,
      yanchor: "bottom", yshift: clear, showarrow: false, font: { size: 11.5, color: css("--ink") },
    }))];
  }

  // A legend grows in lines below each other, and the picture with it.
  function lengthen(copy, figure) {
    const names = figure.data.filter((trace) => trace.name && trace.showlegend !== false).map((trace) => plain(trace.name));
    if (copy.legend?.orientation !== "h" || copy.showlegend === false || names.length < 2) return;
    const width = ENTRY + LETTER * Math.max(...names.map((name) => name.length));
    const beside = copy.yaxis?.showticklabels === false ? [] : (copy.yaxis?.ticktext || []).map((name) => plain(name).length);
    const left = Math.max(copy.margin.l, 2 * LINE + LETTER * Math.max(0, ...beside));
    const room = document.getElementById(figure.place).clientWidth - left - copy.margin.r;
    const lines = Math.ceil(names.length / Math.max(1, Math.floor(room / width)));
    copy.height += LINE * lines;
    copy.legend.maxheight = 2 * LINE * (lines + 1);
  }

  function folded(html, letters) {
    const lines = [];
    for (const word of plain(html).split(" ")) {
      if (lines.length && `${lines.at(-1)} ${word}`.length <= letters) lines[lines.length - 1] += ` ${word}`;
      else lines.push(word);
    }
    return lines.map(escaped);
  }

  function traces(figure) {
    return figure.measures ? [icicle(figure)] : figure.data.map(coloured);
  }

  // Whether a mark of this colour hardly stands out from the page, as yellow does from white: such a one gets a border.
  function faint(color) {
    if (!/^#[0-9a-f]{6}$/.test(color)) return false;
    const light = (hex) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, at) => {
      const part = parseInt(hex.slice(1 + 2 * at, 3 + 2 * at), 16) / 255;
      return sum + weight * (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    }, 0.05);
    const [one, other] = [light(color), light(css("--panel"))];
    return Math.max(one, other) / Math.min(one, other) < LEAST_CONTRAST;
  }

  function coloured(trace) {
    const copy = structuredClone(trace);
    if (copy.meta === "ceiling") {
      copy.line.color = css("--ink");
      copy.textfont = { color: css("--soft"), size: 12 };
    }
    if (copy.meta === "target") copy.textfont.color = css("--ink"); // colours of lines are too light for letters
    if (copy.meta === "target" && narrow()) copy.mode = "lines"; // no room for the names of all; a tap tells them
    if (copy.meta === "native") copy.marker.line.color = css("--ink");
    if (copy.type === "scatter" && copy.mode !== "none") copy.cliponaxis = false; // whole marks at the ends of axes
    if (faint(copy.marker?.color)) copy.marker.line = { width: 1, color: css("--soft") };
    for (const bars of [copy.error_x, copy.error_y]) if (bars && copy.type === "bar") bars.color = css("--ink");
    if (copy.type === "heatmap" && narrow()) {
      copy.colorbar = { ...copy.colorbar, thickness: 8 };
      copy.showscale = !copy.texttemplate; // fields that say their number need none
      if (copy.texttemplate) copy.text = copy.text.map((line) => line.map((said) => said.replace(/ [±(].*/, "")));
    }
    if (copy.type === "icicle") copy.marker.line = { width: 1, color: css("--panel") };
    return copy;
  }

  /* ---- layer trees: width by what the reader chooses, small layers folded until asked for ---- */

  const SMALL = 0.75; // of its size, as small as text may become
  const SHARE = 5; // letters of `12.3%`
  const HATCH = { shape: "/", fillmode: "overlay", fgcolor: "rgba(255,255,255,.4)", size: 9, solidity: 0.15 }; // beneath text

  const roomOf = (figure) => (paper() ? PAPER : document.getElementById(figure.place).clientWidth);

  function icicle(figure) {
    const measure = figure.measures[figure.measure || 0];
    const view = measure.views[figure.view || ""];
    const whole = view.values.reduce((sum, value) => sum + value, 0) || 1;
    const level = figure.level && view.ids.includes(figure.level) ? figure.level : undefined;
    const inside = [...view.values];
    const place = new Map(view.ids.map((id, index) => [id, index]));
    // Parents stand before their children, so a walk from the end adds up.
    for (let at = view.ids.length - 1; at >= 0; at -= 1) {
      const above = place.get(view.parents[at]);
      if (above !== undefined) inside[above] += inside[at];
    }
    // Plotly shrinks text until it fits: a field has none where that could not be read. It would take most of the time
    // of a large tree, too.
    const across = (level && inside[place.get(level)]) || whole;
    figure.room = roomOf(figure);
    const seen = view.labels.map((label, at) => {
      const letters = ((inside[at] / across) * figure.room) / (SMALL * LETTER);
      if (letters < SHARE || letters < plain(label).length) return "";
      return `${label}<br>${((100 * inside[at]) / whole).toFixed(inside[at] / whole < 0.1 ? 1 : 0)}%`;
    });
    const table = figure.table ? sonda.table(figure.table) : null;
    const said = view.ids.map((_, at) => {
      const share = `${escaped(measure.name)} ${amount(inside[at], measure)}, ${measure.source}: ` +
        `${((100 * inside[at]) / whole).toFixed(1)} % of ${escaped(view.whole)}`;
      const lines = [`<b>${view.names[at]}</b>`, share];
      const row = view.rows[at];
      if (view.views[at]) lines.push("click to unfold");
      if (table && row >= 0) table.heads.forEach((head, column) => {
        const text = column && (table.rows.hint(row, column) || table.rows.text(row, column));
        if (text && text !== "–") lines.push(escaped(`${head}: ${text}`.slice(0, 110)));
      });
      return lines.join("<br>");
    });
    return {
      type: "icicle", ids: view.ids, parents: view.parents, labels: view.labels, values: view.values,
      // Own amounts: a parent is as wide as its children and its own code together.
      branchvalues: "remainder", hovertext: said, hoverinfo: "text", text: seen, textinfo: "text", level,
      customdata: view.views, tiling: { orientation: "v" }, pathbar: { visible: true, thickness: 22 }, maxdepth: 8,
      leaf: { opacity: 1 }, sort: false,
      marker: {
        colors: view.colors.map((one) => figure.colors[one][0]), line: { width: 1, color: css("--panel") },
        pattern: measure.hatched ? HATCH : {},
      },
      textfont: { color: view.colors.map((one) => figure.colors[one][1]) },
    };
  }

  function amount(value, measure) {
    const fitting = measure.scales.filter(([, factor]) => Math.abs(value) / factor >= 0.9995);
    const [unit, factor] = fitting.at(-1) || measure.scales[0];
    const size = value / factor;
    return `${size >= 1000 ? Math.round(size).toLocaleString("en-US") : size.toPrecision(3)} ${unit}`;
  }

  function choosing(figure, place) {
    const back = document.querySelector(`[data-back="${figure.place}"]`);
    const trail = [];
    const show = (view, level) => {
      figure.view = view;
      figure.level = level;
      back.hidden = trail.length === 0;
      return draw(figure);
    };
    place.on("plotly_icicleclick", (event) => {
      const view = event.points[0].customdata;
      if (view) {
        trail.push(figure.view || "");
        show(view);
      } else show(figure.view, event.nextLevel);
      return false;
    });
    back.addEventListener("click", () => show(trail.pop()));
    const choice = document.querySelector(`[data-measures="${figure.place}"]`);
    if (choice) choice.addEventListener("change", (event) => {
      figure.measure = Number(event.target.value);
      trail.length = 0;
      show("");
    });
  }

  async function draw(figure) {
    const place = document.getElementById(figure.place);
    const first = !figure.begun;
    figure.begun = true;
    try {
      const layout = themed(figure);
      place.style.minHeight = `${layout.height}px`; // Plotly fits what it drew into its place when a window changes
      await Plotly.react(place, traces(figure), layout, config(figure));
      if (first && figure.measures) choosing(figure, place);
    } catch (error) {
      place.textContent = `This figure could not be drawn (${error.message}); the table behind it has its numbers.`;
      console.error(error);
    }
    place.dataset.drawn = "";
  }

  /* ---- one after the other, those first that are in sight ---- */

  const SETTLED = 150; // ms after which a window keeps its size
  const NEAR = "300px 0px"; // so that a reader who scrolls finds them drawn
  const waiting = [];
  let busy = false;
  function next() {
    const figure = waiting.shift();
    busy = Boolean(figure);
    if (!figure) return;
    (figure.begun ? Promise.resolve() : draw(figure)).then(() => setTimeout(next));
  }
  const places = new Map(figures.map((figure) => [document.getElementById(figure.place), figure]));
  const sight = new IntersectionObserver((entries) => {
    for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
      sight.unobserve(target);
      waiting.push(places.get(target));
    }
    if (!busy) next();
  }, { rootMargin: NEAR });
  for (const place of places.keys()) {
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", place.closest(".panel")?.querySelector("h3")?.textContent || "figure");
    sight.observe(place);
  }
  const again = () => figures.filter((figure) => figure.begun).forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  phone.addEventListener("change", again);
  // A tree names what its width has room for; a phone's window changes its height with every scroll.
  const resized = () => figures.filter((figure) => figure.room && roomOf(figure) !== figure.room).forEach(draw);
  let settled;
  addEventListener("resize", () => {
    clearTimeout(settled);
    settled = setTimeout(resized, SETTLED);
  });
  // Paper shows all of the page.
  sonda.paper.push(() => figures.forEach(draw));
})();
