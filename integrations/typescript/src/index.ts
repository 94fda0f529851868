import createClient, { type Client, type Middleware } from "openapi-fetch";

import type { components, paths } from "./api.js";

export type Schemas = components["schemas"];

/** An error of the server: its code, what happened, and what to do next. */
export class RecollectError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint?: string,
  ) {
    super(message);
    this.name = "RecollectError";
  }
}

const raiseErrors: Middleware = {
  async onResponse({ response }) {
    if (response.ok) return;
    const body = await response.text();
    let error: { code?: string; message?: string; hint?: string } = {};
    try {
      error = JSON.parse(body).error ?? {};
    } catch {
      // a proxy may answer with a page
    }
    throw new RecollectError(
      response.status,
      error.code ?? "http",
      error.message ?? `the server answered ${response.status}`,
      error.hint,
    );
  },
};

/** A client of the server at `url`; without a token the server must accept this machine. */
export function recollect(url: string, token?: string): Client<paths> {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const client = createClient<paths>({ baseUrl: url, headers });
  client.use(raiseErrors);
  return client;
}
