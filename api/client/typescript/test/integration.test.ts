// Plays a partner, the customer app and the operator of an endpoint against a running svc dev whose
// sandbox.json SANDBOX_FILE names. The data is that of a fresh one.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test, type TestContext } from 'node:test'
import { ApiError, Client, defaultEndpoint, meta, nodeWebhookHandler, parseEvent, type Event } from '../src/index.js'
import { routes } from '../src/generated.js'

interface Sandbox {
  baseUrl: string
  organisations: { clientId: string; clientSecret: string; sites: { siteId: string }[] }[]
  customerApp: { clientId: string; clientSecret: string }
}

const file = process.env['SANDBOX_FILE']

test('the client covers every operation', { skip: file ? false : 'SANDBOX_FILE is not set', timeout: 300_000 }, async (t) => {
  const sandbox: Sandbox = JSON.parse(await readFile(file!, 'utf8'))
  const called = new Set<string>()
  const recorded: typeof fetch = (input, init) => {
    const { pathname } = new URL(String(input))
    for (const [operation, [method, path]] of Object.entries(routes)) {
      const pattern = new RegExp(`^${path.replace(/\{\w+\}/g, '[^/]+')}$`)
      if (method === (init?.method ?? 'GET') && pattern.test(pathname)) called.add(operation)
    }
    return fetch(input, init)
  }
  const { baseUrl } = sandbox
  const { clientId, clientSecret, sites } = sandbox.organisations[1]!
  const client = new Client({ baseUrl, clientId, clientSecret, fetch: recorded })
  const app = new Client({ baseUrl, ...sandbox.customerApp, fetch: recorded })
  const site = sites[0]!.siteId

  const { received, secret } = await testEndpoints(t, client, site)
  const stop = new AbortController()
  t.after(() => stop.abort())
  const deliveries = client.listen({ signal: stop.signal })
  const first = deliveries.next() // connects; events from now on arrive
  await testCustomers(client, app, site)
  await testBatches(client, site)
  await testPayments(client, app, site)
  const delivery = (await first).value
  assert(delivery)
  const streamed = await parseEvent(delivery.headers, delivery.body, { secrets: secret, scheme: 'svc' })
  assert(streamed.idempotencyKey)
  await deliveries.return()
  await testEvents(client, site, received)
  await testRequests(client)
  await testClock(client)

  const missing = Object.keys(routes).filter((operation) => !called.has(operation))
  assert.deepEqual(missing, [])
})

async function testRequests(client: Client) {
  const { items, position } = await client.listRequests({ limit: 5, path: '/webhooks/' })
  assert.equal(items.length, 5)
  assert.equal(items[0]!.route.startsWith('/webhooks/'), true)
  const requests = client.tailRequests({ method: 'GET', status: '4xx' }, { lastEventId: position })
  await assert.rejects(client.getTrace('0'.repeat(32)), { status: 404 })
  const { value } = await requests.next()
  assert.deepEqual([value?.route, value?.status, value?.errorCode], [
    '/traces/{traceId}', 404, 'urn:svc:platform:billing:error:requests:trace-not-found'])
  await requests.return()
}

