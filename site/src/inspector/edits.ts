// Changes of heads: their words in the address, and the controls of the head that is large.

import type { HeadEdit } from "../../worker/inspect-runs.ts";
import { make } from "../dom.ts";
import type { Place } from "./heads-grid.ts";

/** "0.3*0.5,1.2=": head 3 of layer 0 gives half, head 2 of layer 1 what it gives in the other text. */
export function readEdits(text: string): HeadEdit[] {
  return text.split(",").flatMap((each): HeadEdit[] => {
    const [, layer, head, change] = /^(\d+)\.(\d+)(=|\*[\d.]+)$/.exec(each) ?? [];
    if (change === undefined) return [];
    const place = { layer: Number(layer), head: Number(head) };
    if (change === "=") return [{ ...place, patch: true }];
    const scale = Number(change.slice(1));
    return Number.isFinite(scale) && scale !== 1 ? [{ ...place, scale }] : [];
  });
}

export const writeEdits = (edits: readonly HeadEdit[]): string =>
  edits.map((edit) => `${edit.layer}.${edit.head}${"patch" in edit ? "=" : `*${edit.scale}`}`).join(",");

/** Whether a head is away. */
export const isAblated = (edit: HeadEdit): boolean => "scale" in edit && edit.scale === 0;

export interface EditControls {
  readonly element: HTMLElement;
  /** Shows the edits of the address, and the head that the controls are for. */
  show(edits: string, from: string, place: Place): void;
}

/** The largest factor of the slider. */
const MOST = 3;

export function createEditControls(onChange: (edits: string, from: string) => void): EditControls {
  const label = make("label", { htmlFor: "scale" });
  const scale = make("input", { id: "scale", type: "range", min: "0", max: String(MOST), step: "0.05" });
  const button = (textContent: string) => make("button", { type: "button", textContent });
  const [ablate, patch, restore, restoreAll] = ["Take this head away", "Patch this head", "Restore", "Restore all"].map(
    button,
  ) as [HTMLButtonElement, HTMLButtonElement, HTMLButtonElement, HTMLButtonElement];
  ablate.className = "primary";
  const other = make("input", { id: "from", type: "text", autocomplete: "off", spellcheck: false });
  const otherLabel = make("label", {
    htmlFor: "from",
    textContent: "Another text, of as many tokens: what does the head give there?",
  });
  const list = make("p", { className: "quiet small" });
  let [edits, place]: [HeadEdit[], Place] = [[], { layer: 0, head: 0 }];

  const isHere = (edit: Place) => edit.layer === place.layer && edit.head === place.head;
  const set = (change: { readonly scale: number } | { readonly patch: true } | undefined): void => {
    const rest = edits.filter((edit) => !isHere(edit));
    onChange(writeEdits(change ? [...rest, { ...place, ...change }] : rest), other.value);
  };
  const setScale = () => set(scale.valueAsNumber === 1 ? undefined : { scale: scale.valueAsNumber });
  scale.addEventListener("input", setScale);
  ablate.addEventListener("click", () => set({ scale: 0 }));
  patch.addEventListener("click", () => set({ patch: true }));
  restore.addEventListener("click", () => set(undefined));
  restoreAll.addEventListener("click", () => onChange("", other.value));
  other.addEventListener("change", () => onChange(writeEdits(edits), other.value));

  const buttons = make("div", { className: "actions" }, ablate, restore, restoreAll);
  const patching = make("details", {}, make("summary", { textContent: "Patch from another text" }));
  patching.append(otherLabel, other, make("div", { className: "actions" }, patch));
  const element = make("div", { className: "edits" }, label, scale, buttons, list, patching);
  return {
    element,
    show(written, from, at) {
      edits = readEdits(written);
      place = at;
      if (edits.some((edit) => "patch" in edit)) patching.open = true;
      const own = edits.find(isHere);
      const factor = own && "scale" in own ? own.scale : 1;
      if (document.activeElement !== scale) scale.valueAsNumber = factor;
      if (document.activeElement !== other) other.value = from;
      const what = own && "patch" in own ? "that of the other text" : `times ${factor}`;
      label.textContent = `What layer ${at.layer}, head ${at.head} gives: ${own ? what : "unchanged"}`;
      restore.disabled = own === undefined;
      restoreAll.disabled = edits.length === 0;
      ablate.disabled = factor === 0;
      list.textContent =
        edits.length === 0
          ? "Nothing is changed."
          : `Changed: ${edits.map((edit) => `${edit.layer}.${edit.head} ${"patch" in edit ? "patched" : isAblated(edit) ? "away" : `× ${edit.scale}`}`).join(", ")}.`;
    },
  };
}
