import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import {
  nodeWebhookHandler, parseEvent, SignatureError, verifySignature, webhookHandler, type Event, type Verification,
} from '../src/index.js'

const secret = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='
const other = 'whsec_BBECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='
const status = JSON.stringify({
  data: { idempotencyKey: 'evt_1', siteId: { id: 'site' }, paymentIntentId: 'pi', transactionStatus: 'Settled', orderId: 'café' },
  traceId: 't',
  test: true,
})
const corrected = JSON.stringify({
  type: 'rowCorrected',
  data: { idempotencyKey: 'evt_2', siteId: { id: 'site' }, batchReference: 'b', row: { correctedOutcome: 'succeeded' } },
  traceId: 't',
})

const hmac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text).digest('base64')

/** Signs as the service does. */
function sign(body: string, keys = [secret], age = 0): Record<string, string> {
  const timestamp = String(Math.floor(Date.now() / 1000) - age)
  const signatures = keys.map((k) => 'v1,' + hmac(Buffer.from(k.slice('whsec_'.length), 'base64'), `evt_1.${timestamp}.${body}`))
  return {
    'x-svc-signature': hmac(keys[0]!, body),
    'webhook-id': 'evt_1',
    'webhook-timestamp': timestamp,
    'webhook-signature': signatures.join(' '),
  }
}

test('what the service signs is accepted, and nothing else', async (t) => {
  const good = sign(status)
  const svc: Verification = { secrets: secret, scheme: 'svc' }
  const standard: Verification = { secrets: secret }
  const cases: [string, Record<string, string>, string, Verification, boolean][] = [
    ['standard', good, status, standard, true],
    ['svc', good, status, svc, true],
    ['a changed body', good, status.replace('café', 'cafe'), standard, false],
    ['a changed body, svc', good, status.replace('café', 'cafe'), svc, false],
    ['another secret', good, status, { secrets: other }, false],
    ['another secret, svc', good, status, { secrets: other, scheme: 'svc' }, false],
    ['one of two secrets', good, status, { secrets: [other, secret] }, true],
    ['one of two signatures', sign(status, [other, secret]), status, standard, true],
    ['no secret', good, status, { secrets: [] }, false],
    ['an empty secret', sign(status, ['']), status, { secrets: '' }, false],
    ['an empty secret, svc', sign(status, ['']), status, { secrets: '', scheme: 'svc' }, false],
    ['a secret without a key', sign(status, ['whsec_']), status, { secrets: 'whsec_' }, false],
    ['a secret without a key, svc', sign(status, ['whsec_']), status, { secrets: 'whsec_', scheme: 'svc' }, false],
    ['a secret that is not base64, svc', sign(status, ['whsec_!']), status, { secrets: 'whsec_!', scheme: 'svc' }, false],
    ['no headers', {}, status, standard, false],
    ['no headers, svc', {}, status, svc, false],
    ['only x-svc-signature', { 'x-svc-signature': good['x-svc-signature']! }, status, standard, false],
    ['too old', sign(status, [secret], 400), status, standard, false],
    ['from the future', sign(status, [secret], -400), status, standard, false],
    ['old, tolerated', sign(status, [secret], 400), status, { secrets: secret, toleranceSeconds: 500 }, true],
    ['another time', { ...good, 'webhook-timestamp': String(Math.floor(Date.now() / 1000) + 1) }, status, standard, false],
    ['another id', { ...good, 'webhook-id': 'evt_2' }, status, standard, false],
    ['no time', { ...good, 'webhook-timestamp': 'now' }, status, standard, false],
    ['another version', { ...good, 'webhook-signature': good['webhook-signature']!.replace('v1,', 'v2,') }, status, standard, false],
    ['no base64', { ...good, 'x-svc-signature': '*' }, status, svc, false],
    ['a short signature', { ...good, 'x-svc-signature': 'YQ==' }, status, svc, false],
    ['capitals in names', Object.fromEntries(Object.entries(good).map(([k, v]) => [k.toUpperCase(), v])), status, standard, true],
  ]
  for (const [what, headers, body, verification, accepted] of cases) {
    await t.test(what, async () => {
      for (const source of [headers, new Headers(headers)]) {
        const parsed = parseEvent(source, body, verification)
        if (accepted) assert.equal((await parsed).idempotencyKey, 'evt_1')
        else await assert.rejects(parsed, SignatureError)
      }
    })
  }
  assert(await verifySignature(secret, good['x-svc-signature']!, new TextEncoder().encode(status)))
})

test('events are told apart by their type', async () => {
  const read = (body: string) => parseEvent(sign(body), body, { secrets: secret })
  const paid = await read(status)
  assert(paid.type === 'transactionStatus' && paid.data.transactionStatus === 'Settled' && paid.test)
  assert.deepEqual([paid.siteId, paid.traceId], ['site', 't'])
  const row = await read(corrected)
  assert(row.type === 'rowCorrected' && row.data.row.correctedOutcome === 'succeeded' && !row.test)
  const unknown = await read('{"type":"new","data":{"idempotencyKey":"evt_3"},"traceId":"t"}')
  assert(unknown.type === 'unknown' && unknown.name === 'new' && unknown.idempotencyKey === 'evt_3')
  await assert.rejects(read('x'), SyntaxError)
})

test('the receivers answer by what happened to the event', async (t) => {
  const seen: Event[] = []
  let fails = false
  const handle = (event: Event) => {
    seen.push(event)
    if (fails) throw new Error('the database is away')
  }
  const reported: string[] = []
  const options = { secrets: [other, secret], onError: (error: unknown) => reported.push((error as Error).name) }
  const fetchHandler = webhookHandler(options, handle)
  const server = createServer(nodeWebhookHandler(options, handle))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const huge = ' '.repeat((1 << 20) + 1)
  for (const [body, headers, failing, want] of [
    [status, sign(status), false, 204],
    [status, sign(status), true, 500],
    [status, {}, false, 401],
    ['x', sign('x'), false, 400],
    ['', {}, false, 401],
    [huge, sign(huge), false, 400],
  ] as const) {
    fails = failing
    const init = { method: 'POST', body, headers }
    assert.equal((await fetchHandler(new Request(url, init))).status, want)
    assert.equal((await fetch(url, init)).status, want)
  }
  assert.deepEqual(seen.map((e) => e.idempotencyKey), ['evt_1', 'evt_1', 'evt_1', 'evt_1'])
  const reasons = ['Error', 'SignatureError', 'SyntaxError', 'SignatureError', 'RangeError']
  assert.deepEqual(reported, reasons.flatMap((reason) => [reason, reason]))
})