async function testEndpoints(t: TestContext, client: Client, site: string) {
  const received: Event[] = []
  let secret = ''
  let arrived = () => {}
  const server = createServer((request, response) =>
    nodeWebhookHandler({ secrets: secret }, (event) => {
      received.push(event)
      arrived()
    })(request, response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const events = ['transactionStatus', 'batchSettled', 'customerLinked'] as const
  const endpoint = await client.putWebhookEndpoint(defaultEndpoint, { url, events: [...events] })
  secret = endpoint.secret ?? ''
  assert(secret.startsWith('whsec_'))
  assert.deepEqual((await client.getWebhookEndpoint(defaultEndpoint)).events, events)
  assert.equal((await client.putWebhookEndpoint(site, { url })).secret, undefined)
  assert.equal((await client.getWebhookEndpoint(site)).url, url)
  assert.equal((await client.testWebhookEndpoint(site)).status, 'delivered')
  assert.equal((await client.testWebhookEndpoint(defaultEndpoint)).status, 'delivered')
  assert.deepEqual(received.map((e) => e.test), [true, true])
  assert.equal((await client.listWebhookEndpoints()).length, 2)
  await client.deleteWebhookEndpoint(site)
  await assert.rejects(client.getWebhookEndpoint(site), (e: ApiError) => e.has('webhooks:endpoint-not-found'))

  /** Waits until an event has arrived that the caller looks for. */
  const find = async (wanted: (event: Event) => boolean): Promise<Event> => {
    for (;;) {
      const found = received.find(wanted)
      if (found) return found
      await new Promise<void>((resolve, reject) => {
        arrived = resolve
        setTimeout(() => reject(new Error('the event does not arrive')), 120_000).unref()
      })
    }
  }
  return { received: find, secret }
}

async function testCustomers(client: Client, app: Client, site: string) {
  const invitation = await client.createInvitation(site, { customerReference: 'a/b ü' }, { idempotencyKey: 'once' })
  const again = await client.createInvitation(site, { customerReference: 'a/b ü' }, { idempotencyKey: 'once' })
  assert.deepEqual([again, meta(again).replayed, meta(invitation).replayed], [invitation, true, false])
  assert.deepEqual(await client.resendInvitation(site, 'a/b ü'), invitation)
  await assert.rejects(client.createInvitation(site, { customerReference: 'a/b ü' }), (e: ApiError) =>
    e.status === 409 && e.has('invitations:customer-reference-active') && e.reasons[0]?.target === 'customerReference')
  assert.equal((await client.signUpInSandbox(site, 'a/b ü')).state, 'linked')
  assert.equal((await client.getTrace(meta(invitation).traceId)).customer?.state, 'linked')

  await client.createInvitation(site, { customerReference: 'poor' })
  await client.signUpInSandbox(site, 'poor', { behaviour: 'insufficientFunds' })
  await client.createInvitation(site, { customerReference: 'gone' })
  assert.equal((await client.revokeCustomer(site, 'gone')).state, 'revoked')
  assert.equal((await client.getCustomer(site, 'gone')).state, 'revoked')

  const { signupUrl } = await client.createInvitation(site, { customerReference: 'app' })
  const token = signupUrl.split('/').at(-1)!
  assert.equal((await app.getSignup(token)).state, 'invited')
  const linked = await app.completeSignup(token, { customerId: 'c-1', agreementId: 'a-1' })
  assert.equal((await app.revokeLink(linked.linkId)).state, 'revoked')

  const list = client.listCustomers(site, { limit: 2 })
  assert.deepEqual((await list.toArray()).map((c) => c.customerReference), ['app', 'gone', 'poor', 'a/b ü'])
  assert.equal((await list.firstPage()).totalItems, 4)
  assert.equal((await client.listCustomers(site, { state: 'linked' }).toArray()).length, 2)
}

async function testBatches(client: Client, site: string) {
  const batchReference = '2026/11 #7+é'
  const rows = [
    { customerReference: 'a/b ü', rowReference: '1', amount: 1250 },
    { customerReference: 'poor', rowReference: '2', amount: 900 },
  ]
  const predicted = await client.validateBatch(site, { batchReference, rows })
  assert.deepEqual(predicted.rows.map((r) => r.prediction), ['succeeded', 'succeeded'])
  const receipt = await client.submitBatch(site, { batchReference, rows })
  assert.equal(receipt.totalAmount, 2150)
  const states: string[] = []
  for await (const batch of client.watchBatch(site, batchReference)) states.push(batch.state)
  assert.equal(states.at(-1), 'settled')
  const settled = await client.waitForBatch(site, batchReference)
  assert.deepEqual(settled.rows.map((r) => r.outcome), ['succeeded', 'insufficientFunds'])
  assert.equal((await client.getBatch(site, batchReference)).succeededAmount, 1250)
  assert.match(await client.getBatchRows(site, batchReference), /^rowReference,.*\r\n1,a\/b ü,1250,settled,succeeded,/)
  assert.equal((await client.cancelBatch(site, batchReference)).state, 'settled')
  await assert.rejects(client.submitBatch(site, { batchReference, rows: rows.slice(1) }), (e: ApiError) =>
    e.has('batches:batch-reference-conflict'))
  assert.equal((await client.retryBatch(site, batchReference, { batchReference: 'again' })).rowCount, 1)
  assert.equal((await client.waitForBatch(site, 'again')).retryOf, batchReference)
  const references = (await client.listBatches(site).toArray()).map((b) => b.batchReference)
  assert.deepEqual(references, ['again', batchReference])
}

async function testPayments(client: Client, app: Client, site: string) {
  await assert.rejects(client.createPaymentIntent(site, { amount: 0 }), (e: ApiError) =>
    e.status === 400 && e.reasons[0]?.message === 'amount must be greater than 0' && !!e.traceId)
  const lineItems = [{ itemId: 'tea', quantity: 2, amountPerUnit: 475, amountSubtotal: 950 }]
  const created = await client.createPaymentIntent(site, { amount: 950, orderId: 'order', lineItems })
  const discounts = [{ lineItemIndex: 0, amount: 50, reason: 'Loyalty' }]
  const { transactionId } = await client.payInSandbox(created.paymentIntentId, { discounts })
  const paid = await client.waitForPaymentIntent(site, created.paymentIntentId)
  assert.deepEqual([paid.transactionStatus, paid.transactionId, paid.amountPaid], ['Settled', transactionId, 900])

  const other = await client.createPaymentIntent(site, { amount: 1, qrCodeFormat: 'text' })
  const code = other.qrCode.split('/').at(-1)!
  assert.equal((await app.getPayableIntent(code)).amount, 1)
  assert.equal((await client.cancelPaymentIntent(site, other.paymentIntentId)).transactionStatus, 'Cancelled')
  assert.equal((await client.getPaymentIntent(site, other.paymentIntentId)).state, 'final')
  const third = await client.createPaymentIntent(site, { amount: 2, qrCodeFormat: 'text' })
  await app.payIntent(third.qrCode.split('/').at(-1)!, { customerId: 'c-1', agreementId: 'a-1' })
  assert.equal((await client.waitForPaymentIntent(site, third.paymentIntentId)).transactionStatus, 'Settled')
  assert.equal((await client.listPaymentIntents(site, { transactionStatus: 'Settled' }).toArray()).length, 2)

  const totals = await client.listMovements(site).firstPage()
  assert.deepEqual([totals.totalItems, totals.totalAmount], [3, 2152])
  assert.match(await client.exportMovements(site), /^movementId,at,amount/)
}

async function testEvents(client: Client, site: string, received: (wanted: (e: Event) => boolean) => Promise<Event>) {
  const settled = await received((e) => e.type === 'transactionStatus' && e.data.orderId === 'order')
  assert(settled.type === 'transactionStatus' && settled.data.lineItems?.[0]?.discounts?.[0]?.reason === 'Loyalty')
  const batch = await received((e) => e.type === 'batchSettled' && e.data.batch.batchReference !== 'again')
  assert(batch.type === 'batchSettled' && batch.data.batch.counts.failed === 1)
  const linked = await received((e) => e.type === 'customerLinked')
  assert(linked.type === 'customerLinked' && linked.data.customer.state === 'linked')
  const detail = await client.getWebhookEvent(settled.idempotencyKey)
  assert.deepEqual([detail.siteId, detail.transactionStatus], [site, 'Settled'])
  const events = await client.listWebhookEvents({ type: 'batchSettled', siteId: site }).toArray()
  assert.equal(events.at(-1)?.idempotencyKey, batch.idempotencyKey)
  assert.equal((await client.redeliverWebhookEvent(settled.idempotencyKey)).status, 'pending')
  assert.equal((await client.redeliverWebhookEvents({ type: 'batchSettled' })).count, 2)
  assert((await client.rotateWebhookSecret()).secret.startsWith('whsec_'))
  await client.deleteWebhookEndpoint(defaultEndpoint)
}

async function testClock(client: Client) {
  const { now, advancedMs } = await client.readClock()
  assert.equal(advancedMs, 0)
  assert((await client.moveClock({ advanceMs: 3_600_000 })).now >= now + 3_600_000)
}
