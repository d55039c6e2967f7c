import { ApiError, ConnectionError } from './errors.js'

/** The API version of this client. */
export const version = 'urn:svc:api:billing:version:v1'

/** The configuration of a client. */
export interface Config {
  /** The address of the service, such as `https://pay.example`. */
  baseUrl: string
  /** The credentials. Keep the secret on servers: a browser must not have it. */
  clientId?: string
  clientSecret?: string
  /** Returns an access token, instead of the credentials. The client calls it before each request. */
  accessToken?: () => string | Promise<string>
  /** By default the global fetch. */
  fetch?: typeof fetch
  /** The time for one request without its retries, in milliseconds; by default 60,000. */
  timeoutMs?: number
  /** The maximum number of retries of a request; by default 8. */
  maxRetries?: number
  /** The maximum wait before a retry, in milliseconds; by default 10,000. */
  maxBackoffMs?: number
}

/** A request to send. */
export interface Call {
  method: string
  /** A path with query, under the base URL. */
  path: string
  headers?: Record<string, string>
  /** Sent as JSON. */
  body?: unknown
  /** Whether the request may be sent again after it got no answer. */
  repeatable: boolean
  signal?: AbortSignal | undefined
}

/** A successful answer. `body` is parsed JSON, or text of another media type. */
export interface Reply {
  status: number
  headers: Headers
  body: unknown
}

/** Time before a token's expiry at which it is renewed. */
const renewBeforeMs = 60_000

/** Sends requests with access tokens, and retries them. */
export class Transport {
  readonly #config: Required<Pick<Config, 'timeoutMs' | 'maxRetries' | 'maxBackoffMs' | 'fetch'>> & Config
  readonly #base: string
  #token: { value: string; renewAt: number } | undefined
  #renewal: Promise<string> | undefined

