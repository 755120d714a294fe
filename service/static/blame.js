/** Says in words what is wrong, beside the control that caused it. */

import { element } from "./dom.js";

/** Finds the control of a problem by the places that the server names. */
export class Blame {
  constructor(controls) {
    this.controls = controls;
    this.failure = document.getElementById("failure");
  }

  /** Takes back what was said of answers; what was typed and cannot be read stays said. */
  none() {
    this.controls.mapping.complain("", "");
    this.controls.processors.complain(-1, "", "");
    this.controls.sweep.complain("");
    if (this.logits) this.controls.logits.complain("");
    this.logits = false;
    this.failure.replaceChildren();
  }

  /**
   * @param {Problem} problem
   * @param {"sweep" | "server" | undefined} blame what the request was for, where that decides
   * @param {Element} retry a button, where asking again may help
   */
  tell(problem, blame, retry) {
    this.none();
    const [error] = problem.errors;
    const said = sentence(error?.message ?? problem.message);
    this.failure.replaceChildren("There is no picture: ", this.#tell(error, said, blame) ?? said);
    if (error === undefined) this.failure.append(element("div", {}, retry));
  }

  /** Tells a control; answers what to say where the picture would be. */
  #tell(error, said, blame) {
    if (blame === "sweep") {
      this.controls.sweep.complain(said);
      return "what varies takes a value that the mapping does not.";
    }
    const [part, ...place] = error?.loc ?? [];
    if (part === "logits") {
      this.logits = true;
      this.controls.logits.complain(said);
      return "see the logits.";
    }
    if (part === "mapping") {
      this.controls.mapping.complain(place[0], said);
      return place.length > 0 ? `see ${place[0]}.` : "see the mapping.";
    }
    if (part === "processors") {
      this.controls.processors.complain(place[0], place[1], said);
      return "see the processors.";
    }
    return null;
  }
}

function sentence(text) {
  const whole = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}
