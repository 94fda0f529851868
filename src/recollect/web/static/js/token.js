// The small dialog that asks for a token; several requests refused at once share one dialog.

import { button, h } from "./dom.js";
import { phrase } from "./notice.js";

let open = null;

/** The token that was typed, or null when the dialog was closed. */
export function askToken(refused) {
  open ??= show(refused).finally(() => {
    open = null;
  });
  return open;
}

function show(refused) {
  return new Promise((done) => {
    const field = h("input", {
      type: "password", id: "token", name: "token", autocomplete: "off", spellcheck: "false", required: true,
    });
    const close = (value) => {
      dialog.remove();
      done(value);
    };
    const submit = (event) => {
      event.preventDefault();
      if (field.value.trim()) close(field.value.trim());
    };
    const cancel = button("Cancel", () => close(null));
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "token-title", on: { close: () => close(null) } },
      h("form", { on: { submit } },
        h("h2", { id: "token-title" }, "This server requires a token"),
        h("p", { class: "quiet" }, phrase(refused
          ? "The token was refused. Enter another one."
          : "Whoever runs it makes one with `recollect token add NAME`. It is kept until this tab is closed.")),
        h("label", { for: "token" }, "Token"), field,
        h("div", { class: "dialog-buttons" }, cancel,
          h("button", { type: "submit", class: "button primary" }, "Use token"))));
    document.body.append(dialog);
    dialog.showModal();
    field.focus();
  });
}