  constructor(config: Config) {
    if (!config.accessToken && (!config.clientId || !config.clientSecret)) {
      throw new TypeError('clientId and clientSecret, or accessToken, must be given')
    }
    this.#base = config.baseUrl.replace(/\/+$/, '')
    this.#config = {
      ...config,
      fetch: config.fetch ?? ((input, init) => fetch(input, init)),
      timeoutMs: config.timeoutMs ?? 60_000,
      maxRetries: config.maxRetries ?? 8,
      maxBackoffMs: config.maxBackoffMs ?? 10_000,
    }
  }

  /** Sends a request until it is answered, refused, or must not be repeated. */
  async send(call: Call): Promise<Reply> {
    let renewed = false
    for (let attempt = 0; ; attempt++) {
      const token = await this.#accessToken(call.signal)
      try {
        return await this.#exchange(call, `Bearer ${token}`)
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) {
          this.#forget(token)
          if (renewed) throw error
          renewed = true
          continue
        }
        const keyed = call.headers !== undefined && 'Idempotency-Key' in call.headers
        const wait = this.retryDelay(error, attempt, { repeatable: call.repeatable, keyed })
        if (wait === undefined || attempt >= this.#config.maxRetries) throw error
        await sleep(wait, call.signal)
      }
    }
  }

  /**
   * Returns the path and the query of a pagination link, under the base URL. The token goes to no
   * other address.
   */
  pathOf(href: string): string {
    const base = new URL(this.#base)
    const { pathname, search } = new URL(href, base)
    const prefix = base.pathname.replace(/\/+$/, '')
    return (pathname.startsWith(`${prefix}/`) ? pathname.slice(prefix.length) : pathname) + search
  }

  /**
   * The wait that long polls ask for, in seconds: shorter than common time-outs of proxies, and than the own one.
   * 0 means that the own time-out is too short to wait.
   */
  get longPoll(): number {
    return Math.min(20, Math.floor(this.#config.timeoutMs / 2000))
  }

  /** Opens a stream. The time-out covers the headers. Errors are those of send; nothing is retried. */
  async stream(path: string, headers: Record<string, string>, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    const token = await this.#accessToken(signal)
    const authorized = { ...headers, Accept: 'text/event-stream', Authorization: `Bearer ${token}` }
    const opening = new AbortController()
    const timer = setTimeout(() => opening.abort(), this.#config.timeoutMs)
    try {
      const either = AbortSignal.any([signal, opening.signal])
      const response = await this.#fetch(path, { headers: authorized, signal: either }, signal)
      if (response.status === 200 && response.body) return response.body
      if (response.status === 401) this.#forget(token)
      throw new ApiError(response.status, response.headers, parseJSON(await read(response, signal)))
    } finally {
      clearTimeout(timer)
    }
  }

  /**
   * Returns the wait before a failed request is sent again, undefined if it must not be. `failures`
   * counts earlier failures in a row. A `keyed` request has an Idempotency-Key.
   */
  retryDelay(
    error: unknown,
    failures: number,
    { repeatable, keyed = false }: { repeatable: boolean; keyed?: boolean },
  ): number | undefined {
    const { maxBackoffMs } = this.#config
    const backoff = Math.min(100 * 2 ** Math.min(failures, 20), maxBackoffMs) * (0.5 + Math.random() / 2)
    if (error instanceof ConnectionError) return repeatable ? backoff : undefined
    if (!(error instanceof ApiError)) return undefined
    const asked = error.retryAfterMs ?? 0
    if (error.status === 429) {
      // Without effect. A long wait is for a quota that may not free itself.
      return asked > 0 && asked <= maxBackoffMs ? Math.max(asked, backoff) : undefined
    }
    // A keyed request whose first answer was lost may still be in progress.
    const inProgress = error.status === 409 && keyed && error.retryAfterMs !== undefined
    if (inProgress || (error.status >= 500 && repeatable)) return Math.min(Math.max(asked, backoff), maxBackoffMs)
    return undefined
  }

  async #exchange(call: Call, authorization: string): Promise<Reply> {
    const headers: Record<string, string> = {
      ...call.headers,
      Authorization: authorization,
      'Svc-Api-Version': version,
    }
    const init: RequestInit = { method: call.method, headers, signal: this.#deadline(call.signal) }
    if (call.body !== undefined) {
      headers['Content-Type'] = 'application/json'
      init.body = JSON.stringify(call.body)
    }
    return this.#answer(call, await this.#fetch(call.path, init, call.signal), call.signal)
  }

  async #answer(call: Pick<Call, 'method' | 'path'>, response: Response, signal?: AbortSignal): Promise<Reply> {
    const text = await read(response, signal)
    const { status, headers } = response
    if (status >= 400) throw new ApiError(status, headers, parseJSON(text))
    if (!headers.get('Content-Type')?.includes('json')) return { status, headers, body: text }
    const body = parseJSON(text)
    if (body === undefined) throw new ConnectionError(`${call.method} ${call.path}: the answer is not JSON`)
    return { status, headers, body }
  }

  /** Calls fetch. A failure is a ConnectionError, unless the caller's signal has ended the request. */
  async #fetch(path: string, init: RequestInit, signal: AbortSignal | undefined): Promise<Response> {
    const url = new URL(this.#base + path)
    const headers = new Headers(init.headers) // refuses an invalid value here, where it is not taken for a lost answer
    try {
      return await this.#config.fetch(url, { redirect: 'error', ...init, headers })
    } catch (cause) {
      signal?.throwIfAborted()
      throw new ConnectionError(`${init.method ?? 'GET'} ${path}: no answer`, { cause })
    }
  }

  #deadline(signal: AbortSignal | undefined): AbortSignal {
    const timeout = AbortSignal.timeout(this.#config.timeoutMs)
    return signal ? AbortSignal.any([signal, timeout]) : timeout
  }

  /** Returns an access token. Concurrent callers share one request for a new one. */
  async #accessToken(signal: AbortSignal | undefined): Promise<string> {
    signal?.throwIfAborted()
    if (this.#config.accessToken) return this.#config.accessToken()
    if (this.#token && Date.now() < this.#token.renewAt) return this.#token.value
    this.#renewal ??= this.#renew().finally(() => (this.#renewal = undefined))
    return abortable(this.#renewal, signal)
  }

  async #renew(): Promise<string> {
    const { clientId, clientSecret, maxRetries } = this.#config
    const call = { method: 'POST', path: '/oauth2/token' }
    for (let attempt = 0; ; attempt++) {
      const began = Date.now() // it goes on while the computer sleeps
      try {
        const response = await this.#fetch(call.path, {
          method: call.method,
          headers: { Authorization: `Basic ${btoa(`${form(clientId)}:${form(clientSecret)}`)}` },
          body: new URLSearchParams({ grant_type: 'client_credentials' }),
          signal: this.#deadline(undefined),
        }, undefined)
        const { body } = await this.#answer(call, response)
        const { access_token: value, expires_in: seconds } = body as { access_token: string; expires_in: number }
        const lifetime = seconds * 1000
        this.#token = { value, renewAt: began + Math.max(lifetime - renewBeforeMs, lifetime / 2) }
        return value
      } catch (error) {
        const wait = this.retryDelay(error, attempt, { repeatable: true })
        if (wait === undefined || attempt >= maxRetries) throw error
        await sleep(wait)
      }
    }
  }

  #forget(token: string): void {
    if (this.#token?.value === token) this.#token = undefined
  }
}

/** Encodes a credential for the Basic scheme as RFC 6749 §2.3.1 wants it. */
function form(value = ''): string {
  return new URLSearchParams({ '': value }).toString().slice(1)
}

async function read(response: Response, signal?: AbortSignal): Promise<string> {
  try {
    return await response.text()
  } catch (cause) {
    signal?.throwIfAborted()
    throw new ConnectionError('the answer ended early', { cause })
  }
}

function parseJSON(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Waits. It rejects at once when the signal ends. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted()
    const stop = () => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop)
      resolve()
    }, ms)
    signal?.addEventListener('abort', stop, { once: true })
  })
}

/** Returns the promise's result, unless the signal ends before. The promise goes on. */
function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason)
    signal.addEventListener('abort', stop, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop))
  })
}
