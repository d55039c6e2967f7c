import { routes, type LoggedRequest, type operations } from './generated.js'
import { List, type Page } from './list.js'
import { follow, listen, type Delivery, type ListenOptions } from './listen.js'
import { sleep, Transport, type Config, type Reply } from './transport.js'

type Operation = keyof typeof routes
type JSONOf<R> = R extends { content: { 'application/json': infer Body } } ? Body : never
type Responses<O extends Operation> = operations[O]['responses']
type Success<O extends Operation> = JSONOf<Responses<O>[keyof Responses<O> & (200 | 201 | 202)]>
/** The `data` of an operation's successful answer. */
type Data<O extends Operation> = Success<O> extends { data: infer D } ? D : never
/** The body of an operation's request. */
type Body<O extends Operation> = operations[O] extends { requestBody?: { content: { 'application/json': infer B } } }
  ? B
  : never
type Path<O extends Operation> = operations[O]['parameters'] extends { path: infer P } ? P : Record<never, never>
type Query<O extends Operation> = operations[O]['parameters'] extends { query?: infer Q } ? Omit<NonNullable<Q>, 'cursor'> : never

/** Options of every call. */
export interface CallOptions {
  /** Ends the call, its retries included. */
  signal?: AbortSignal
}

/** Options of a call with an Idempotency-Key. */
export interface CreateOptions extends CallOptions {
  /** By default a random key: it covers the retries of this call. Choose it to repeat the call yourself. */
  idempotencyKey?: string
}

/** What an answer says beside its data. */
export interface Meta {
  status: number
  headers: Headers
  /** Identifies the request, for support and for getTrace. */
  traceId: string
  /** The answer to an earlier, identical request was repeated. */
  replayed: boolean
}

const metas = new WeakMap<object, Meta>()

/** Returns what the answer said beside the data that a method has returned. */
export function meta(data: object): Meta {
  const found = metas.get(data)
  if (!found) throw new TypeError('the value is not the data of an answer')
  return found
}

/** A request on the stream of tailRequests. */
export interface TailedRequest extends LoggedRequest {
  /** The position after this request, for `lastEventId` of a later call. */
  id: string
}

/** The name of the endpoint for Sites without one of their own. */
export const defaultEndpoint = 'default'

interface Request<O extends Operation> {
  path: Path<O>
  query?: object
  headers?: Record<string, string>
  body?: Body<O>
  repeatable?: boolean
  options?: CallOptions | undefined
}

/**
 * Calls the API. Methods have the names of the operations in the API reference, return the `data` of
 * an answer, and throw an ApiError for an error answer.
 *
 * The client gets and renews access tokens. It repeats a request that was refused by the rate limit.
 * It repeats one that was not answered, or answered with a fault of the service, only if a second
 * time has no further effect: reads, submission, validation, cancellation and retry of a batch,
 * resending of an invitation, revocation of a customer, cancellation of a payment intent, sign-up
 * and payment in the customer app, and calls with an Idempotency-Key, which it adds.
 */
export class Client {
  readonly #transport: Transport

  constructor(config: Config) {
    this.#transport = new Transport(config)
  }

  // Customers

  /** Lists the customers of a Site, newest invitation first. */
  listCustomers(siteId: string, filter: Query<'listCustomers'> = {}, options?: CallOptions): Pages<Data<'listCustomers'>> {
    return this.#list('listCustomers', { siteId }, filter, options)
  }

  /** Invites a customer. Deliver the `signupUrl` of the result. */
  createInvitation(siteId: string, body: Body<'createInvitation'>, options?: CreateOptions): Promise<Data<'createInvitation'>> {
    return this.#call('createInvitation', { path: { siteId }, body, options, ...keyed(options) })
  }

  /** Returns the newest link of a customer. */
  getCustomer(siteId: string, customerReference: string, options?: CallOptions): Promise<Data<'getCustomer'>> {
    return this.#call('getCustomer', { path: { siteId, customerReference }, options })
  }

