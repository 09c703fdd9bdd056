// Tables as CSV: numbers are numbers, whose unit stands in the head; ends of intervals have columns of their own.
(() => {
  const WRITTEN = /^(-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)(?: ?(x|%|[A-Za-zµ][A-Za-zµ/]*))?$/;
  const MISSING = "–";

  // Columns that a column of the page becomes: a head and a text for every row.
  function copied(head, rows, list, column) {
    const title = head.textContent.trim();
    const text = (row) => { const said = rows.text(row, column); return said === MISSING ? "" : said; };
    if (!head.classList.contains("number")) return [{ title, text }];
    if (head.dataset.copied !== undefined) return exact(head.dataset.copied, rows, list, column);
    const parts = new Map(list.map((row) => [row, WRITTEN.exec(text(row))]));
    if (!list.every((row) => parts.get(row) || !text(row))) return [{ title, text }];
    const units = new Set(list.filter((row) => parts.get(row)).map((row) => parts.get(row)[2] ?? ""));
    const [unit] = units;
    const plain = (row) => parts.get(row)?.[1].replaceAll(",", "") ?? "";
    if (units.size > 1) return [{ title, text: plain }, { title: `${title} unit`.trim(), text: (row) => parts.get(row)?.[2] ?? "" }];
    const told = !unit || title.split(" ").includes(unit) ? title : `${title} ${unit}`.trim();
    return [{ title: told, text: plain }];
  }

  // Numbers as they were kept, in the unit that the head names, or beside a column of units.
  function exact(title, rows, list, column) {
    const plain = (value) => (value === undefined ? "" : String(Number(value)));
    const known = (row) => rows.order(row, column) !== undefined && !!rows.given(row, column).unit;
    const word = (row) => (rows.text(row, column) === MISSING ? "" : rows.text(row, column));
    const found = [{ title, text: (row) => (known(row) ? plain(rows.order(row, column)) : word(row)) }];
    const unit = (row) => (known(row) ? rows.given(row, column).unit : "");
    if (new Set(list.filter(known).map(unit)).size > 1) found.push({ title: `${title} unit`.trim(), text: unit });
    for (const end of ["low", "high"]) {
      const text = (row) => plain(rows.given(row, column)[end]);
      if (list.some((row) => text(row))) found.push({ title: `${title} ${end}`.trim(), text });
    }
    return found;
  }

  function field(text) {
    // A name that a spreadsheet would take for a formula stays a name.
    const plain = /^[=+\-@\t]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  }

  sonda.csv = (heads, rows, list, nameOf) => {
    const columns = heads.flatMap((head, column) => (column || head.classList.contains("number")
      ? copied(head, rows, list, column) : [{ title: head.textContent.trim(), text: nameOf }]));
    const lines = list.map((row) => columns.map((one) => field(one.text(row))));
    return [columns.map((one) => field(one.title)), ...lines].map((line) => line.join(",")).join("\r\n") + "\r\n";
  };
})();
