"use strict";
// Where a number comes from, for those who have no mouse: what a tooltip says is shown where the focus is, or on a tap.
(() => {
  const bubble = document.createElement("div");
  bubble.className = "hint";
  bubble.id = "hint";
  bubble.setAttribute("role", "tooltip");
  bubble.hidden = true;
  document.body.append(bubble);
  let holder = null;

  function show(element, text = element.title) {
    hide();
    holder = element;
    bubble.textContent = text;
    bubble.hidden = false;
    element.setAttribute("aria-describedby", "hint");
    settle();
  }
  function settle() {
    const element = holder;
    const [place, own] = [element.getBoundingClientRect(), bubble.getBoundingClientRect()];
    const below = place.bottom + 6 + own.height < innerHeight;
    bubble.style.left = `${Math.max(8, Math.min(place.left, innerWidth - own.width - 8))}px`;
    bubble.style.top = `${below ? place.bottom + 6 : Math.max(8, place.top - own.height - 6)}px`;
  }
  function hide() {
    if (holder) holder.removeAttribute("aria-describedby");
    holder = null;
    bubble.hidden = true;
  }

  sonda.show = show;
  sonda.hide = hide;

  const told = (target) => (target instanceof Element ? target.closest("[title]:not([title=''])") : null);
  document.addEventListener("focusin", (event) => {
    const found = told(event.target);
    if (found && event.target.matches(":focus-visible")) show(found);
    else hide();
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", () => {
    if (holder && holder.contains(document.activeElement)) settle();
    else hide();
  }, { capture: true, passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("click", (event) => {
    const found = event.pointerType === "touch" && told(event.target);
    if (found) show(found);
    else if (!event.target.matches(":focus-visible")) hide();
  });

  // A number and its unit stay on one line; tables and pictures break nothing.
  const bound = new RegExp(`(\\d) (?=(?:${document.querySelector("main").dataset.units})(?![\\w/]))`, "g");
  for (const prose of document.querySelectorAll("p, li, dt, dd, summary")) {
    for (const piece of prose.childNodes) {
      if (piece.nodeType === Node.TEXT_NODE) piece.data = piece.data.replace(bound, "$1\u00a0");
      else if (piece instanceof Element && !piece.children.length) piece.textContent = piece.textContent.replace(bound, "$1\u00a0");
    }
  }
})();
