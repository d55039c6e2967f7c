// Package models is the state of the service: its types, their transitions, and their rows in
// Postgres. It knows nothing of HTTP or Redis, and imports no other package of the service.
//
// # Glossary
//
//   - Organisation: a partner. It owns Sites, API clients, webhook endpoints and quotas.
//   - Site: a place of business of an organisation; every customer and payment belongs to one.
//   - Customer link: a [CustomerLink] between a Site and a customer: invited, linked, expired or
//     revoked.
//   - Invitation: a customer link that its customer has not accepted yet.
//   - Batch: a partner's list of debits under one batchReference.
//   - Row: one debit of a batch.
//   - Chunk: the consecutive rows of a batch that one task handles.
//   - Payment intent: one purchase, waiting for a customer to pay it.
//   - Transaction: a customer's payment of a payment intent; at most one for each.
//   - Movement: a ledger entry as partners see it.
//   - Rail: the payment network that debits customers.
//   - Rail key: the key under which the rail debits at most once, also after a loss of the
//     database.
//   - Generation: the number of batches that a batchReference has named; part of the rail key.
//   - Settle: reach the final outcome of money. A batch settles with its last row.
//   - In doubt: a debit call may have been made, and its answer is not known.
//   - Deadline: the time by which every row of a batch settles, 24 hours after submission.
//   - Unconfirmed: the outcome of a row that is still in doubt at its deadline.
//   - Correction (late truth): the rail's answer about a settled row, recorded after settlement.
//   - Task: a unit of background work, stored in the outbox and named in Redis.
//   - Outbox: the table of unfinished tasks; a transaction writes its tasks with its state.
//   - Lane: the waiting tasks of one Site; dispatch alternates between lanes.
//   - Dispatch: send due tasks to Redis.
//   - Claim: take due tasks, rows, transactions or events under a lease.
//   - Lease: the time-limited right to work on a claim; after it, another worker takes over.
//   - Park: postpone work that cannot proceed now. A parked event waits for endpoint capacity.
//   - Webhook event: one notification to a partner, retried until delivered or failed.
//   - Webhook attempt: one POST of a webhook event.
//   - Webhook endpoint: the URL of an organisation, or of one of its Sites, that receives events.
//   - Slot: an event's share of an endpoint's concurrent deliveries: parked, released or leased.
//   - Breaker: limits deliveries to a failing endpoint. Closed: events go out. Open: they park.
//     Half-open: one probe at a time goes out.
//   - Epoch of the database: one history of commits. A promotion or restore begins a new one, and
//     puts everything begun earlier in doubt.
//   - Coalescer: merges concurrent calls into one batched call.
//   - Service time: the database's time plus the offset of the sandbox's clock. It decides what is
//     due, expired or late. Type [Millis].
//   - Server time: the database's real time. Leases use it. Columns of type timestamptz.
//
// # Types
//
// An [ID] identifies one kind of noun. Money is an [Amount] in minor units. A point in time is
// [Millis] of Unix time. Names that a partner chooses (customerReference and the like) are strings
// that [ValidateReference] has accepted. The types of a noun are in the file of its name:
// customer.go, batch.go, webhook_event.go.
//
// # States
//
// Each noun has one table of allowed transitions, in its _state.go file (webhook_event.go for
// events). Every statement that changes a state names the states that it changes from, and checks
// the number of changed rows: of two concurrent changes, the second finds that it is too late. Time
// alone causes some transitions. Readers see them at once, even before a sweep records them; see
// [LinkState.At].
//
// # Stores
//
// [Store] is the only access to Postgres. Most exported methods are one transaction or one
// statement, so each leaves everything done or nothing. Tasks are written to the outbox in the
// transaction that makes them necessary, so that no crash can separate them; the message in Redis
// is only a wake-up.
// Test errors with [errors.Is]: [ErrNotFound], [ErrUnavailable] and the like. After ErrUnavailable
// it is unknown whether the transaction was committed; calls that matter can be repeated. Locks are
// taken in one order: a batch, its rows, the outbox.
//
// # SQL
//
// SCHEMA.md shows the tables. The package postgres holds the pool and the form of statements.
//
// Bun's query builder and models serve statements that are not hot: single rows, administration and
// simple lists. Hot statements, and those with several CTEs, are SQL with named arguments
// ([postgres.Statement]): each connection prepares them once, which spares the builder's formatting
// and the server's planning. A long one lives in a .sql file beside its Go file, with a comment for
// each CTE, so that an operator can paste it into psql. Rows are scanned by column name.
//
// # Time
//
// The database decides what is due, expired or late, with svc_now() inside the statement itself, so
// that machines with different clocks agree. The process's own clock, which is injected, only
// measures the age of cached values.
package models
