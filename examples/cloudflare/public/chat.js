import { generate, openSession } from "./client.js";

const [text, form, prompt, tokens, status] = ["text", "form", "prompt", "tokens", "status"].map((id) =>
  document.getElementById(id),
);
const button = form.querySelector("button");
let session;

form.addEventListener("submit", async (submitted) => {
  submitted.preventDefault();
  button.disabled = true;
  const started = performance.now();
  const added = prompt.value;
  const answer = document.createElement("b");
  try {
    session ??= await openSession(location.origin);
    const stream = generate(session, added, tokens.valueAsNumber, {
      onRetry: ({ message }) => {
        status.textContent = `Retry: ${message}`;
      },
    });
    let count = 0;
    for await (const token of stream) {
      if (count++ === 0) {
        text.append(added, answer);
        prompt.value = "";
      }
      answer.append(token.text);
      status.textContent = `${count} tokens in ${Math.round(performance.now() - started)} ms, ${session.length} in all`;
    }
  } catch (error) {
    status.textContent = error.message;
  } finally {
    button.disabled = false;
    prompt.focus();
  }
});
