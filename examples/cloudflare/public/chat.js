import { generate, openSession } from "./client.js";

const [text, form, prompt, tokens, status] = ["text", "form", "prompt", "tokens", "status"].map((id) =>
  document.getElementById(id),
);
const button = form.querySelector("button");
let session;

function report(message, isError = false) {
  status.classList.toggle("error", isError);
  status.textContent = message;
}

const counted = (count) => `${count} ${count === 1 ? "character" : "characters"}`;

form.addEventListener("submit", async (submitted) => {
  submitted.preventDefault();
  button.disabled = true;
  report("Waiting for the server …");
  const started = performance.now();
  const added = prompt.value;
  const answer = document.createElement("b");
  let count = 0;
  try {
    session ??= await openSession(location.origin);
    const stream = generate(session, added, tokens.valueAsNumber, {
      onRetry: ({ message }) => report(`Trying again: ${message}`),
    });
    for await (const token of stream) {
      if (count++ === 0) {
        text.append(added, answer);
        prompt.value = "";
      }
      answer.append(token.text);
      const ms = Math.round(performance.now() - started);
      report(`${counted(count)} in ${ms} ms. The conversation has ${counted(session.length)}.`);
    }
  } catch ({ message }) {
    report(`${count === 0 ? "No answer" : "The answer broke off"}: ${message}`, true);
  } finally {
    button.disabled = false;
    prompt.focus();
  }
});