  /** Returns a live invitation with its link again. */
  resendInvitation(siteId: string, customerReference: string, options?: CallOptions): Promise<Data<'resendInvitation'>> {
    return this.#call('resendInvitation', { path: { siteId, customerReference }, repeatable: true, options })
  }

  /** Revokes the newest link of a customer. */
  revokeCustomer(siteId: string, customerReference: string, options?: CallOptions): Promise<Data<'revokeCustomer'>> {
    return this.#call('revokeCustomer', { path: { siteId, customerReference }, repeatable: true, options })
  }

  // Batches

  /** Lists the batches of a Site without their rows, newest first. */
  listBatches(siteId: string, filter: Query<'listBatches'> = {}, options?: CallOptions): Pages<Data<'listBatches'>> {
    return this.#list('listBatches', { siteId }, filter, options)
  }

  /** Submits a batch. The same batch again returns the same receipt. */
  submitBatch(siteId: string, body: Body<'submitBatch'>, options?: CallOptions): Promise<Data<'submitBatch'>> {
    return this.#call('submitBatch', { path: { siteId }, body, repeatable: true, options })
  }

  /** Checks a batch without submitting it, and predicts the outcome of each row. */
  validateBatch(siteId: string, body: Body<'validateBatch'>, options?: CallOptions): Promise<Data<'validateBatch'>> {
    return this.#call('validateBatch', { path: { siteId }, body, repeatable: true, options })
  }

  /** Returns a batch with its rows. */
  getBatch(siteId: string, batchReference: string, options?: CallOptions): Promise<Data<'getBatch'>> {
    return this.#call('getBatch', { path: { siteId, batchReference }, options })
  }

  /** Waits until a batch is settled, by long polls. */
  async waitForBatch(siteId: string, batchReference: string, options?: CallOptions): Promise<Data<'getBatch'>> {
    for await (const batch of this.#poll('getBatch', { siteId, batchReference }, options)) {
      if (batch.state === 'settled') return batch
    }
    throw new Error('unreachable')
  }

  /** Yields a batch each time it has changed, until it is settled. */
  async *watchBatch(
    siteId: string,
    batchReference: string,
    options?: CallOptions,
  ): AsyncGenerator<Data<'getBatch'>, void, undefined> {
    for await (const batch of this.#poll('getBatch', { siteId, batchReference }, options, true)) {
      yield batch
      if (batch.state === 'settled') return
    }
  }

  /** Returns the rows of a batch as CSV, with a header line. */
  getBatchRows(siteId: string, batchReference: string, options?: CallOptions): Promise<string> {
    return this.#text('getBatchRows', { path: { siteId, batchReference }, options })
  }

  /** Cancels the rows of a batch that are neither settled nor in doubt. */
  cancelBatch(siteId: string, batchReference: string, options?: CallOptions): Promise<Data<'cancelBatch'>> {
    return this.#call('cancelBatch', { path: { siteId, batchReference }, repeatable: true, options })
  }

  /** Submits the failed rows of a batch that may succeed later as a new batch. */
  retryBatch(
    siteId: string,
    batchReference: string,
    body: Body<'retryBatch'>,
    options?: CallOptions,
  ): Promise<Data<'retryBatch'>> {
    return this.#call('retryBatch', { path: { siteId, batchReference }, body, repeatable: true, options })
  }

  // Movements and traces

  /** Lists what moved money of a Site, newest first. The first page has the totals. */
  listMovements(siteId: string, filter: Query<'listMovements'> = {}, options?: CallOptions): Pages<Data<'listMovements'>> {
    return this.#list('listMovements', { siteId }, filter, options)
  }

  /** Returns the movements of a range as CSV, with a header line. */
  exportMovements(siteId: string, filter: Query<'listMovements'> = {}, options?: CallOptions): Promise<string> {
    return this.#text('listMovements', { path: { siteId }, query: filter, headers: { Accept: 'text/csv' }, options })
  }

  /** Returns what a request stored, and what that led to. */
  getTrace(traceId: string, options?: CallOptions): Promise<Data<'getTrace'>> {
    return this.#call('getTrace', { path: { traceId }, options })
  }

  // Checkout

