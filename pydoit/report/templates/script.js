// Sorts and filters long tables; the page reads the same without it.
for (const table of document.querySelectorAll("table[data-long]")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const label = document.createElement("label");
  const input = document.createElement("input");
  const count = document.createElement("output");
  label.className = "filter";
  input.type = "search";
  label.append("Filter by name ", input, " ", count);
  table.parentElement.before(label);
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length}`;
  });
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const rises = head.getAttribute("aria-sort") === "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", rises ? "ascending" : "descending");
      body.append(...rows.sort((a, b) => compared(a.cells[column], b.cells[column]) * (rises ? 1 : -1)));
    });
  });
}

function compared(a, b) {
  const numbers = [a, b].map((cell) => parseFloat(cell.dataset.value));
  if (numbers.every(Number.isFinite)) return numbers[0] - numbers[1];
  if (numbers.some(Number.isFinite)) return Number.isFinite(numbers[0]) ? 1 : -1;
  return a.textContent.localeCompare(b.textContent);
}
