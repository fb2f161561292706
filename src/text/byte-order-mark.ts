// U+FEFF in vocabularies with tokens of bytes. The library decodes each run of these by a TextDecoder, which takes U+FEFF at the
// start of one for a byte order mark and drops it; a space behind it is then at the start of a text, and dropped too.

import type { LibraryTokenizer } from "./libraries.ts";

const MARK = ["<0xEF>", "<0xBB>", "<0xBF>"];
const BYTE = /^<0x[\dA-F]{2}>$/i;

/** Returns what writes U+FEFF twice where the library drops it: of two, it drops the first. `special` are tokens that may be skipped. */
export function createMarkKeeper(
  made: LibraryTokenizer,
  special: ReadonlySet<unknown>,
): (ids: readonly number[], keepSpecial: boolean) => number[] {
  const mark = MARK.map((token) => made.token_to_id(token) ?? -1);
  const how = { skip_special_tokens: false, clean_up_tokenization_spaces: false };
  if (mark.includes(-1) || made.decode([...mark], how) !== "") return (ids) => [...ids];
  return (ids, keepSpecial) => {
    let isInRun = false;
    return ids.flatMap((id, i) => {
      const token = made.id_to_token(id) ?? "";
      if (!keepSpecial && special.has(token)) return [id];
      const isLost = !isInRun && mark.every((each, byte) => ids[i + byte] === each);
      isInRun = BYTE.test(token);
      return isLost ? [...mark, id] : [id];
    });
  };
}
