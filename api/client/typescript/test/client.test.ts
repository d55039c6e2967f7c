import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ApiError, Client, ConnectionError, meta } from '../src/index.js'
import { data, json, newClient, serve } from './server.js'

const prefix = 'urn:svc:platform:billing:error:'
const customer = { customerReference: 'a', state: 'linked', invitedAt: 1 }

test('concurrent calls share one token, which is renewed when it ends', async (t) => {
  const server = await serve(t, (_, response) => json(response, 200, data(customer)))
  const client = newClient(server)
  await Promise.all(Array.from({ length: 20 }, () => client.getCustomer('site', 'a')))
  assert.equal(server.tokens, 1)
  assert(server.seen.every((r) => r.headers.authorization === 'Bearer token-1'))

  const shortLived = newClient(server)
  server.lifetime = 0
  await shortLived.getCustomer('site', 'a')
  await shortLived.getCustomer('site', 'a')
  assert.equal(server.tokens, 3)
})

test('a refused token is renewed once', async (t) => {
  const server = await serve(t, (request, response) =>
    request.headers.authorization === 'Bearer token-2'
      ? json(response, 200, data(customer))
      : json(response, 401, { errors: [{ code: `${prefix}auth:invalid-token`, displayMessage: 'x' }], traceId: 't' }))
  await newClient(server, { maxRetries: 0 }).getCustomer('site', 'a')
  assert.deepEqual([server.tokens, server.seen.length], [2, 2])

  const refused = await serve(t, (_, response) => json(response, 401, {}))
  await assert.rejects(newClient(refused).getCustomer('site', 'a'), { name: 'ApiError', status: 401 })
  assert.deepEqual([refused.tokens, refused.seen.length], [2, 2])
})

test('the credentials are encoded as OAuth wants it, and its errors are errors of the API', async (t) => {
  const server = await serve(t, () => assert.fail('no call without a token'))
  let authorization = ''
  const client = newClient(server, {
    clientSecret: 'a:b+ü%',
    fetch: async (_, init) => {
      authorization = new Headers(init?.headers).get('Authorization') ?? ''
      const body = JSON.stringify({ error: 'invalid_client', error_description: 'client authentication failed' })
      return new Response(body, { status: 401, headers: { 'Content-Type': 'application/json' } })
    },
  })
  await assert.rejects(client.getCustomer('site', 'a'), (error: ApiError) => {
    assert.deepEqual(error.reasons, [{ code: 'invalid_client', message: 'client authentication failed' }])
    return error.status === 401 && error.has('invalid_client')
  })
  assert.equal(atob(authorization.slice('Basic '.length)), 'id:a%3Ab%2B%C3%BC%25')
})

test('what is safe is repeated', async (t) => {
  const read = (c: Client) => c.getCustomer('site', 'a')
  const keyed = (c: Client) => c.createPaymentIntent('site', { amount: 1 })
  const submission = (c: Client) => c.submitBatch('site', { batchReference: 'b', rows: [] })
  const redelivery = (c: Client) => c.redeliverWebhookEvent('evt_1')
  const removal = (c: Client) => c.deleteWebhookEndpoint('default')
  const unsafe = (c: Client) => c.payInSandbox('pi')
  type Fault = { status: number; retryAfter?: string } | 'no answer' | 'a torn answer' | 'no JSON'
  const cases: [string, (c: Client) => Promise<unknown>, Fault, number][] = [
    ['a read', read, { status: 503 }, 3],
    ['a read', read, { status: 500 }, 3],
    ['a read', read, { status: 503, retryAfter: '3600' }, 3],
    ['a read', read, 'no answer', 3],
    ['a read', read, 'a torn answer', 3],
    ['a read', read, 'no JSON', 3],
    ['a read', read, { status: 404 }, 1],
    ['a keyed call', keyed, { status: 503 }, 3],
    ['a keyed call', keyed, 'no answer', 3],
    ['a keyed call', keyed, { status: 409, retryAfter: '1' }, 3],
    ['a keyed call', keyed, { status: 409 }, 1],
    ['a submission', submission, 'no answer', 3],
    ['a submission', submission, { status: 409, retryAfter: '1' }, 1],
    ['a redelivery', redelivery, 'no answer', 1],
    ['a removal', removal, 'no answer', 1],
    ['an unsafe call', unsafe, { status: 503 }, 1],
    ['an unsafe call', unsafe, 'no answer', 1],
    ['an unsafe call', unsafe, { status: 429, retryAfter: '0.001' }, 3],
    ['a read', read, { status: 429 }, 1],
    ['a read', read, { status: 429, retryAfter: '3600' }, 1],
  ]
  for (const [what, call, fault, want] of cases) {
    await t.test(`${what}: ${JSON.stringify(fault)}`, async (t) => {
      const server = await serve(t, (_, response) => {
        if (fault === 'no answer') {
          response.destroy()
        } else if (fault === 'a torn answer') {
          response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': '1000' })
          response.write('{"data":', () => response.destroy())
        } else if (fault === 'no JSON') {
          response.writeHead(200, { 'Content-Type': 'application/json' }).end('<html>')
        } else {
          json(response, fault.status, {}, fault.retryAfter ? { 'Retry-After': fault.retryAfter } : {})
        }
      })
      await assert.rejects(call(newClient(server, { maxRetries: 2 })), typeof fault === 'string' ? ConnectionError : ApiError)
      assert.equal(server.seen.length, want)
      const keys = new Set(server.seen.map((r) => r.headers['idempotency-key']))
      assert.equal(keys.size, 1)
      assert.equal(keys.has(undefined), call !== keyed)
    })
  }
})

