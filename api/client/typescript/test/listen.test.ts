import assert from 'node:assert/strict'
import { test } from 'node:test'
import { json, newClient, serve } from './server.js'

test('a broken stream continues after the last delivery', { timeout: 60_000 }, async (t) => {
  const all = 20
  const server = await serve(t, (request, response) => {
    if (server.seen.length % 3 === 2) {
      json(response, 503, {})
      return
    }
    const from = Number((request.headers['last-event-id'] ?? 'p0').toString().slice(1))
    response.writeHead(200, { 'Content-Type': 'text/event-stream' })
    response.write(`: listening\nid: p${from}\n\n: heartbeat\n\n`)
    for (let n = from; n < Math.min(from + 3, all); n++) {
      response.write(`id: p${n + 1}\nevent: x\ndata: {"headers":{"a":"b"},"body":"é ${n}"}\n\n`)
    }
    response.end(`id: p${from + 4}\nevent: x\ndata: {"headers`) // torn
  })
  const bodies = []
  for await (const delivery of newClient(server).listen()) {
    bodies.push(delivery.body)
    assert.deepEqual([delivery.id, delivery.headers], [`p${bodies.length}`, { a: 'b' }])
    if (bodies.length === all) break
  }
  assert.deepEqual(bodies, Array.from({ length: all }, (_, n) => `é ${n}`))
  assert(server.seen.length >= all / 3)
})

test('a token that has ended is renewed once for each connection', { timeout: 60_000 }, async (t) => {
  let valid = 0 // the token that the server accepts
  const server = await serve(t, (request, response) => {
    if (request.headers.authorization !== `Bearer token-${valid}`) {
      valid = server.tokens + 1
      json(response, 401, {})
      return
    }
    valid++ // the token ends with the connection
    response.writeHead(200, { 'Content-Type': 'text/event-stream' })
    response.end(`id: p${valid}\nevent: x\ndata: {"headers":{},"body":"${valid}"}\n\n`)
  })
  let deliveries = 0
  for await (const _ of newClient(server).listen()) {
    if (++deliveries === 4) break
  }
  assert.deepEqual([server.tokens, server.seen.length], [5, 8])

  const refused = await serve(t, (_, response) => json(response, 401, {}))
  await assert.rejects(newClient(refused).listen().next(), { name: 'ApiError', status: 401 })
  assert.deepEqual([refused.tokens, refused.seen.length], [2, 2])
})

test('requests are followed by their filter, each once', { timeout: 60_000 }, async (t) => {
  const server = await serve(t, (request, response) => {
    const from = Number((request.headers['last-event-id'] ?? 'p0').toString().slice(1))
    response.writeHead(200, { 'Content-Type': 'text/event-stream' })
    response.end(`: listening\nid: p${from}\n\nid: p${from + 1}\nevent: request\ndata: {"traceId":"t${from + 1}","status":404}\n\n`)
  })
  const requests = []
  for await (const { id, traceId, status } of newClient(server).tailRequests({ status: '4xx', path: '/é&' })) {
    requests.push([id, traceId, status])
    if (requests.length === 3) break
  }
  assert.deepEqual(requests, [1, 2, 3].map((n) => [`p${n}`, `t${n}`, 404]))
  assert.deepEqual(server.seen.map((seen) => seen.url), Array(3).fill('/sandbox/requests?status=4xx&path=%2F%C3%A9%26'))
})

test('a stream that does not begin is opened again', { timeout: 60_000 }, async (t) => {
  const server = await serve(t, (_, response) => {
    if (server.seen.length < 3) return
    response.writeHead(200, { 'Content-Type': 'text/event-stream' })
    response.write('id: p1\ndata: {"headers":{},"body":"a"}\n\n')
  })
  const stream = newClient(server, { timeoutMs: 500 }).listen()
  assert.equal((await stream.next()).value?.body, 'a')
  assert.equal(server.seen.length, 3)
  await stream.return()
})

test('a stream is parsed however it is cut', { timeout: 60_000 }, async (t) => {
  const text = ': c\r\nid: 1\r\ndata: {"headers":{},\r\ndata: "body":"ü"}\r\n\r\nid: 2\ndata: {"headers":{},"body":"b"}\n\n'
  const server = await serve(t, async (_, response) => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' })
    for (const byte of new TextEncoder().encode(text)) {
      await new Promise((written) => response.write(Uint8Array.of(byte), written))
    }
  })
  const deliveries = []
  for await (const delivery of newClient(server).listen({ lastEventId: '0' })) {
    deliveries.push([delivery.id, delivery.body])
    if (deliveries.length === 2) break
  }
  assert.deepEqual(deliveries, [['1', 'ü'], ['2', 'b']])
  assert.equal(server.seen[0]?.headers['last-event-id'], '0')
})

test('a stream ends with the reason of a refusal, and with its signal', { timeout: 60_000 }, async (t) => {
  const code = 'urn:svc:platform:billing:error:auth:insufficient-scope'
  const refused = await serve(t, (_, response) => json(response, 403, { errors: [{ code }], traceId: 't' }))
  await assert.rejects(newClient(refused).listen().next(), { name: 'ApiError', status: 403 })
  assert.equal(refused.seen.length, 1)

  const stop = new AbortController()
  const silent = await serve(t, (_, response) => {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' })
    response.write(': listening\n\n', () => stop.abort(new Error('enough')))
  })
  await assert.rejects(newClient(silent).listen({ signal: stop.signal }).next(), { message: 'enough' })
})
