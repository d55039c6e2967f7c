package main

import (
	"net/http"

	"partnerbilling/api/client"
)

// nounTexts are the help texts of the groups of commands, by the noun of their operations.
var nounTexts = map[string]string{
	"customers":   "Customers and their links",
	"invitations": "Invite customers",
	"batches":     "Batches of debits; see also submit",
	"intents":     "Payment intents of the checkout",
	"endpoints":   "Webhook endpoints: default, or that of a Site",
	"events":      "Webhook events and their delivery",
	"secret":      "The secret that signs webhooks",
	"movements":   "Movements of money",
	"clock":       "The sandbox's clock, under svc dev",
	"sandbox":     "Customers of the sandbox",
	"logs":        "The organisation's requests to a sandbox, as its server keeps them",
}

// The values of the API's enums that flags and arguments accept.
var (
	linkStates = []string{client.LinkInvited, client.LinkLinked, client.LinkExpired, client.LinkRevoked}
	statuses   = []string{
		client.StatusSettled, client.StatusDeclined, client.StatusFailed, client.StatusCancelled, client.StatusExpired,
	}
	eventTypes = []string{
		client.EventTransactionStatus, client.EventBatchSettled, client.EventRowCorrected, client.EventCustomerLinked,
		client.EventCustomerRevoked, client.EventCustomerExpired,
	}
	eventStatuses = []string{"pending", "delivered", "failed", "undelivered"}
	behaviours    = []string{
		"pays", "insufficientFunds", "accountUnavailable", "limitExceeded", "declines", "slow", "bankDown",
		"answerLost",
	}
)

// Arguments that more than one operation has.
var (
	customerArgument = argument{parameter: parameter{name: "customerReference"}, label: "CUSTOMER"}
	batchArgument    = argument{parameter: parameter{name: "batchReference"}, label: "BATCH"}
	intentArgument   = argument{parameter: parameter{name: "paymentIntentId"}, label: "INTENT"}
	eventArgument    = argument{parameter: parameter{name: "idempotencyKey"}, label: "EVENT"}
	endpointArgument = argument{
		parameter: parameter{name: "endpoint"}, label: "ENDPOINT", optional: client.DefaultEndpoint,
	}
)

// behaviourParameter says how a customer of the sandbox responds to debits.
var behaviourParameter = parameter{
	name: "behaviour", usage: "how the account behaves, by default pays", oneOf: behaviours,
}

// eventFilter selects events, of a list and of a redelivery.
var eventFilter = []parameter{
	{name: "status", usage: "only events with this delivery status", oneOf: eventStatuses},
	{name: "type", usage: "only events of this type", oneOf: eventTypes},
	{name: "siteId", usage: "only events of this Site"},
	{name: "paymentIntentId", usage: "only events of this payment intent"},
	{name: "from", kind: kindTime, usage: "only events created since"},
	{name: "to", kind: kindTime, usage: "only events created until"},
}

// logFilter selects requests of the request log, for a list and for a stream.
var logFilter = []parameter{
	{name: "status", usage: "only requests with this status, such as 404, or of this class, such as 4xx",
		examples: []string{"2xx", "3xx", "4xx", "5xx"}},
	{name: "method", usage: "only requests with this method", oneOf: []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete,
	}},
	{name: "path", usage: "only requests whose path begins so",
		examples: []string{"/billing/", "/checkout/", "/sandbox/", "/traces/", "/webhooks/"}},
}

// logColumns are the columns of the request log. A column without a title is in CSV only.
var logColumns = []column{
	{"at", "AT"}, {"status", "STATUS"}, {"method", "METHOD"}, {"path", "PATH"}, {"durationMs", "MS"},
	{"traceId", "TRACE"}, {"errorCode", "ERROR"}, {"route", ""}, {"clientId", ""}, {"console", ""},
}