test('a call succeeds after failures', async (t) => {
  let failures = 2
  const server = await serve(t, (_, response) =>
    failures-- > 0 ? json(response, 503, {}, { 'Retry-After': '1' }) : json(response, 200, data(customer)))
  assert.deepEqual(await newClient(server).getCustomer('site', 'a'), customer)
})

test('a request without an answer ends', async (t) => {
  const server = await serve(t, () => {})
  const client = newClient(server, { timeoutMs: 50, maxRetries: 1 })
  await assert.rejects(client.getCustomer('site', 'a'), ConnectionError)
  assert.equal(server.seen.length, 2)
})

test('an invalid argument is not taken for a lost answer', async (t) => {
  const server = await serve(t, () => assert.fail('no request'))
  const client = newClient(server)
  await assert.rejects(client.createInvitation('site', { customerReference: 'a' }, { idempotencyKey: '€' }), TypeError)
  await assert.rejects(newClient(server, { baseUrl: 'pay.example' }).getCustomer('site', 'a'), TypeError)
  assert.equal(server.seen.length, 0)
})

test('a signal ends a call, and the wait before a retry', async (t) => {
  const stop = new AbortController()
  const server = await serve(t, (_, response) => {
    json(response, 503, {}, { 'Retry-After': '3600' })
    setImmediate(() => stop.abort(new Error('enough')))
  })
  const client = newClient(server, { maxBackoffMs: 3_600_000 })
  await assert.rejects(client.getCustomer('site', 'a', { signal: stop.signal }), { message: 'enough' })
  await assert.rejects(client.getCustomer('site', 'a', { signal: stop.signal }), { message: 'enough' })
  assert.equal(server.seen.length, 1)

  // One caller that leaves does not take the token from the others.
  const both = newClient(server, { maxRetries: 0 })
  const left = both.getCustomer('site', 'a', { signal: AbortSignal.abort(new Error('left')) })
  const stays = both.getCustomer('site', 'a')
  await assert.rejects(left, { message: 'left' })
  await assert.rejects(stays, { status: 503 })
})

test('errors of every shape', async (t) => {
  const answers: Record<string, () => [number, unknown, Record<string, string>?]> = {
    a: () => [409, {
      errors: [{ code: `${prefix}batches:batch-reference-conflict`, displayMessage: 'Another body.', target: 'batchReference' }],
      traceId: 'trace-a',
    }, { Link: '</docs/guides/error-codes#x>; rel="help"' }],
    b: () => [400, { errors: [{ message: 'amount must be greater than 0' }], traceId: 'trace-b', timestamp: 1 }],
    c: () => [502, 'Bad gateway'],
  }
  const server = await serve(t, (request, response) => {
    const [status, body, headers] = answers[request.url.at(-1) ?? '']!()
    json(response, status, body, headers)
  })
  const client = newClient(server, { maxRetries: 0 })
  const refusal = async (reference: string) => {
    const error = await client.getCustomer('site', reference).catch((e: unknown) => e)
    assert(error instanceof ApiError)
    return error
  }
  const a = await refusal('a')
  assert(a.has('batches:batch-reference-conflict') && a.has(`${prefix}batches:batch-reference-conflict`))
  assert(!a.has('reference-conflict'))
  assert.deepEqual([a.traceId, a.help, a.reasons[0]?.target], ['trace-a', '/docs/guides/error-codes#x', 'batchReference'])
  assert.equal(a.message, '409; batchReference: Another body. (trace trace-a)')
  const b = await refusal('b')
  assert.deepEqual(b.reasons, [{ message: 'amount must be greater than 0' }])
  const c = await refusal('c')
  assert.deepEqual([c.status, c.reasons, c.traceId], [502, [], undefined])
})

test('references are encoded once, and those that a URL would drop are refused', async (t) => {
  const server = await serve(t, (_, response) => json(response, 200, data(customer)))
  const client = newClient(server)
  await client.getCustomer('site', '2026/11 #7+é?')
  assert.equal(server.seen[0]?.url, '/billing/sites/site/customers/2026%2F11%20%237%2B%C3%A9%3F')
  for (const reference of ['', '.', '..']) {
    await assert.rejects(client.getCustomer('site', reference), TypeError)
  }
  assert.equal(server.seen.length, 1)
})

