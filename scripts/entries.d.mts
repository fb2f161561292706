export declare function staleCopies(write: boolean): string[];
export declare const PEERS: string[];
export declare const FILES: readonly {
  readonly subpath: string;
  readonly name: string;
  readonly source: string;
  readonly worker?: boolean;
}[];