// operations are the commands that call one operation of the API each. A test compares them with
// the OpenAPI document.
var operations = []operation{
	{
		noun: "customers", verb: "list", short: "List the Site's customers, newest first",
		method: http.MethodGet, path: "/billing/sites/{siteId}/customers", list: listPaged,
		query: []parameter{
			{name: "state", usage: "only customers in this state", oneOf: linkStates},
			{name: "invitedFrom", kind: kindTime, usage: "only customers invited since"},
			{name: "invitedTo", kind: kindTime, usage: "only customers invited until"},
		},
		columns: []column{
			{"customerReference", "CUSTOMER"}, {"state", "STATE"}, {"invitedAt", "INVITED"}, {"linkedAt", "LINKED"},
			{"expiresAt", "EXPIRES"},
		},
	},
	{
		noun: "customers", verb: "get", short: "Show the newest link of a customer",
		method: http.MethodGet, path: "/billing/sites/{siteId}/customers/{customerReference}",
		args: []argument{customerArgument},
	},
	{
		noun: "customers", verb: "revoke", short: "Revoke the newest link of a customer",
		method: http.MethodPost, path: "/billing/sites/{siteId}/customers/{customerReference}/revocation",
		args: []argument{customerArgument}, repeatable: true,
	},
	{
		noun: "invitations", verb: "create", short: "Invite customers and show their sign-up links",
		method: http.MethodPost, path: "/billing/sites/{siteId}/customers/invitations",
		args: []argument{customerArgument}, many: true, keyed: true,
		body: []parameter{
			{name: "expiresAt", kind: kindTime, usage: "when the invitation expires, by default in 7 days"},
		},
	},
	{
		noun: "invitations", verb: "resend", short: "Show the sign-up link of a live invitation again",
		method: http.MethodPost, path: "/billing/sites/{siteId}/customers/{customerReference}/invitation-link",
		args: []argument{customerArgument}, repeatable: true,
	},
	{
		noun: "batches", verb: "list", short: "List the Site's batches, newest first",
		method: http.MethodGet, path: "/billing/sites/{siteId}/batches", list: listPaged,
		query: []parameter{
			{name: "state", usage: "only batches in this state", oneOf: []string{
				client.StateInProgress, client.StateSettled,
			}},
			{name: "submittedFrom", kind: kindTime, usage: "only batches submitted since"},
			{name: "submittedTo", kind: kindTime, usage: "only batches submitted until"},
		},
		columns: []column{
			{"batchReference", "BATCH"}, {"state", "STATE"}, {"submittedAt", "SUBMITTED"}, {"rowCount", "ROWS"},
			{"counts.succeeded", "SUCCEEDED"}, {"counts.failed", "FAILED"}, {"totalAmount", "AMOUNT"},
			{"retryOf", ""}, {"settleBy", ""}, {"settledAt", ""}, {"counts.pending", ""}, {"counts.inProgress", ""},
			{"counts.settled", ""}, {"succeededAmount", ""},
		},
	},
	{
		noun: "batches", verb: "get", short: "Show a batch with its rows",
		method: http.MethodGet, path: "/billing/sites/{siteId}/batches/{batchReference}",
		args: []argument{batchArgument},
	},
	{
		noun: "batches", verb: "rows", short: "Write the rows of a batch as CSV",
		method: http.MethodGet, path: "/billing/sites/{siteId}/batches/{batchReference}/rows",
		args: []argument{batchArgument}, file: true,
	},
	{
		noun: "batches", verb: "cancel", short: "Cancel the rows of a batch whose debit has not begun",
		method: http.MethodPost, path: "/billing/sites/{siteId}/batches/{batchReference}/cancellation",
		args: []argument{batchArgument}, repeatable: true,
	},
	{
		noun: "batches", verb: "retry", short: "Submit the failed rows that may succeed now as a new batch",
		method: http.MethodPost, path: "/billing/sites/{siteId}/batches/{batchReference}/retry",
		args: []argument{batchArgument, {
			parameter: parameter{name: "newReference"}, field: "batchReference", label: "NEW-REFERENCE",
		}}, repeatable: true,
	},
	{
		noun: "intents", verb: "list", short: "List the Site's payment intents, newest first",
		method: http.MethodGet, path: "/checkout/{siteId}/payment-intent", list: listPaged,
		query: []parameter{
			{name: "orderId", usage: "only payment intents of this order"},
			{name: "state", usage: "only payment intents in this state", oneOf: []string{
				client.IntentCreated, client.IntentPending, client.IntentFinal,
			}},
			{name: "transactionStatus", usage: "only payment intents with this status", oneOf: statuses},
			{name: "createdFrom", kind: kindTime, usage: "only payment intents created since"},
			{name: "createdTo", kind: kindTime, usage: "only payment intents created until"},
		},
		columns: []column{
			{"paymentIntentId", "INTENT"}, {"amount", "AMOUNT"}, {"orderId", "ORDER"},
			{"transactionStatus|state", "STATUS"}, {"createdAt", "CREATED"}, {"currency", ""}, {"state", ""},
			{"transactionStatus", ""}, {"transactionId", ""}, {"amountPaid", ""}, {"expiresAt", ""}, {"paymentUrl", ""},
			{"returnUrl", ""}, {"lineItems", ""},
		},
	},
	{
		noun: "intents", verb: "get", short: "Show a payment intent",
		method: http.MethodGet, path: "/checkout/{siteId}/payment-intent/{paymentIntentId}",
		args: []argument{intentArgument},
	},
	{
		noun: "intents", verb: "create", short: "Create a payment intent of AMOUNT minor units, such as cents",
		method: http.MethodPost, path: "/checkout/{siteId}/payment-intent", keyed: true,
		args: []argument{{parameter: parameter{name: "amount", kind: kindWhole}, label: "AMOUNT"}},
		body: []parameter{
			{name: "orderId", usage: "your id of the order"},
			{name: "qrCodeFormat", usage: "form of the QR code, by default text", preset: "text",
				oneOf: []string{"text", "base64"}},
			{name: "lineItems", kind: kindJSON, usage: "the line items as a JSON list, or @FILE"},
			{name: "expiresAt", kind: kindTime, usage: "when the payment intent expires, by default in 15 minutes"},
			{name: "returnUrl", usage: "URL that the payment page links to once the payment is final"},
		},
		extend: followIntent,
	},
	{
		noun: "intents", verb: "cancel", short: "Cancel a payment intent that no customer has started to pay",
		method: http.MethodPost, path: "/checkout/{siteId}/payment-intent/{paymentIntentId}/cancellation",
		args: []argument{intentArgument},
	},
	{
		noun: "endpoints", verb: "list", short: "List the webhook endpoints",
		method: http.MethodGet, path: "/webhooks/endpoints", list: listWhole,
		columns: []column{{"endpoint", "ENDPOINT"}, {"url", "URL"}, {"events", "EVENTS"}},
	},
	{
		noun: "endpoints", verb: "get", short: "Show a webhook endpoint",
		method: http.MethodGet, path: "/webhooks/endpoints/{endpoint}", args: []argument{endpointArgument},
	},
	{
		noun: "endpoints", verb: "put", short: "Set the URL of a webhook endpoint; the first one shows the secret",
		method: http.MethodPut, path: "/webhooks/endpoints/{endpoint}",
		args: []argument{
			{parameter: parameter{name: "endpoint"}, label: "ENDPOINT"},
			{parameter: parameter{name: "url"}, label: "URL"},
		},
		body: []parameter{{name: "events", kind: kindList, oneOf: eventTypes,
			usage: "event types, separated by commas; transactionStatus must be among them, and is the default"}},
	},
	{
		noun: "endpoints", verb: "delete", short: "Remove a webhook endpoint",
		method: http.MethodDelete, path: "/webhooks/endpoints/{endpoint}",
		args: []argument{{parameter: parameter{name: "endpoint"}, label: "ENDPOINT"}},
	},
	{
		noun: "endpoints", verb: "test", short: "Send a signed test event to a webhook endpoint",
		method: http.MethodPost, path: "/webhooks/endpoints/{endpoint}/test", args: []argument{endpointArgument},
		extend: checkTest,
	},
	{
		noun: "events", verb: "list", short: "List the webhook events, newest first",
		method: http.MethodGet, path: "/webhooks/events", list: listPaged, query: eventFilter,
		columns: []column{
			{"idempotencyKey", "EVENT"}, {"type", "TYPE"}, {"status", "STATUS"}, {"attemptCount", "TRY"},
			{"createdAt", "CREATED"}, {"siteId", ""}, {"paymentIntentId", ""}, {"transactionStatus", ""}, {"test", ""},
			{"requestedAt", ""}, {"nextAttemptAt", ""}, {"deliveredAt", ""},
		},
	},
	{
		noun: "events", verb: "get", short: "Show a webhook event with its body and every attempt",
		method: http.MethodGet, path: "/webhooks/events/{idempotencyKey}", args: []argument{eventArgument},
	},
	{
		noun: "events", verb: "redeliver", short: "Have a webhook event delivered again",
		method: http.MethodPost, path: "/webhooks/events/{idempotencyKey}/redelivery",
		args: []argument{eventArgument},
	},
	{
		noun: "events", verb: "redeliver-all", short: "Have all events that match a filter delivered again",
		method: http.MethodPost, path: "/webhooks/events/redelivery", body: eventFilter,
	},
	{
		noun: "secret", verb: "rotate", short: "Create the next webhook secret and show it",
		method: http.MethodPost, path: "/webhooks/secret/rotation",
		body: []parameter{{name: "activateAt", kind: kindTime,
			usage: "when x-svc-signature moves to it, by default in 24 hours"}},
	},
	{
		noun: "movements", verb: "list", short: "List the Site's movements of money, newest first",
		method: http.MethodGet, path: "/billing/sites/{siteId}/movements", list: listPaged,
		query: []parameter{
			{name: "from", kind: kindTime, usage: "only movements since"},
			{name: "to", kind: kindTime, usage: "only movements until"},
		},
		columns: []column{
			{"at", "AT"}, {"amount", "AMOUNT"}, {"currency", "CURRENCY"},
			{"batchReference|paymentIntentId", "BATCH OR INTENT"}, {"rowReference|orderId", "ROW OR ORDER"},
			{"customerReference", "CUSTOMER"}, {"movementId", ""}, {"batchReference", ""}, {"rowReference", ""},
			{"paymentIntentId", ""}, {"orderId", ""},
		},
	},
	{
		noun: "clock", verb: "get", short: "Show the sandbox's clock", method: http.MethodGet, path: "/sandbox/clock",
	},
	{
		noun: "clock", verb: "advance", short: "Move the sandbox's clock forward, by a duration such as 24h",
		method: http.MethodPost, path: "/sandbox/clock",
		args: []argument{{parameter: parameter{name: "advanceMs", kind: kindSpan}, label: "DURATION"}},
	},
	{
		noun: "sandbox", verb: "signup", short: "Play a customer who accepts the newest invitation",
		method: http.MethodPost, path: "/sandbox/sites/{siteId}/customers/{customerReference}/signup",
		args: []argument{customerArgument}, body: []parameter{behaviourParameter},
	},
	{
		noun: "sandbox", verb: "pay", short: "Play a customer who scans and pays",
		method: http.MethodPost, path: "/sandbox/payment-intents/{paymentIntentId}/payment",
		args: []argument{intentArgument}, body: []parameter{
			behaviourParameter, {name: "discounts", kind: kindJSON, usage: "the discounts as a JSON list, or @FILE"},
		},
	},
	{
		noun: "logs", verb: "list", short: "List the latest requests to a sandbox, newest first",
		method: http.MethodGet, path: "/sandbox/requests", list: listWhole,
		query: append([]parameter{
			{name: "limit", kind: kindWhole, usage: "maximum number of items, up to 1000 (default 100)"},
		}, logFilter...),
		columns: logColumns,
	},
	{
		noun: "trace", short: "Show what a request led to, by the traceId of its answer",
		method: http.MethodGet, path: "/traces/{traceId}",
		args: []argument{{parameter: parameter{name: "traceId"}, label: "TRACE-ID"}},
	},
}

// nestedColumns are the columns of lists within a printed object, by the name of the list. The
// columns of other lists are the fields of their first item.
var nestedColumns = map[string][]column{
	"rows": {
		{"rowReference", "ROW"}, {"customerReference", "CUSTOMER"}, {"amount", "AMOUNT"}, {"state", "STATE"},
		{"correctedOutcome|outcome", "OUTCOME"}, {"settledAt|nextAttemptAt", "SETTLED OR NEXT"}, {"attempts", "TRIES"},
	},
	"attempts": {
		{"number", "NO"}, {"startedAt", "AT"}, {"statusCode", "STATUS"}, {"durationMs", "MS"}, {"url", "URL"},
		{"error", "ERROR"},
	},
	"events": {{"idempotencyKey", "EVENT"}, {"type", "TYPE"}, {"status", "STATUS"}, {"attempts", "TRIES"}},
}
