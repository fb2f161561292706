// Copying a text that the page shows.

/** Copies the text of an element and says so; without the clipboard, which only secure contexts have, selects it instead. */
export async function copyTextOf(element: HTMLElement, status: HTMLElement): Promise<void> {
  try {
    await navigator.clipboard.writeText(element.textContent ?? "");
    status.textContent = "Copied.";
  } catch {
    getSelection()?.selectAllChildren(element);
    status.textContent = "Selected: copy it with the keyboard.";
  }
}
