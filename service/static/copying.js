/** The code beneath a view: shown in each language, and copied by a button. */

import { announce, element } from "./dom.js";
import { LANGUAGES } from "./snippets.js";

/** Shows a view's requests in every language. */
export class Snippets {
  #codes;

  constructor(root) {
    this.#codes = LANGUAGES.map(([language, write]) => {
      const code = element("code", {});
      const frame = element("pre", { tabindex: 0, "aria-label": `${language} code` }, code);
      const copy = element(
        "button",
        { type: "button", onclick: () => this.#copy(language, code, copy) },
        `Copy as ${language}`,
      );
      const shown = element("details", {}, element("summary", {}, `Show ${language}`), frame);
      root.append(element("div", { class: "snippet", "data-language": language }, copy, shown));
      return [code, write];
    });
  }

  show(bodies) {
    for (const [code, write] of this.#codes) code.textContent = write(bodies);
  }

  async #copy(language, code, button) {
    const isCopied = await copied(code);
    const said = isCopied ? `${language} code copied` : "Selected: press Ctrl+C to copy";
    announce(said);
    button.textContent = isCopied ? "Copied" : "Press Ctrl+C";
    setTimeout(() => (button.textContent = `Copy as ${language}`), 2000);
  }
}

/** Copies; where the browser lets no page do that, selects, and false. */
async function copied(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    // There is no clipboard on pages that come neither over TLS nor from this machine.
    code.closest("details").open = true;
    getSelection().selectAllChildren(code);
    return false;
  }
}
