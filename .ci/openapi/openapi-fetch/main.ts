// Plays a partner's day with openapi-fetch and the types of openapi-typescript.
import assert from 'node:assert/strict'
import createClient from 'openapi-fetch'
import type { paths } from './generated/api.js'

const { BASE_URL, CLIENT_ID, CLIENT_SECRET, SITE } = process.env
assert(BASE_URL && CLIENT_ID && CLIENT_SECRET && SITE)
const siteId = SITE

const client = createClient<paths>({ baseUrl: BASE_URL })

const token = await client.POST('/oauth2/token', {
  body: { grant_type: 'client_credentials', client_id: CLIENT_ID, client_secret: CLIENT_SECRET },
  headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
})
assert(token.data, JSON.stringify(token.error))
const { access_token } = token.data
client.use({
  onRequest({ request }) {
    request.headers.set('Authorization', `Bearer ${access_token}`)
  },
})

// A customer is invited, signs up and is debited.
const customerReference = 'openapi-fetch ü'
const batchReference = 'openapi-fetch 2026/11 #7+é'
const invited = await client.POST('/billing/sites/{siteId}/customers/invitations', {
  params: { path: { siteId }, header: { 'Idempotency-Key': 'openapi-fetch' } },
  body: { customerReference },
})
assert(invited.data?.data.signupUrl, JSON.stringify(invited.error))
const linked = await client.POST('/sandbox/sites/{siteId}/customers/{customerReference}/signup', {
  params: { path: { siteId, customerReference } },
})
assert.equal(linked.data?.data.state, 'linked')
const submitted = await client.POST('/billing/sites/{siteId}/batches', {
  params: { path: { siteId } },
  body: { batchReference, rows: [{ customerReference, rowReference: 'row', amount: 1250 }] },
})
assert.equal(submitted.data?.data.totalAmount, 1250)
for (let settled = false; !settled; ) {
  const { data, error } = await client.GET('/billing/sites/{siteId}/batches/{batchReference}', {
    params: { path: { siteId, batchReference }, header: { Prefer: 'wait=10' } },
  })
  assert(data, JSON.stringify(error))
  settled = data.data.state === 'settled'
  if (settled) assert.equal(data.data.rows[0]?.outcome, 'succeeded')
}

// A payment intent is refused once, then created and paid.
const refused = await client.POST('/checkout/{siteId}/payment-intent', {
  params: { path: { siteId } },
  body: { amount: 0 },
})
assert.equal(refused.error?.errors[0]?.message, 'amount must be greater than 0')
const created = await client.POST('/checkout/{siteId}/payment-intent', {
  params: { path: { siteId } },
  body: { amount: 950, orderId: 'openapi-fetch', expiresAt: null },
})
assert(created.data, JSON.stringify(created.error))
const { paymentIntentId } = created.data.data
const paid = await client.POST('/sandbox/payment-intents/{paymentIntentId}/payment', {
  params: { path: { paymentIntentId } },
})
assert(paid.data?.data.transactionId, JSON.stringify(paid.error))
for (let final = false; !final; ) {
  const { data, error } = await client.GET('/checkout/{siteId}/payment-intent/{paymentIntentId}', {
    params: { path: { siteId, paymentIntentId }, header: { Prefer: 'wait=10' } },
  })
  assert(data, JSON.stringify(error))
  final = data.data.state === 'final'
  if (final) assert.deepEqual([data.data.transactionStatus, data.data.amountPaid], ['Settled', 950])
}
