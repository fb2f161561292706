import { generate, openSession } from "./client.js";

const [text, form, prompt, tokens, temperature, status] = [
  ...["text", "form", "prompt", "tokens", "temperature", "status"],
].map((id) => document.getElementById(id));
const button = form.querySelector("button");
let session;

function report(message, isError = false) {
  status.classList.toggle("error", isError);
  status.textContent = message;
}

/** The text for each reason why an answer ended. */
const ENDS = {
  stop: "The story ends here.",
  length: "It may go on.",
  full: "The conversation is full; reload the page to start another one.",
};

form.addEventListener("submit", async (submitted) => {
  submitted.preventDefault();
  button.disabled = true;
  report("Waiting for the server …");
  const started = performance.now();
  const words = prompt.value.trim();
  const added = words && text.textContent ? ` ${words}` : words;
  const answer = document.createElement("b");
  const show = (piece) => {
    if (!answer.isConnected) {
      text.append(added, answer);
      prompt.value = "";
    }
    answer.append(piece);
  };
  let end = "";
  try {
    session ??= await openSession(location.origin);
    const stream = generate(session, added, tokens.valueAsNumber, {
      temperature: temperature.valueAsNumber,
      seed: Math.floor(2 ** 32 * Math.random()),
      onDone: ({ reason }) => {
        end = ENDS[reason];
      },
      onRetry: ({ message }) => report(`Trying again: ${message}`),
    });
    for await (const piece of stream) show(piece.text);
    show("");
    report(`${answer.textContent.length} characters in ${Math.round(performance.now() - started)} ms. ${end}`);
  } catch ({ message }) {
    report(`${answer.isConnected ? "The answer broke off" : "No answer"}: ${message}`, true);
  } finally {
    button.disabled = false;
    prompt.focus();
  }
});
