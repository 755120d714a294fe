/** The page: a state, controls that change it, and views that show it. */

import { Problem, ask, get, useKey } from "./api.js";
import { Blame } from "./blame.js";
import { LogitControls } from "./controls/logits.js";
import { MappingControls, fitted } from "./controls/mapping.js";
import { ProcessorControls } from "./controls/processors.js";
import { SweepControls } from "./controls/sweep.js";
import { Snippets } from "./copying.js";
import { announce, element } from "./dom.js";
import { Panel } from "./panel.js";
import { Store, fromFragment, toFragment } from "./state.js";
import { Tabs } from "./tabs.js";
import { VIEWS } from "./views/all.js";

/** How long an answer may take before its progress is shown (milliseconds). */
const PATIENCE = 200;

/** How long the last change is waited for before the server is asked (milliseconds). */
const SETTLING = 40;

const byId = (id) => document.getElementById(id);

class Page {
  #asking = new AbortController();
  #timer = 0;

  constructor(mappings, processors) {
    this.mappings = mappings;
    this.described = new Map(mappings.map((one) => [one.name, one]));
    this.processors = new Set(processors.map(({ name }) => name));
    this.panel = new Panel(byId("view"));
    this.store = new Store(this.#read());
    this.controls = {
      logits: new LogitControls(this.store),
      mapping: new MappingControls(this.store, mappings),
      processors: new ProcessorControls(this.store, processors),
      sweep: new SweepControls(this.store, byId("sweep")),
    };
    this.blame = new Blame(this.controls);
    const { logits, mapping, processors: chain } = this.controls;
    byId("controls").append(logits.root, mapping.root, chain.root);
    this.tabs = new Tabs(byId("tabs"), VIEWS, (view) => this.store.set({ view }));
    this.snippets = new Snippets(byId("snippets"));
  }

  start() {
    let classes = this.store.state.logits.length;
    this.store.subscribe((state) => {
      if (state.logits.length !== classes) {
        classes = state.logits.length;
        const mapping = fitted(state.mapping, this.described.get(state.mapping.name), classes);
        this.store.set({ mapping, sweep: {} });
        return;
      }
      history.replaceState(null, "", `#${toFragment(state)}`);
      this.show();
    });
    addEventListener("hashchange", () => this.store.set(this.#read()));
    const redraw = () => this.show();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    let narrow = this.panel.isNarrow;
    new ResizeObserver(() => {
      if (this.panel.isNarrow === narrow) return;
      narrow = this.panel.isNarrow;
      this.show();
    }).observe(this.panel.root);
    byId("skip").addEventListener("click", (event) => {
      // The fragment is the state's.
      event.preventDefault();
      byId("controls").focus();
    });
    this.show();
  }

  /** Shows the state: the controls now, the view when the server has answered. */
  show() {
    const { state } = this.store;
    const view = VIEWS.find(({ id }) => id === state.view);
    const described = this.described.get(state.mapping.name);
    for (const control of ["logits", "mapping", "processors"]) this.controls[control].show(state);
    this.controls.sweep.show(state, view, described);
    this.tabs.show(view);
    byId("view-title").textContent = view.title;
    byId("view-lead").textContent = view.lead;
    this.#asking.abort();
    clearTimeout(this.#timer);
    byId("view").setAttribute("aria-busy", "true");
    this.#timer = setTimeout(() => this.#ask(view, state, described), SETTLING);
  }

  async #ask(view, state, described) {
    this.#asking = new AbortController();
    const { signal } = this.#asking;
    const choose = (name) => this.controls.mapping.choose(name);
    const context = { described, mappings: this.mappings, store: this.store, choose };
    const slow = setTimeout(() => (byId("progress").hidden = false), PATIENCE);
    try {
      const refusal = view.refusal?.(state) ?? null;
      const requests = refusal === null ? view.requests(state, context) : [];
      byId("snippets").parentElement.hidden = refusal !== null;
      if (refusal !== null) {
        this.blame.none();
        await this.panel.drawing((panel) => [
          panel.words("refusal", ...view.instead(state, context)),
        ]);
        announce(refusal);
        return;
      }
      const bodies = requests.map(({ body }) => body);
      this.snippets.show(bodies);
      const answers = await ask(bodies, signal);
      if (signal.aborted) return;
      const wrong = answers.findIndex(
        (answer, at) => answer instanceof Problem && requests[at].blame !== "panel",
      );
      if (wrong !== -1) {
        await this.#fail(answers[wrong], requests[wrong].blame);
        return;
      }
      this.blame.none();
      await this.panel.drawing((panel) => view.draw(panel, answers, state, context));
      announce(view.say(answers, state, context));
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof Problem)) throw error;
      await this.#fail(error, "server");
    } finally {
      clearTimeout(slow);
      if (!signal.aborted) {
        byId("progress").hidden = true;
        byId("view").setAttribute("aria-busy", "false");
        byId("view").dataset.shows = `${view.id} ${state.mapping.name}`;
      }
    }
  }

  async #fail(problem, blame) {
    await this.panel.clear();
    const retry = element("button", { type: "button", onclick: () => this.show() }, "Try again");
    this.blame.tell(problem, blame, retry);
    if (problem.status === 401) byId("failure").append(keyForm(() => this.show()));
  }

  /** The state in the URL, with what the server does not have replaced and told. */
  #read() {
    const { state, problems } = fromFragment(location.hash);
    const example = fromFragment("").state;
    if (!VIEWS.some(({ id }) => id === state.view)) {
      problems.push(`There is no view “${state.view}”.`);
      state.view = example.view;
    }
    if (!this.described.has(state.mapping.name)) {
      problems.push(`This server has no mapping “${state.mapping.name}”.`);
      state.mapping = example.mapping;
    }
    const unknown = state.processors.find(({ name }) => !this.processors.has(name));
    if (unknown !== undefined) {
      problems.push(`This server has no processor “${unknown.name}”.`);
      state.processors = state.processors.filter(({ name }) => this.processors.has(name));
    }
    notice(problems.join(" "));
    return state;
  }
}

function notice(text) {
  document.querySelector("main > .notice")?.remove();
  if (text)
    document.querySelector("main").prepend(element("p", { class: "notice", role: "alert" }, text));
}

/** Where the server wants a key. */
function keyForm(retry) {
  const input = element("input", { id: "key", type: "password", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    useKey(input.value);
    retry();
  };
  const label = element("label", { htmlFor: "key" }, "Key of this server; it is not kept");
  const send = element("button", {}, "Use");
  return element("form", { class: "key", onsubmit: submit }, label, input, send);
}

async function start() {
  let mappings;
  let processors;
  try {
    [{ mappings }, { processors }] = await Promise.all([
      get("/v1/mappings"),
      get("/v1/processors"),
    ]);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    byId("view-title").textContent = "No answer";
    byId("failure").replaceChildren(problem.message);
    if (problem.status === 401) byId("failure").append(keyForm(start));
    return;
  }
  byId("failure").replaceChildren();
  new Page(mappings, processors).start();
}

await start();