  /** Lists the payment intents of a Site, newest first. */
  listPaymentIntents(
    siteId: string,
    filter: Query<'listPaymentIntents'> = {},
    options?: CallOptions,
  ): Pages<Data<'listPaymentIntents'>> {
    return this.#list('listPaymentIntents', { siteId }, filter, options)
  }

  /** Creates a payment intent with its QR code. */
  createPaymentIntent(
    siteId: string,
    body: Body<'createPaymentIntent'>,
    options?: CreateOptions,
  ): Promise<Data<'createPaymentIntent'>> {
    return this.#call('createPaymentIntent', { path: { siteId }, body, options, ...keyed(options) })
  }

  /** Returns a payment intent. */
  getPaymentIntent(siteId: string, paymentIntentId: string, options?: CallOptions): Promise<Data<'getPaymentIntent'>> {
    return this.#call('getPaymentIntent', { path: { siteId, paymentIntentId }, options })
  }

  /** Waits until a payment intent is final, by long polls. */
  async waitForPaymentIntent(
    siteId: string,
    paymentIntentId: string,
    options?: CallOptions,
  ): Promise<Data<'getPaymentIntent'>> {
    for await (const intent of this.#poll('getPaymentIntent', { siteId, paymentIntentId }, options)) {
      if (intent.state === 'final') return intent
    }
    throw new Error('unreachable')
  }

  /** Cancels a payment intent that no customer has begun to pay. */
  cancelPaymentIntent(
    siteId: string,
    paymentIntentId: string,
    options?: CallOptions,
  ): Promise<Data<'cancelPaymentIntent'>> {
    return this.#call('cancelPaymentIntent', { path: { siteId, paymentIntentId }, repeatable: true, options })
  }

  // Webhooks. An endpoint is `default` or a siteId.

