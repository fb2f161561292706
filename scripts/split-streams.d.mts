export function splitStreams(bytes: Uint8Array): Uint8Array<ArrayBuffer>;
