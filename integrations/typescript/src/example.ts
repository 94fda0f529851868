// Stores a fact, finds it, replaces it, and shows what an error looks like: node dist/example.js URL TOKEN
import { recollect, RecollectError } from "./index.js";

const [url = "http://127.0.0.1:8377", token] = process.argv.slice(2);
const memory = recollect(url, token);

const stored = await memory.POST("/v1/records", { body: { text: "The spare key is under the blue pot." } });
const id: string = stored.data!.id;
await memory.POST("/v1/supersede", { body: { id, text: "The spare key is with Anneke." } });

const answer = await memory.POST("/v1/search", { body: { query: "where is the spare key?", limit: 3 } });
for (const result of answer.data!.results) {
  console.log(result.rank, result.text, Object.keys(result.sources).sort().join("+"));
}

try {
  await memory.GET("/v1/records/{id}", { params: { path: { id: "unknown" } } });
} catch (error) {
  if (!(error instanceof RecollectError)) throw error;
  console.log(error.status, error.code, error.message);
}
