import { SignatureError } from './errors.js'
import type { components } from './generated.js'

type Schemas = components['schemas']

interface Common {
  /** The same on every attempt and redelivery of an event. Ignore a key that you have processed. */
  idempotencyKey: string
  siteId: string
  /** The traceId of the request that created the subject. */
  traceId: string
  /** A test of the endpoint: its payment intent does not exist. */
  test: boolean
}

/** A webhook event, told apart by its type. */
export type Event = Common &
  (
    | { type: 'transactionStatus'; data: Schemas['TransactionStatusPushRequest'] }
    | { type: 'batchSettled'; data: Schemas['BatchSettledEvent'] }
    | { type: 'rowCorrected'; data: Schemas['RowCorrectedEvent'] }
    | { type: Schemas['CustomerEventType']; data: Schemas['CustomerEvent'] }
    /** A type that this version of the client does not know. */
    | { type: 'unknown'; name: string; data: Record<string, unknown> }
  )

/** The headers of a request: of fetch, or of Node's IncomingMessage. */
export type HeaderSource = Headers | Record<string, string | string[] | undefined>

/** What verifies a webhook. */
export interface Verification {
  /** The secrets as the service showed them, with `whsec_`. During a rotation there are two. */
  secrets: string | readonly string[]
  /**
   * `standard`: webhook-signature, which covers the time of the attempt; the default. `svc`:
   * x-svc-signature, which covers the body alone.
   */
  scheme?: 'standard' | 'svc'
  /** The maximum age of an attempt in seconds, with the scheme `standard`; by default 300. */
  toleranceSeconds?: number
}

const encoder = new TextEncoder()

/** The maximum size of a body that the handlers read. */
const maxBody = 1 << 20

/**
 * Verifies a webhook and decodes it. `body` is the body as it came: a parsed and serialised one has
 * other bytes. It throws a SignatureError for what the service has not signed.
 */
export async function parseEvent(
  headers: HeaderSource,
  body: string | Uint8Array,
  verification: Verification,
): Promise<Event> {
  const bytes = typeof body === 'string' ? encoder.encode(body) : body
  await verify(headers, bytes, verification)
  const { type = 'transactionStatus', data, traceId, test } = JSON.parse(
    new TextDecoder('utf-8', { fatal: true }).decode(bytes),
  )
  const known = ['transactionStatus', 'batchSettled', 'rowCorrected', 'customerLinked', 'customerRevoked', 'customerExpired']
  const common = {
    idempotencyKey: data?.idempotencyKey,
    siteId: data?.siteId?.id,
    traceId,
    test: test === true,
    data,
  }
  return known.includes(type) ? { ...common, type } : { ...common, type: 'unknown', name: String(type) }
}

async function verify(headers: HeaderSource, body: Uint8Array, v: Verification): Promise<void> {
  const secrets = typeof v.secrets === 'string' ? [v.secrets] : v.secrets
  for (const secret of secrets) {
    if (
      v.scheme === 'svc'
        ? await verifySignature(secret, header(headers, 'x-svc-signature'), body)
        : await verifyStandardSignature(secret, headers, body, v.toleranceSeconds)
    ) {
      return
    }
  }
  throw new SignatureError('the signature does not match the body, or the attempt is too old')
}

/**
 * Reports whether `signature`, the value of x-svc-signature, is that of the body under the secret. A
 * secret without a key signs nothing.
 */
export async function verifySignature(secret: string, signature: string, body: string | Uint8Array): Promise<boolean> {
  if (!secretKey(secret)?.length) return false
  return matches(encoder.encode(secret), signature, body)
}

/**
 * Reports whether webhook-signature has a signature of the body under the secret, and the attempt is
 * at most `toleranceSeconds` old.
 */
export async function verifyStandardSignature(
  secret: string,
  headers: HeaderSource,
  body: string | Uint8Array,
  toleranceSeconds = 300,
): Promise<boolean> {
  const id = header(headers, 'webhook-id')
  const timestamp = header(headers, 'webhook-timestamp')
  const age = Math.abs(Date.now() / 1000 - Number(timestamp))
  if (!/^[0-9]+$/.test(timestamp) || !(age <= toleranceSeconds)) return false
  const key = secretKey(secret)
  const prefix = encoder.encode(`${id}.${timestamp}.`)
  const bytes = typeof body === 'string' ? encoder.encode(body) : body
  const signed = new Uint8Array(prefix.length + bytes.length)
  signed.set(prefix)
  signed.set(bytes, prefix.length)
  let found = false
  for (const signature of header(headers, 'webhook-signature').split(' ')) {
    const [scheme, value = ''] = signature.split(',', 2)
    if (scheme === 'v1' && key && (await matches(key, value, signed))) found = true
  }
  return found
}

