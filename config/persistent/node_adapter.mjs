// Runs a JavaScript module as a persistent command. Copy this file into `tools/`, and write in a builder entry:
//
//     command: node tools/node_adapter.mjs tools/convert.mjs
//     tools: [{name: node, files: [tools/node_adapter.mjs, tools/convert.mjs]}]
//     persistent: true
//
// `convert.mjs` exports `convert(job)`, which may be async. `job` is the request; the result is undefined, or an object with fields of
// the answer (`products`, `dependencies`, `facts`, `log`). An exception fails the job. Its output goes to the log of the job.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const writeAnswer = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr); // only answers may go to stdout
const { convert } = await import(pathToFileURL(process.argv[2]).href);

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const job = JSON.parse(line);
  process.chdir(job.temp_dir);
  let answer;
  try {
    answer = { ok: true, ...(await convert(job)) };
  } catch (error) {
    console.error(error?.stack ?? error);
    answer = { ok: false, error: String(error) };
  }
  writeAnswer(JSON.stringify({ id: job.id, ...answer }) + "\n");
}
