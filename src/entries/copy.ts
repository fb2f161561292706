/** Copies a text and says so. Without the clipboard, which only secure contexts have, `manual` shows it, selected. */
export async function copyText(text: string, status: HTMLElement, manual: HTMLTextAreaElement): Promise<void> {
  manual.hidden = true;
  try {
    await navigator.clipboard.writeText(text);
    status.textContent = "Copied.";
  } catch {
    manual.hidden = false;
    manual.value = text;
    manual.select();
    status.textContent = "Selected: copy it with the keyboard.";
  }
}