  /** Lists the endpoints of the organisation. */
  async listWebhookEndpoints(options?: CallOptions): Promise<Data<'listWebhookEndpoints'>['items']> {
    return (await this.#call('listWebhookEndpoints', { path: {}, options })).items
  }

  /** Returns an endpoint. */
  getWebhookEndpoint(endpoint: string, options?: CallOptions): Promise<Data<'getDefaultWebhookEndpoint'>> {
    return this.#call('getSiteWebhookEndpoint', { path: { siteId: endpoint }, options })
  }

  /**
   * Configures an endpoint. Only the organisation's first one returns the `secret` that signs all
   * webhooks, so that a call that was not answered is not repeated.
   */
  putWebhookEndpoint(
    endpoint: string,
    body: Body<'putDefaultWebhookEndpoint'>,
    options?: CallOptions,
  ): Promise<Data<'getDefaultWebhookEndpoint'> & { secret?: string }> {
    return this.#call('putSiteWebhookEndpoint', { path: { siteId: endpoint }, body, repeatable: false, options })
  }

  /** Removes an endpoint. */
  async deleteWebhookEndpoint(endpoint: string, options?: CallOptions): Promise<void> {
    await this.#call('deleteSiteWebhookEndpoint', { path: { siteId: endpoint }, repeatable: false, options })
  }

  /** Sends a signed test event to an endpoint, and returns the attempt. */
  testWebhookEndpoint(endpoint: string, options?: CallOptions): Promise<Data<'testDefaultWebhookEndpoint'>> {
    return this.#call('testSiteWebhookEndpoint', { path: { siteId: endpoint }, options })
  }

  /** Creates the next secret. */
  rotateWebhookSecret(
    body: Body<'rotateWebhookSecret'> = {},
    options?: CallOptions,
  ): Promise<Data<'rotateWebhookSecret'>> {
    return this.#call('rotateWebhookSecret', { path: {}, body, options })
  }

  /** Lists the events of the organisation, newest first. */
  listWebhookEvents(filter: Query<'listWebhookEvents'> = {}, options?: CallOptions): Pages<Data<'listWebhookEvents'>> {
    return this.#list('listWebhookEvents', {}, filter, options)
  }

  /** Returns an event with its body and every attempt. */
  getWebhookEvent(idempotencyKey: string, options?: CallOptions): Promise<Data<'getWebhookEvent'>> {
    return this.#call('getWebhookEvent', { path: { idempotencyKey }, options })
  }

  /** Has an event delivered again. A call that was not answered is not repeated. */
  redeliverWebhookEvent(idempotencyKey: string, options?: CallOptions): Promise<Data<'redeliverWebhookEvent'>> {
    return this.#call('redeliverWebhookEvent', { path: { idempotencyKey }, repeatable: false, options })
  }

  /** Has the events that match a filter delivered again. A call that was not answered is not repeated. */
  redeliverWebhookEvents(
    body: Body<'redeliverWebhookEvents'>,
    options?: CallOptions,
  ): Promise<Data<'redeliverWebhookEvents'>> {
    return this.#call('redeliverWebhookEvents', { path: {}, body, repeatable: false, options })
  }

  /**
   * Streams the organisation's webhooks, for development. A broken stream continues by itself. The
   * stream ends with the loop over it, or with its signal.
   */
  listen(options: ListenOptions = {}): AsyncGenerator<Delivery, void, undefined> {
    return listen(this.#transport, options)
  }

  // The customer app's backend, with the credentials of its own client

  /** Returns an invitation. */
  getSignup(token: string, options?: CallOptions): Promise<Data<'getSignup'>> {
    return this.#call('getSignup', { path: { token }, options })
  }

  /** Completes a sign-up. The same customer again gets the same answer. */
  completeSignup(token: string, body: Body<'completeSignup'>, options?: CallOptions): Promise<Data<'completeSignup'>> {
    return this.#call('completeSignup', { path: { token }, body, repeatable: true, options })
  }

  /** Ends a link for the customer. */
  revokeLink(linkId: string, options?: CallOptions): Promise<Data<'revokeLink'>> {
    return this.#call('revokeLink', { path: { linkId }, options })
  }

  /** Returns the payment intent behind a QR code. */
  getPayableIntent(code: string, options?: CallOptions): Promise<Data<'getPayableIntent'>> {
    return this.#call('getPayableIntent', { path: { code }, options })
  }

  /** Begins to pay. The same customer again gets the same answer. */
  payIntent(code: string, body: Body<'payIntent'>, options?: CallOptions): Promise<Data<'payIntent'>> {
    return this.#call('payIntent', { path: { code }, body, repeatable: true, options })
  }

  // Sandbox

  /** Lets a customer accept the newest invitation. */
  signUpInSandbox(
    siteId: string,
    customerReference: string,
    body: Body<'signUpInSandbox'> = {},
    options?: CallOptions,
  ): Promise<Data<'signUpInSandbox'>> {
    return this.#call('signUpInSandbox', { path: { siteId, customerReference }, body, options })
  }

  /** Lets a customer scan and pay a payment intent. */
  payInSandbox(
    paymentIntentId: string,
    body: Body<'payInSandbox'> = {},
    options?: CallOptions,
  ): Promise<Data<'payInSandbox'>> {
    return this.#call('payInSandbox', { path: { paymentIntentId }, body, options })
  }

  /**
   * Lists the organisation's latest requests to a sandbox, newest first. `tailRequests` continues after the list with
   * its `position`. Each server process has a log of its own.
   */
  listRequests(filter: Query<'listRequests'> = {}, options?: CallOptions): Promise<Data<'listRequests'>> {
    return this.#call('listRequests', { path: {}, query: filter, options })
  }

  /**
   * Streams the organisation's requests to a sandbox as they are answered. A broken stream continues by itself. The
   * stream ends with the loop over it, or with its signal.
   */
  tailRequests(
    filter: Omit<Query<'listRequests'>, 'limit'> = {},
    options: ListenOptions = {},
  ): AsyncGenerator<TailedRequest, void, undefined> {
    return follow<TailedRequest>(this.#transport, routes.listRequests[1] + query(filter), options)
  }

  /** Returns the service's time. Only under `svc dev`. */
  readClock(options?: CallOptions): Promise<Data<'readClock'>> {
    return this.#call('readClock', { path: {}, options })
  }

  /** Moves the service's time forward. Only under `svc dev`. */
  moveClock(body: Body<'moveClock'>, options?: CallOptions): Promise<Data<'moveClock'>> {
    return this.#call('moveClock', { path: {}, body, options })
  }

  async #call<O extends Operation>(operation: O, request: Request<O>): Promise<Data<O>> {
    const reply = await this.#send(operation, request)
    return dataOf<Data<O>>(reply)
  }

  async #text<O extends Operation>(operation: O, request: Request<O>): Promise<string> {
    return String((await this.#send(operation, request)).body)
  }

  #send<O extends Operation>(operation: O, request: Request<O>): Promise<Reply> {
    const [method, template] = routes[operation]
    return this.#transport.send({
      method,
      path: fill(template, request.path as Record<string, string>) + query(request.query),
      headers: request.headers ?? {},
      body: request.body,
      repeatable: request.repeatable ?? method === 'GET',
      signal: request.options?.signal,
    })
  }

