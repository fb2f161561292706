declare module "suite:fixtures" {
  export const fixtures: import("./suite.ts").Fixtures;
}
