import { runTrial } from "../../trial.js";

export const runtime = "edge";
export const dynamic = "force-dynamic";

export async function GET() {
  return Response.json(await runTrial());
}