  #list<O extends Operation>(operation: O, path: Path<O>, filter: object, options?: CallOptions): Pages<Data<O> & Page<unknown>> {
    return new List(async (href) => {
      const reply =
        href === undefined
          ? await this.#send(operation, { path, query: filter, options })
          : await this.#transport.send({
              method: 'GET',
              path: this.#transport.pathOf(href),
              repeatable: true,
              signal: options?.signal,
            })
      return dataOf<Data<O> & Page<unknown>>(reply)
    }) as Pages<Data<O> & Page<unknown>>
  }

  /**
   * Yields the answers of long polls, without end. With `changes` an answer comes when the data has
   * changed, and otherwise when it is final.
   */
  async *#poll<O extends 'getBatch' | 'getPaymentIntent'>(
    operation: O,
    path: Path<O>,
    options?: CallOptions,
    changes = false,
  ): AsyncGenerator<Data<O>> {
    const seconds = this.#transport.longPoll
    const wait: Record<string, string> = seconds > 0 ? { Prefer: `wait=${seconds}` } : {}
    let headers: Record<string, string> = changes ? {} : wait
    for (let first = changes; ; first = false) {
      const reply = await this.#send(operation, { path, headers, options })
      if (reply.status !== 304) yield dataOf<Data<O>>(reply)
      if (!first && !reply.headers.has('Preference-Applied')) {
        // The service did not wait, or was not asked to.
        await sleep(pollDelayMs(reply.headers), options?.signal)
      }
      const etag = reply.headers.get('ETag')
      headers = changes && etag !== null ? { ...wait, 'If-None-Match': etag } : wait
    }
  }
}

type Pages<P> = P extends Page<unknown> ? List<P['items'][number], P> : never

/** Returns the wait that a poll's answer asks for: at least 1 s, which also replaces a date, and at most 60 s. */
function pollDelayMs(headers: Headers): number {
  const seconds = Number(headers.get('Retry-After'))
  return 1000 * Math.min(Math.max(seconds || 1, 1), 60)
}

function keyed(options?: CreateOptions): { headers: Record<string, string>; repeatable: true } {
  return { headers: { 'Idempotency-Key': options?.idempotencyKey ?? crypto.randomUUID() }, repeatable: true }
}

function dataOf<D>(reply: Reply): D {
  const { data, traceId } = reply.body as { data: D & object; traceId: string }
  const { status, headers } = reply
  metas.set(data, { status, headers, traceId, replayed: headers.get('Idempotent-Replayed') === 'true' })
  return data
}

/** Fills in the parameters of a path. */
function fill(template: string, parameters: Record<string, string>): string {
  return template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = parameters[name] ?? ''
    // A URL drops such segments, so that the request would go to another path.
    if (value === '' || value === '.' || value === '..') throw new TypeError(`${name} must not be ${JSON.stringify(value)}`)
    return encodeURIComponent(value)
  })
}

function query(filter: object = {}): string {
  const set = Object.entries(filter).filter(([, value]) => value !== undefined)
  return set.length === 0 ? '' : '?' + new URLSearchParams(set.map(([name, value]) => [name, String(value)])).toString()
}
