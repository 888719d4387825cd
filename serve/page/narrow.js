// Narrow windows: the library is a drawer, and a document's text covers the page.

import { byId } from "./elements.js";

export const narrow = matchMedia("(max-width: 760px)");

/** Keep the keyboard out of covered parts. */
export function cover() {
  const drawer = isLibraryOpen();
  const [library, main, text] = [byId("library"), document.querySelector("main"), byId("text")];
  library.inert = narrow.matches && !drawer;
  main.inert = narrow.matches && (drawer || !text.hidden);
  text.inert = narrow.matches && drawer;
  byId("open-library").setAttribute("aria-expanded", String(drawer));
}

export const isLibraryOpen = () => document.body.classList.contains("with-library");

export function openLibrary() {
  document.body.classList.add("with-library");
  cover();
  byId("close-library").focus();
}

export function closeLibrary() {
  if (!isLibraryOpen()) return;
  document.body.classList.remove("with-library");
  cover();
  byId("open-library").focus();
}