/** Compares in constant time: WebCrypto verifies the code. */
async function matches(key: Uint8Array, signature: string, body: string | Uint8Array): Promise<boolean> {
  const mac = base64(signature)
  if (!mac || key.length === 0) return false
  const algorithm = { name: 'HMAC', hash: 'SHA-256' }
  const imported = await crypto.subtle.importKey('raw', key as BufferSource, algorithm, false, ['verify'])
  const bytes = typeof body === 'string' ? encoder.encode(body) : body
  return crypto.subtle.verify('HMAC', imported, mac as BufferSource, bytes as BufferSource)
}

/** Decodes the key of a secret, undefined if it is not base64. */
function secretKey(secret: string): Uint8Array | undefined {
  return base64(secret.replace(/^whsec_/, ''))
}

/** Decodes standard base64, undefined if it is not. */
function base64(text: string): Uint8Array | undefined {
  if (!/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text)) return undefined
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0))
}

function header(headers: HeaderSource, name: string): string {
  if (headers instanceof Headers) return headers.get(name) ?? ''
  const key = Object.keys(headers).find((k) => k.toLowerCase() === name)
  const value = key === undefined ? undefined : headers[key]
  return (Array.isArray(value) ? value[0] : value) ?? ''
}

/** Processes an event. The service sends an event again until it returns. */
export type EventHandler = (event: Event) => void | Promise<void>

/** What a receiver verifies with, and where it reports. */
export interface ReceiverOptions extends Verification {
  /** Gets what the handler throws, and why a webhook was refused; by default console.error. */
  onError?: (error: unknown) => void
}

/**
 * Returns a receiver of webhooks for servers with fetch's Request and Response. It answers 204 once
 * the handler has returned, 500 if the handler throws, and 401 to what the service has not signed.
 */
export function webhookHandler(options: ReceiverOptions, handle: EventHandler): (request: Request) => Promise<Response> {
  return async (request) => {
    const body = request.body as AsyncIterable<Uint8Array> | null
    return new Response(null, { status: await receive(options, handle, request.headers, body ?? nothing()) })
  }
}

/** The parts of Node's IncomingMessage that nodeWebhookHandler uses. */
export type NodeRequest = AsyncIterable<Uint8Array> & { headers: Record<string, string | string[] | undefined> }

/** The parts of Node's ServerResponse that nodeWebhookHandler uses. */
export interface NodeResponse {
  statusCode: number
  end(): unknown
}

/** Returns a receiver of webhooks for node:http and frameworks on it, in front of their body parser. */
export function nodeWebhookHandler(
  options: ReceiverOptions,
  handle: EventHandler,
): (request: NodeRequest, response: NodeResponse) => Promise<void> {
  return async (request, response) => {
    response.statusCode = await receive(options, handle, request.headers, request)
    response.end()
  }
}

/** Returns the status of the answer. */
async function receive(
  options: ReceiverOptions,
  handle: EventHandler,
  headers: HeaderSource,
  body: AsyncIterable<Uint8Array>,
): Promise<number> {
  const report = options.onError ?? ((error: unknown) => console.error(error))
  let event: Event
  try {
    event = await parseEvent(headers, await collect(body), options)
  } catch (error) {
    report(error)
    return error instanceof SignatureError ? 401 : 400
  }
  try {
    await handle(event)
    return 204
  } catch (error) {
    report(error)
    return 500
  }
}

async function collect(body: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of body) {
    size += chunk.length
    if (size > maxBody) throw new RangeError('the body is too large')
    chunks.push(chunk)
  }
  const whole = new Uint8Array(size)
  let at = 0
  for (const chunk of chunks) {
    whole.set(chunk, at)
    at += chunk.length
  }
  return whole
}

async function* nothing(): AsyncGenerator<Uint8Array> {}
