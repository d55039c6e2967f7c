import { ApiError, ConnectionError } from './errors.js'
import { sleep, type Transport } from './transport.js'

/** A webhook on the stream, as an endpoint would get it. */
export interface Delivery {
  /** The position after this event, for `lastEventId` of a later call. */
  id: string
  /** The headers, with the signatures if the organisation has a secret. */
  headers: Record<string, string>
  /** The signed bytes. */
  body: string
}

/** Options of a stream. */
export interface ListenOptions {
  /** Continues after this event. That of a webhook is of the last 24 hours. */
  lastEventId?: string
  /** Ends the stream. */
  signal?: AbortSignal
}

/** The service sends a heartbeat every 10 s. A stream that is silent for longer is broken. */
const idleMs = 45_000

/** Streams deliveries. A broken stream continues after the last one. */
export function listen(transport: Transport, options: ListenOptions): AsyncGenerator<Delivery, void, undefined> {
  return follow<Delivery>(transport, '/webhooks/listen', options)
}

/** Streams the events of a path, each with its id. A broken stream continues after the last one. */
export async function* follow<T extends { id: string }>(
  transport: Transport,
  path: string,
  options: ListenOptions,
): AsyncGenerator<T, void, undefined> {
  const { signal } = options
  let last = options.lastEventId
  let renewed = false // the token, since the last accepted connection
  for (let failures = 0; ; failures++) {
    let broken: unknown = new ConnectionError('the stream has ended')
    const connection = new AbortController()
    const stop = () => connection.abort(signal?.reason)
    signal?.addEventListener('abort', stop, { once: true })
    try {
      signal?.throwIfAborted()
      const headers: Record<string, string> = last === undefined ? {} : { 'Last-Event-ID': last }
      const stream = await transport.stream(path, headers, connection.signal)
      renewed = false
      for await (const event of events(stream, connection)) {
        if (event.data !== undefined) {
          yield { ...JSON.parse(event.data), id: event.id ?? last ?? '' } as T
        }
        // The event that opens a stream repeats the position. A later one shows that the stream works.
        if (event.id === undefined || event.id !== last) failures = 0
        last = event.id ?? last
      }
    } catch (error) {
      signal?.throwIfAborted()
      broken = error
    } finally {
      signal?.removeEventListener('abort', stop)
      connection.abort() // also when the caller leaves the loop
    }
    if (broken instanceof ApiError && broken.status === 401 && !renewed) {
      renewed = true // the next connection has a new token
      continue
    }
    const wait = transport.retryDelay(broken, failures, { repeatable: true })
    if (wait === undefined) throw broken // a new connection would not mend it
    await sleep(wait, signal)
  }
}

interface ServerSentEvent {
  id?: string
  data?: string
}

/** Parses server-sent events. It aborts the connection when the stream is silent for too long. */
async function* events(stream: ReadableStream<Uint8Array>, connection: AbortController): AsyncGenerator<ServerSentEvent> {
  const reader = stream.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader()
  let buffer = ''
  let event: ServerSentEvent = {}
  for (;;) {
    const { done, value } = await readInTime(reader, connection)
    if (done) return // an event that is not complete is dropped
    buffer += value
    const lines = buffer.split(/\r\n|\n|\r(?!$)/)
    buffer = lines.pop() ?? ''
    for (const line of lines) {
      if (line === '') {
        yield event
        event = {}
        continue
      }
      const [, name, text = ''] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? []
      if (name === 'id') event.id = text
      if (name === 'data') event.data = event.data === undefined ? text : `${event.data}\n${text}`
    }
  }
}

async function readInTime(
  reader: ReadableStreamDefaultReader<string>,
  connection: AbortController,
): Promise<ReadableStreamReadResult<string>> {
  const timer = setTimeout(() => connection.abort(), idleMs)
  try {
    return await reader.read()
  } catch (cause) {
    throw new ConnectionError('the stream is broken', { cause })
  } finally {
    clearTimeout(timer)
  }
}
