import type { MixerLayer } from "../../layers/mixer/mixer.ts";
import { HEAD_VIEW, type LayerView } from "./head-view.ts";
import { LATENT_VIEW } from "./latent-view.ts";

/** What tools know of layers, by the name of their mixer. */
const VIEWS: Readonly<Record<string, LayerView>> = { heads: HEAD_VIEW, latents: LATENT_VIEW };

/** What tools know of a layer. */
export function viewOf({ kind }: MixerLayer): LayerView {
  const view = VIEWS[kind];
  if (!view)
    throw new RangeError(`attention expected a layer of ${Object.keys(VIEWS).join(" or ")}, got one of ${kind}`);
  return view;
}
