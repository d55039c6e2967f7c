import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'
import { Client, type Config } from '../src/index.js'

/** A request that a test server has got. */
export interface Seen {
  method: string
  url: string
  headers: IncomingMessage['headers']
  body: string
}

export interface TestServer {
  baseUrl: string
  /** All requests but those for tokens. */
  seen: Seen[]
  /** The number of tokens that were issued. */
  tokens: number
  /** The lifetime of the next tokens, in seconds. */
  lifetime: number
}

/** Serves tokens, and has answer answer everything else. The server ends with the test. */
export async function serve(
  t: TestContext,
  answer: (request: Seen, response: ServerResponse) => void | Promise<void>,
): Promise<TestServer> {
  const state: TestServer = { baseUrl: '', seen: [], tokens: 0, lifetime: 3600 }
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const seen = { method: request.method ?? '', url: request.url ?? '', headers: request.headers, body }
    if (seen.url === '/oauth2/token') {
      state.tokens++
      json(response, 200, { access_token: `token-${state.tokens}`, token_type: 'Bearer', expires_in: state.lifetime })
      return
    }
    state.seen.push(seen)
    await answer(seen, response)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  state.baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return state
}

/** Answers with JSON. */
export function json(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'Content-Type': 'application/json;charset=UTF-8', ...headers })
  response.end(JSON.stringify(body))
}

/** Returns a client that loses no time between retries. */
export function newClient(server: TestServer, config: Partial<Config> = {}): Client {
  return new Client({ baseUrl: server.baseUrl, clientId: 'id', clientSecret: 'secret', maxBackoffMs: 5, ...config })
}

/** An envelope. */
export const data = (value: object) => ({ data: value, traceId: '40b863fce96c224b4b37cfe08ad429c8' })
