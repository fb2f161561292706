export declare function staleCopies(write: boolean): string[];
export declare const PEERS: string[];
export declare function importName(subpath: string): string;
export declare const OLD_NAMES: string[];
export declare const LAZY_NAMES: string[];
export declare const OLD: readonly { readonly subpath: string; readonly name: string; readonly now: string }[];
export declare const ENTRIES: readonly {
  readonly subpath: string;
  readonly name: string;
  readonly source: string;
  readonly worker?: boolean;
}[];