test('a list follows its links, as far as the caller goes', async (t) => {
  const server = await serve(t, (request, response) => {
    const at = Number(new URL(request.url, 'http://x').searchParams.get('cursor') ?? 0)
    const next = at < 4 ? { nextHref: `${server.baseUrl}/next?cursor=${at + 2}` } : {}
    json(response, 200, data({ items: [at, at + 1].map((n) => ({ customerReference: `${n}` })), totalItems: 6, ...next }))
  })
  const client = newClient(server)
  const all = await client.listCustomers('site', { state: 'linked', limit: 2 }).toArray()
  assert.deepEqual(all.map((c) => c.customerReference), ['0', '1', '2', '3', '4', '5'])
  assert.deepEqual(server.seen.map((r) => r.url), [
    '/billing/sites/site/customers?state=linked&limit=2', '/next?cursor=2', '/next?cursor=4',
  ])
  for await (const item of client.listCustomers('site')) {
    if (item.customerReference === '1') break
  }
  assert.equal(server.seen.length, 4)
  assert.equal((await client.listCustomers('site').firstPage()).totalItems, 6)
})

test('a token goes only to the own address', async (t) => {
  const other = await serve(t, () => assert.fail('no request'))
  const server = await serve(t, (request, response) =>
    json(response, 200, data(request.url.includes('cursor') ? { items: [] } : { items: [], nextHref })))
  let nextHref = ''
  for (const [base, href] of [
    ['', '/billing/next?cursor=2'],
    ['/api', '/api/billing/next?cursor=2'],
    ['/api', '/billing/next?cursor=2'],
  ]) {
    nextHref = other.baseUrl + href
    await newClient(server, { baseUrl: server.baseUrl + base, accessToken: () => 'mine' }).listCustomers('site').toArray()
    assert.equal(server.seen.at(-1)?.url, `${base}/billing/next?cursor=2`)
  }
})

test('a poll without a usable Retry-After waits for a second', { timeout: 60_000 }, async (t) => {
  for (const retryAfter of ['0', '-1', 'Sun, 29 Nov 2026 13:28:00 GMT', undefined]) {
    const server = await serve(t, (_, response) => {
      const state = server.seen.length < 2 ? 'inProgress' : 'settled'
      json(response, 200, data({ state }), retryAfter === undefined ? {} : { 'Retry-After': retryAfter })
    })
    const began = performance.now()
    await newClient(server).waitForBatch('site', 'b')
    assert(performance.now() - began > 900, `${retryAfter}`)
    assert.equal(server.seen.length, 2)
  }
})

test('a client with a short time-out polls with pauses', async (t) => {
  const server = await serve(t, (_, response) =>
    json(response, 200, data({ state: server.seen.length === 2 ? 'settled' : 'inProgress' })))
  const began = performance.now()
  await newClient(server, { timeoutMs: 1500 }).waitForBatch('site', 'b')
  assert(performance.now() - began > 900)
  assert.deepEqual(server.seen.map((r) => r.headers.prefer), [undefined, undefined])
})

test('long polls end when the batch is settled', async (t) => {
  const states = ['inProgress', 'inProgress', 'settled']
  const server = await serve(t, (_, response) => {
    const n = Math.min(server.seen.length, states.length)
    const headers = { 'Preference-Applied': 'wait', ETag: `W/"${n}"` }
    json(response, 200, data({ state: states[n - 1] }), headers)
  })
  assert.equal((await newClient(server).waitForBatch('site', 'b')).state, 'settled')
  assert.deepEqual(server.seen.map((r) => r.headers.prefer), ['wait=20', 'wait=20', 'wait=20'])
})

test('a watched batch is yielded when it has changed', async (t) => {
  const server = await serve(t, (request, response) => {
    const headers = { 'Preference-Applied': 'wait', ETag: `W/"${server.seen.length}"` }
    if (server.seen.length === 2) {
      response.writeHead(304, headers).end()
      return
    }
    json(response, 200, data({ state: server.seen.length === 4 ? 'settled' : 'inProgress' }), headers)
    assert.equal(request.headers.prefer, server.seen.length === 1 ? undefined : 'wait=20')
  })
  const states = []
  for await (const batch of newClient(server).watchBatch('site', 'b')) states.push(batch.state)
  assert.deepEqual(states, ['inProgress', 'inProgress', 'settled'])
  assert.deepEqual(server.seen.map((r) => r.headers['if-none-match']), [undefined, 'W/"1"', 'W/"2"', 'W/"3"'])
})

test('an answer says more than its data', async (t) => {
  const server = await serve(t, (_, response) =>
    json(response, 202, data({ batchReference: 'b' }), { 'Idempotent-Replayed': 'true' }))
  const receipt = await newClient(server).submitBatch('site', { batchReference: 'b', rows: [] })
  const { status, replayed, traceId } = meta(receipt)
  assert.deepEqual([status, replayed, traceId], [202, true, '40b863fce96c224b4b37cfe08ad429c8'])
  assert.throws(() => meta({}), TypeError)
})

test('a client needs credentials or a source of tokens', async (t) => {
  assert.throws(() => new Client({ baseUrl: 'https://pay.example', clientId: 'id' }), TypeError)
  const server = await serve(t, (_, response) => json(response, 200, data(customer)))
  await new Client({ baseUrl: `${server.baseUrl}/`, accessToken: async () => 'mine' }).getCustomer('site', 'a')
  assert.deepEqual([server.tokens, server.seen[0]?.headers.authorization], [0, 'Bearer mine'])
})
