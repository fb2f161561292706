// Where the arcs of heads run: from the last word to those that they look at, across no word.

/** The place of a word, in pixels of the sentence. */
export interface Box {
  readonly left: number;
  readonly top: number;
  readonly right: number;
}

/** Pixels between two arcs that run side by side, and from a word to the first of them. */
const [LANE, AWAY] = [4, 5];
/** Pixels that arcs have above a line of words, and at the right of all lines. */
export const ROOM = 36;
/** The corners of arcs between lines. */
const CORNER = 6;

/**
 * The path of an arc for each target, a number of a word; undefined for none. On one line the arcs rise above the words, one above the
 * other; from line to line they run in the room above each line and at the right of all.
 */
export function arcPaths(
  boxes: readonly Box[],
  from: number,
  targets: readonly (number | undefined)[],
  width: number,
): (string | undefined)[] {
  const start = boxes[from];
  if (!start) return targets.map(() => undefined);
  const isOneLine = boxes.every(({ top }) => Math.abs(top - start.top) < 1);
  return targets.map((target, lane) => {
    const end = target === undefined || target === from ? undefined : boxes[target];
    if (!end) return undefined;
    const aside = (lane - (targets.length - 1) / 2) * 2;
    // The outermost arc begins at the right and ends at the left, so that none crosses another.
    const [x, to] = [middle(start) + aside, middle(end) - aside];
    if (isOneLine) return riseOver(x, to, start.top - 2, (lane + 1) / targets.length);
    const above = (box: Box, place: number) => box.top - AWAY - LANE * place;
    if (Math.abs(start.top - end.top) < 1) return route(x, start.top, above(start, lane), to, end.top);
    const last = targets.length - 1;
    return routeAround(
      { x, y: start.top, lane: above(start, last - lane) },
      { x: to, y: end.top, lane: above(end, lane) },
      width - ROOM + AWAY + LANE * lane,
    );
  });
}

const middle = ({ left, right }: Box): number => (left + right) / 2;
const draw = (...parts: readonly (string | number)[]): string =>
  parts.map((part) => (typeof part === "number" ? part.toFixed(1) : part)).join(" ");

/** An arc over words, higher the farther it leads; `share` of the room above them. */
function riseOver(x: number, to: number, y: number, share: number): string {
  const rise = (y - 6) * share * Math.min(1, Math.max(0.3, Math.abs(x - to) / 320));
  const control = y - (rise * 4) / 3;
  return draw("M", x, y, "C", x, control, to, control, to, y);
}

/** Up, along the room above a line, and down. */
function route(x: number, y: number, lane: number, to: number, end: number): string {
  const turn = Math.min(CORNER, Math.abs(x - to) / 2, y - lane);
  const side = Math.sign(to - x) * turn;
  const [up, down] = [y - 2, end - 2];
  return draw(
    ...["M", x, up, "V", lane + turn, "Q", x, lane, x + side, lane],
    ...["H", to - side, "Q", to, lane, to, lane + turn, "V", down],
  );
}

interface Stop {
  readonly x: number;
  readonly y: number;
  readonly lane: number;
}

/** Up from a word, to the right of all lines, along to the line of another word, and down to it. */
function routeAround(from: Stop, to: Stop, side: number): string {
  const turn = Math.min(CORNER, Math.abs(from.lane - to.lane) / 2);
  const way = Math.sign(to.lane - from.lane) * turn;
  const short = (stop: Stop) => Math.min(CORNER, stop.y - 2 - stop.lane);
  const [begin, end] = [short(from), short(to)];
  return draw(
    ...["M", from.x, from.y - 2, "V", from.lane + begin, "Q", from.x, from.lane, from.x + begin, from.lane],
    ...["H", side - turn, "Q", side, from.lane, side, from.lane + way],
    ...["V", to.lane - way, "Q", side, to.lane, side - turn, to.lane],
    ...["H", to.x + end, "Q", to.x, to.lane, to.x, to.lane + end, "V", to.y - 2],
  );
}
