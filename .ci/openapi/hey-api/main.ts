// Plays a partner's day with the client that @hey-api/openapi-ts generates.
import assert from 'node:assert/strict'
import { client } from './generated/client.gen.js'
import {
  createInvitation,
  createPaymentIntent,
  getBatch,
  getPaymentIntent,
  issueToken,
  payInSandbox,
  signUpInSandbox,
  submitBatch,
} from './generated/sdk.gen.js'

const { BASE_URL, CLIENT_ID, CLIENT_SECRET, SITE } = process.env
assert(BASE_URL && CLIENT_ID && CLIENT_SECRET && SITE)
const siteId = SITE

client.setConfig({ baseUrl: BASE_URL })
const token = await issueToken({
  body: { grant_type: 'client_credentials', client_id: CLIENT_ID, client_secret: CLIENT_SECRET },
})
assert(token.data, JSON.stringify(token.error))
client.setConfig({ auth: token.data.access_token })

// A customer is invited, signs up and is debited.
const customerReference = 'hey-api ü'
const batchReference = 'hey-api 2026/11 #7+é'
const invited = await createInvitation({
  path: { siteId },
  headers: { 'Idempotency-Key': 'hey-api' },
  body: { customerReference },
})
assert(invited.data?.data.signupUrl, JSON.stringify(invited.error))
const linked = await signUpInSandbox({ path: { siteId, customerReference } })
assert.equal(linked.data?.data.state, 'linked')
const submitted = await submitBatch({
  path: { siteId },
  body: { batchReference, rows: [{ customerReference, rowReference: 'row', amount: 1250 }] },
})
assert.equal(submitted.data?.data.totalAmount, 1250)
for (let settled = false; !settled; ) {
  const { data, error } = await getBatch({ path: { siteId, batchReference }, headers: { Prefer: 'wait=10' } })
  assert(data, JSON.stringify(error))
  settled = data.data.state === 'settled'
  if (settled) assert.equal(data.data.rows[0]?.outcome, 'succeeded')
}

// A payment intent is refused once, then created and paid.
const refused = await createPaymentIntent({ path: { siteId }, body: { amount: 0 } })
assert.equal(refused.error?.errors[0]?.message, 'amount must be greater than 0')
const created = await createPaymentIntent({ path: { siteId }, body: { amount: 950, orderId: 'hey-api' } })
assert(created.data, JSON.stringify(created.error))
const { paymentIntentId } = created.data.data
const paid = await payInSandbox({ path: { paymentIntentId } })
assert(paid.data?.data.transactionId, JSON.stringify(paid.error))
for (let final = false; !final; ) {
  const { data, error } = await getPaymentIntent({
    path: { siteId, paymentIntentId },
    headers: { Prefer: 'wait=10' },
  })
  assert(data, JSON.stringify(error))
  final = data.data.state === 'final'
  if (final) assert.deepEqual([data.data.transactionStatus, data.data.amountPaid], ['Settled', 950])
}
