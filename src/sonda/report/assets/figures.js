"use strict";
// Figures are drawn already. Here they tell what their marks are, under the pointer, on a tap and by keyboard; names of
// the legend hide and show what they name, and fields of trees grow.
(() => {
  const HIDDEN = "off";
  const MARKED = "on";
  const LEAST = 0.0004; // part of the width below which nothing would be seen
  const LEVEL = 38; // px of height of a level of a tree

  const bubble = document.getElementById("hint");

  function hintsOf(place) {
    const data = place.querySelector(":scope > script.hints") || place.parentElement.querySelector(":scope > script.hints");
    return data ? JSON.parse(data.textContent) : [];
  }

  /* ---- what a mark is ---- */

  for (const place of document.querySelectorAll(".figure, .icicle")) {
    let hints = null;
    const tell = (mark) => {
      hints ||= hintsOf(place);
      place.querySelector(`.${MARKED}`)?.classList.remove(MARKED);
      mark.classList.add(MARKED);
      sonda.show(mark, hints[mark.dataset.h]);
    };
    const rest = () => {
      place.querySelector(`.${MARKED}`)?.classList.remove(MARKED);
      sonda.hide();
    };
    const markAt = (event) => (event.target instanceof Element ? event.target.closest("[data-h]") : null);
    place.addEventListener("pointermove", (event) => {
      const mark = markAt(event);
      // Scrolling hides a hint, and the pointer may stay on its mark.
      if (mark && (bubble.hidden || !mark.classList.contains(MARKED))) tell(mark);
      else if (!mark && event.pointerType === "mouse") rest();
    });
    place.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") rest(); });
    place.addEventListener("click", (event) => {
      const mark = markAt(event);
      if (mark) setTimeout(() => tell(mark)); // after what hides hints on every click
    });
    place.addEventListener("blur", rest);
    place.addEventListener("keydown", (event) => {
      if (event.target !== place) return;
      const marks = [...place.querySelectorAll("[data-h]")].filter((mark) => mark.getClientRects().length);
      const at = marks.indexOf(place.querySelector(`.${MARKED}`));
      const step = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: marks.length - 1 };
      if (event.key === "Enter" && at >= 0) marks[at].click();
      if (!(event.key in step) || !marks.length) return;
      event.preventDefault();
      tell(marks[Math.min(Math.max(step[event.key], 0), marks.length - 1)]);
    });
  }

  /* ---- legends ---- */

  for (const key of document.querySelectorAll(".figure .key")) {
    const figure = key.closest(".figure");
    const toggle = () => {
      const shown = key.getAttribute("aria-pressed") === "true";
      for (const twin of figure.querySelectorAll(`.key[data-k="${key.dataset.k}"]`)) twin.setAttribute("aria-pressed", !shown);
      for (const drawn of figure.querySelectorAll(`[data-s="${key.dataset.k}"]`)) drawn.classList.toggle(HIDDEN, shown);
    };
    key.addEventListener("click", toggle);
    key.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle();
    });
  }

  /* ---- trees ---- */

  for (const tree of document.querySelectorAll(".icicle")) {
    const panel = tree.parentElement;
    const back = panel.querySelector(`[data-back="${tree.id}"]`);
    const choice = panel.querySelector(`[data-measures="${tree.id}"]`);
    const whole = tree.innerHTML;
    const levels = parseInt(tree.style.height, 10) / LEVEL;
    let measure = 0;
    let grown = null;
    const span = (slab) => slab.dataset.p.split(";")[measure].split(" ").map(Number);

    function draw() {
      const [left, width] = grown ? span(grown) : [0, 1];
      const down = grown ? Math.max(0, Number(grown.dataset.d) - (levels > 3 ? 2 : 0)) : 0;
      for (const slab of tree.children) {
        const [first, wide] = span(slab);
        const begin = Math.max(0, (first - left) / width);
        const end = Math.min(1, (first + wide - left) / width);
        const depth = Number(slab.dataset.d) - down;
        slab.hidden = depth < 0 || end - begin < LEAST;
        slab.style.left = `${100 * begin}%`;
        slab.style.width = `${100 * Math.max(0, end - begin)}%`;
        slab.style.top = `${LEVEL * depth}px`;
        if (slab.dataset.t) slab.querySelector("small").textContent = slab.dataset.t.split(";")[measure];
      }
      back.hidden = !grown && tree.dataset.view === undefined;
    }
    tree.addEventListener("click", (event) => {
      const slab = event.target.closest(".slab");
      if (!slab) return;
      const folded = slab.dataset.view && panel.querySelector(`template[data-view="${slab.dataset.view}"]`);
      if (folded) {
        tree.replaceChildren(folded.content.cloneNode(true));
        tree.dataset.view = slab.dataset.view;
        grown = null;
      } else grown = slab === grown ? null : slab;
      draw();
    });
    back.addEventListener("click", () => {
      if (!grown) {
        tree.innerHTML = whole;
        delete tree.dataset.view;
      }
      grown = null;
      draw();
      sonda.hide();
    });
    if (choice) choice.addEventListener("change", (event) => {
      measure = Number(event.target.value);
      draw();
    });
  }
})();
