// A partner's program that has installed the packed TypeScript client.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { ApiError, Client, type Batch, type Event } from '@partnerbilling/client'

const sandbox = JSON.parse(await readFile(process.env['SANDBOX_FILE'] ?? '', 'utf8'))
const { clientId, clientSecret, sites } = sandbox.organisations[0]
const client = new Client({ baseUrl: sandbox.baseUrl, clientId, clientSecret })
const site: string = sites[1].siteId

await client.createInvitation(site, { customerReference: 'packed' })
await client.signUpInSandbox(site, 'packed')
await client.submitBatch(site, {
  batchReference: 'packed',
  rows: [{ customerReference: 'packed', rowReference: '1', amount: 1250 }],
})
const settled: Batch = await client.waitForBatch(site, 'packed')
assert.equal(settled.rows[0]?.outcome, 'succeeded')
for await (const customer of client.listCustomers(site, { state: 'linked' })) {
  assert(customer.linkedAt)
}

const { paymentIntentId } = await client.createPaymentIntent(site, { amount: 950, orderId: 'packed' })
await client.payInSandbox(paymentIntentId)
assert.equal((await client.waitForPaymentIntent(site, paymentIntentId)).transactionStatus, 'Settled')

// @ts-expect-error: the compiler knows the states.
client.listCustomers(site, { state: 'settled' })
// @ts-expect-error: and the fields.
const wrong = client.createPaymentIntent(site, { amout: 1 }).catch((error: unknown) => error)
assert((await wrong) instanceof ApiError)

/** Narrows by the type of the event. */
export function orderOf(event: Event): string | undefined {
  return event.type === 'transactionStatus' ? event.data.orderId : undefined
}
