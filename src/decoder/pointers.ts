import type { ActivationShapePtr, EmbedShapePtr, I32Ptr, NormShapePtr, RouteShapePtr } from "../wasm/abi.ts";

/** Gives an address the type of what it points to, for the kernels of decoders; `pointer` of memory.ts has the others. */
export const modelPointer: {
  i32(at: number): I32Ptr;
  normShape(at: number): NormShapePtr;
  activationShape(at: number): ActivationShapePtr;
  embedShape(at: number): EmbedShapePtr;
  routeShape(at: number): RouteShapePtr;
} = {
  i32: (at) => at as I32Ptr,
  normShape: (at) => at as NormShapePtr,
  activationShape: (at) => at as ActivationShapePtr,
  embedShape: (at) => at as EmbedShapePtr,
  routeShape: (at) => at as RouteShapePtr,
};
