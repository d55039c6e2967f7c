// Package models is the state of the service: its types, the rules by which they change, and their rows in Postgres. It
// knows nothing of HTTP or Redis, and imports nothing else of the service.
//
// # Types
//
// An [ID] names one kind of thing and no other. Money is an [Amount] in minor units, a point in time [Millis] of Unix time,
// and what a partner names itself (customerReference and the like) a string that [ValidateReference] has passed. Each
// noun's types are in the file of its name: customer.go, batch.go, webhook_event.go.
//
// # States
//
// What can happen to a thing is one table in its _state.go file (webhook_event.go for events); a pair that the table does
// not have never happens. The statements that change a state name the states they change it from, and look at how many
// rows they changed: of two that come at once, one finds that it was too late. Some states move with time alone. They are
// read as they are at that moment, whether or not a sweep has written it down yet; see [LinkState.At].
//
// # Stores
//
// [Store] is all access to Postgres. One exported method is one transaction, or one statement: it leaves everything done or
// nothing, and a caller never holds one open. Work for later is written to the outbox in the transaction that makes it
// necessary, so that no crash comes between; a [Task] in Redis only wakes somebody up to look. Errors are told apart with
// [errors.Is]: [ErrNotFound], [ErrUnavailable] and their like. After ErrUnavailable nobody knows whether the transaction
// was committed; calls that matter can be repeated. Locks are taken in one order: a batch, its rows, the outbox.
//
// # Time
//
// The database decides what is due, expired or too late, with svc_now() inside the statement itself: its own time plus the
// offset that the sandbox's clock has been moved by. So machines whose clocks differ agree. Leases go by real time. Only
// the age of what a process remembers goes by the process's own clock, which is injected.
package models
