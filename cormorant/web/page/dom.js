// How are elements made? From text only, never from HTML: titles come from strangers.

export const $ = (id) => document.getElementById(id);

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [each, is] of Object.entries(value)) element.style.setProperty(`--${each}`, is);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
  return element;
}

const shown = new WeakMap();

// Draw anew only what has changed, and leave the focus where it was: it is found again by its `data-key`.
export function draw(target, about, make) {
  const text = JSON.stringify(about);
  if (shown.get(target) === text) return;
  shown.set(target, text);
  const focused = target.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  target.replaceChildren(...[make(about)].flat(3).filter(Boolean));
  if (focused) target.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

export function say(text) {
  $("said").textContent = text;
}

let troubleEnds;
export function tellTrouble(error) {
  const place = $("trouble");
  place.textContent = sentence(error.message || String(error));
  place.hidden = false;
  clearTimeout(troubleEnds);
  troubleEnds = setTimeout(() => { place.hidden = true; }, 8000);
}

// Run what a button does: once at a time, and tell when it fails.
export function does(action) {
  return async (event) => {
    const button = event?.currentTarget instanceof HTMLButtonElement ? event.currentTarget : null;
    if (button?.getAttribute("aria-busy") === "true") return;
    button?.setAttribute("aria-busy", "true");
    try {
      await action(event);
    } catch (error) {
      tellTrouble(error);
    } finally {
      button?.removeAttribute("aria-busy");
    }
  };
}

export function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString()} ${count === 1 ? one : many}`;
