// Package models holds the state of the service: its types, their transitions, and their rows in
// Postgres. It calls neither HTTP nor Redis, and imports no package of the service but its own
// subpackages.
//
// # Glossary
//
//   - Organisation: a partner. It owns Sites, API clients, webhook endpoints and quotas.
//   - Site: a place of business of an organisation; every customer and payment belongs to one.
//   - Customer: a person or company that pays a Site, known to it by a customerReference.
//   - Customer link: the relation of a customer to a Site: invited, linked, expired or revoked.
//     Type [CustomerLink].
//   - Invitation: a customer link that its customer has not accepted yet.
//   - Batch: a partner's list of debits under one batchReference.
//   - Row: one debit of a batch.
//   - Chunk: consecutive rows of a batch that one task handles.
//   - Payment intent: one purchase, waiting for a customer to pay it.
//   - Transaction: a customer's payment of a payment intent; at most one for each. Where both
//     senses occur, a transaction of Postgres is called a database transaction.
//   - Ledger: the list of all debits that succeeded. Each entry debits railClearing, the customer's
//     money on the rail, and credits sitePayable, the money owed to the partner.
//   - Movement: a ledger entry as partners see it.
//   - Rail: the payment network that debits customers.
//   - Rail key: the key under which the rail debits at most once, even if the database has lost
//     commits.
//   - Generation: the number of batches that have used a batchReference so far; part of the rail
//     key.
//   - Settle: reach the final outcome of a payment. A batch settles with its last row.
//   - In doubt: a debit call may have reached the rail, and its answer is not known.
//   - Deadline: the time by which every row of a batch settles, 24 hours after submission.
//   - Unconfirmed: the outcome of a row that is still in doubt at its deadline, or whose debit the
//     rail cannot confirm or deny.
//   - Correction (late truth): the rail's answer about a settled row, recorded after settlement.
//   - Task: a unit of background work, stored in the outbox and named in Redis.
//   - Outbox: the table of unfinished tasks. A database transaction writes its tasks together with
//     the state that they concern.
//   - Lane: the waiting tasks of one Site in one queue; dispatch alternates between lanes. Type
//     [Lane].
//   - Dispatch: send due tasks to Redis.
//   - Claim: take due tasks, rows, transactions or events under a lease.
//   - Lease: the time-limited right to work on a claim. When it ends, another worker may claim.
//   - Marker: a key beside each queue in Redis. If it is missing, or does not hold the server's
//     replication id, tasks may be lost.
//   - Pause: an operator's hold on the debits of an organisation's batches, or on the dispatch of a
//     queue. Deadlines stay. Type [Pause].
//   - Park: postpone work that cannot proceed now. A parked event waits for endpoint capacity.
//   - Webhook event: one notification to a partner, retried until delivered or failed.
//   - Webhook attempt: one POST of a webhook event.
//   - Webhook endpoint: the URL of an organisation, or of one of its Sites, that receives events.
//   - Delivery slot: the right to one of an endpoint's concurrent deliveries. An event waits for a
//     slot (parked) or holds one (released, then leased).
//   - Breaker: limits deliveries to a failing endpoint. Closed: events go out. Open: they park.
//     Half-open: one probe at a time goes out.
//   - Access log: the log lines of requests (message "request"), for operators.
//   - Request log: in a sandbox, the latest requests of an organisation with their answers. The
//     partner reads it in the console and with svcctl logs.
//   - Act: one change by an operator or a client, as the audit log records it.
//   - Story: everything that the service knows about a batch or a payment intent, for operators.
//     Types [BatchStory] and [PaymentStory].
//   - Partition: the part of a table whose ids were made in one week or month. It is dropped as a
//     whole.
//   - Sweep: a recurring task that finds what is due by time alone, such as expired invitations.
//   - Epoch of the database: one history of commits. A promotion or restore begins a new one, and
//     puts everything begun earlier in doubt.
//   - Replica: a standby of Postgres that answers the reads of pages and CSV. Type [Replica].
//   - Coalescer: merges concurrent calls into one batched call.
//   - Service time: the database's time plus the offset of the sandbox's clock. It decides what is
//     due, expired or late. Type [Millis].
//   - Server time: the database's real time. Leases use it. Its columns have the type timestamptz.
//
// # Types
//
// Each kind of entity has its own type of [ID]. Money is an [Amount] in minor units. A point in
// time is [Millis] of Unix time. Names that a partner chooses (customerReference and the like) are
// strings that [ValidateReference] has accepted. The types of an entity are in the file of its
// name: customer.go, batch.go, webhook_event.go.
//
// # States
//
// Each entity with states has one table of allowed transitions, in its _state.go file
// (webhook_event.go for events). A batch needs no such table, since it only settles. The database
// refuses every other transition by a trigger of the entity's table; a test compares both. Every
// statement that changes a state names the states that it changes from, or runs under a lock that
// was acquired before the state was read. Of two concurrent changes, the second therefore changes
// nothing. Time alone causes some transitions. Readers see them at once, even before a sweep
// records them; see [LinkState.At].
//
// # Stores
//
// [Store] is the only access to Postgres. Most exported methods are one database transaction or one
// statement, and so are atomic. Tasks are written to the outbox in the database transaction that
// makes them necessary, so that a crash loses neither the state nor its tasks. The message in Redis
// is only a wake-up.
//
// Test errors with [errors.Is]: [ErrNotFound], [ErrUnavailable] and the like. After ErrUnavailable
// it is unknown whether the database transaction was committed; calls that move money can be
// repeated. Locks are taken in one order: a batch, its rows, the outbox.
//
// # SQL
//
// SCHEMA.md shows the tables. The package postgres holds the pool and the form of statements.
//
// Bun's query builder and models serve statements that are not hot: single rows, administration and
// simple lists. Hot statements, and those with several CTEs, are SQL with named arguments
// ([postgres.Statement]): each connection prepares them once, which avoids repeated formatting and
// planning. A long statement lives in a .sql file beside its Go file; psql runs it after \set of
// its arguments. A rule that several statements share is a function in the migrations, which the
// planner inlines. Rows are scanned by column name.
//
// # Time
//
// The database decides what is due, expired or late, with svc_now() inside the statement itself, so
// that machines with different clocks agree. The process's own clock, which is injected, only
// measures the age of cached values.
package models
