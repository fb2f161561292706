// What is freed together, also if making a part of it fails.

interface Releasable {
  release(): void;
}

/** Keeps what has memory, until `release` frees all of it, the last first. */
export interface Owned {
  add<T extends Releasable>(each: T): T;
  release(): void;
}

export function createOwned(): Owned {
  const all: Releasable[] = [];
  return {
    add(each) {
      all.push(each);
      return each;
    },
    release() {
      for (const each of all.splice(0).reverse()) each.release();
    },
  };
}
