package api

import (
	"net/http"
	"slices"
	"time"

	"partnerbilling/api/auth"
	"partnerbilling/api/docs"
	"partnerbilling/api/ratelimit"
	"partnerbilling/models"
)

const (
	// webhookTestTimeout exceeds the time-out of an attempt, so that the answer can report the
	// attempt.
	webhookTestTimeout = 20 * time.Second
	// redeliveryTimeout bounds a redelivery by filter, which runs in several database transactions.
	redeliveryTimeout = 25 * time.Second
)

// The path parameters other than siteId. The code and the token are secrets in links.
var (
	customerParam     = Param{Name: "customerReference", Check: models.ValidateReference, NotFound: CustomerNotFound}
	inviteeParam      = Param{Name: "customerReference", Check: models.ValidateReference, NotFound: NoLiveInvitation}
	batchParam        = Param{Name: "batchReference", Check: models.ValidateReference, NotFound: BatchNotFound}
	traceParam        = Param{Name: "traceId", Check: checkTraceID, NotFound: TraceNotFound}
	webhookEventParam = Param{Name: "idempotencyKey", Check: parses[models.WebhookEventID],
		NotFound: WebhookEventNotFound}
	paymentIntentParam = Param{Name: "paymentIntentId", Check: parses[models.PaymentIntentID],
		NotFound: PaymentIntentNotFound}
	intentCodeParam = Param{Name: "code", Check: checkIntentCode, NotFound: PaymentIntentNotFound}
	signupParam     = Param{Name: "token", NotFound: SignupNotFound}
	linkParam       = Param{Name: "linkId", Check: parses[models.LinkID], NotFound: CustomerLinkNotFound}
	guideParam      = Param{Name: "guide", NotFound: NotFound}
	assetParam      = Param{Name: "asset", NotFound: NotFound}
)

// routes returns the route table. Each row begins with the method, the path and the audience.
func routes(cfg Config) []Route {
	const get, post, put, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	const site = "/billing/sites/{siteId}"
	var (
		customers       = newCustomers(cfg)
		invitations     = newInvitations(cfg)
		heldRequests    = newHeldRequests(cfg)
		batches         = newBatches(cfg, heldRequests)
		movements       = newMovements(cfg)
		traces          = newTraces(cfg)
		streams         = newEventStreams(cfg)
		webhooks        = newWebhooks(cfg, streams)
		intents         = newPaymentIntents(cfg, heldRequests)
		payments        = newCustomerPayments(cfg)
		signups         = newSignups(cfg)
		signupPage      = &signupPage{newHostedPage(cfg), cfg.Keys}
		paymentPage     = &paymentPage{newHostedPage(cfg), cfg.Notify}
		held            = MaxWait + cfg.RequestTimeout // time-out of routes with Prefer: wait
		customerFilters = []string{"limit", "state", "invitedFrom", "invitedTo"}
		batchFilters    = []string{"limit", "state", "submittedFrom", "submittedTo"}
		intentFilters   = []string{"limit", "orderId", "state", "transactionStatus", "createdFrom", "createdTo"}
		eventFilters    = []string{"limit", "status", "type", "siteId", "paymentIntentId", "from", "to"}
	)
	table := []Route{
		// Public
		{Method: get, Path: "/", Audience: Public, Page: true, Handler: landing(cfg)},
		{Method: get, Path: "/openapi.json", Audience: Public, Handler: serveOpenAPI},
		{Method: get, Path: docs.Path, Audience: Public, Handler: serveDocs},
		{Method: get, Path: docs.Path + "/reference", Audience: Public, Handler: serveReference(cfg)},
		{Method: get, Path: docs.Path + "/guides/{guide}", Audience: Public, Handler: serveGuide, Param: guideParam},
		{Method: get, Path: docs.Path + "/assets/{asset}", Audience: Public, Handler: serveAsset, Param: assetParam},
		{Method: post, Path: auth.TokenPath, Audience: Public, Handler: ownIssuer(cfg, issueToken), OAuth: true},
		{Method: get, Path: auth.JWKSPath, Audience: Public, Handler: ownIssuer(cfg, serveJWKS)},
		{Method: get, Path: auth.MetadataPath, Audience: Public, Handler: ownIssuer(cfg, serveMetadata)},

		// Customers of a Site
		{Method: get, Path: site + "/customers", Audience: Partner, Handler: customers.list,
			Scope: models.ScopeCustomersRead, Version: VersionRequired, Area: "customers",
			Paged: true, Query: customerFilters},
		{Method: get, Path: site + "/customers/{customerReference}", Audience: Partner, Handler: customers.get,
			Scope: models.ScopeCustomersRead, Version: VersionOptional, Area: "customers", Param: customerParam},
		{Method: post, Path: site + "/customers/{customerReference}/revocation", Audience: Partner,
			Handler: customers.revoke,
			Act:     models.ActRevokeCustomer,
			Scope:   models.ScopeCustomersWrite, Version: VersionOptional, Area: "customers", Param: customerParam},
		{Method: post, Path: site + "/customers/invitations", Audience: Partner, Handler: invitations.create,
			Scope: models.ScopeCustomersWrite, Version: VersionOptional, Area: "invitations",
			Body: JSONBody, Idempotent: true},
		{Method: post, Path: site + "/customers/{customerReference}/invitation-link", Audience: Partner,
			Handler: invitations.resend,
			Scope:   models.ScopeCustomersWrite, Version: VersionOptional, Area: "invitations", Param: inviteeParam},

		// Batches of a Site
		{Method: get, Path: site + "/batches", Audience: Partner, Handler: batches.list,
			Scope: models.ScopeBatchesRead, Version: VersionOptional, Area: "batches",
			Paged: true, Query: batchFilters},
		{Method: post, Path: site + "/batches", Audience: Partner, Handler: batches.submit,
			Scope: models.ScopeBatchesWrite, Version: VersionOptional, Area: "batches", Rate: ratelimit.Batches,
			Body: JSONBody, Bounds: BatchBody},
		{Method: post, Path: site + "/batches/validation", Audience: Partner, Handler: batches.validate,
			Scope: models.ScopeBatchesWrite, Version: VersionOptional, Area: "batches", Rate: ratelimit.Batches,
			Body: JSONBody, Bounds: BatchBody},
		{Method: get, Path: site + "/batches/{batchReference}", Audience: Partner, Handler: batches.get,
			Scope: models.ScopeBatchesRead, Version: VersionOptional, Area: "batches", Param: batchParam,
			Timeout: held},
		{Method: get, Path: site + "/batches/{batchReference}/rows", Audience: Partner, Handler: batches.rowsCSV,
			Scope: models.ScopeBatchesRead, Version: VersionOptional, Area: "batches", Param: batchParam},
		{Method: post, Path: site + "/batches/{batchReference}/cancellation", Audience: Partner,
			Handler: batches.cancel,
			Act:     models.ActCancelBatch,
			Scope:   models.ScopeBatchesWrite, Version: VersionOptional, Area: "batches", Param: batchParam},
		{Method: post, Path: site + "/batches/{batchReference}/retry", Audience: Partner, Handler: batches.retry,
			Act:   models.ActRetryBatch,
			Scope: models.ScopeBatchesWrite, Version: VersionOptional, Area: "batches", Rate: ratelimit.Batches,
			Param: batchParam, Body: JSONBody},

		// Movements of money, and traces
		{Method: get, Path: site + "/movements", Audience: Partner, Handler: movements.list,
			Scope: models.ScopeMovementsRead, Version: VersionOptional,
			Paged: true, Query: []string{"limit", "from", "to"}},
		{Method: get, Path: "/traces/{traceId}", Audience: Partner, Handler: traces.get, Param: traceParam},

		// Webhooks of the organisation
		{Method: get, Path: "/webhooks/endpoints", Audience: Partner, Handler: webhooks.listEndpoints,
			Scope: models.ScopeWebhooksRead, Area: "webhooks"},
		{Method: get, Path: "/webhooks/endpoints/default", Audience: Partner, Handler: webhooks.getEndpoint,
			Scope: models.ScopeWebhooksRead, Area: "webhooks"},
		{Method: put, Path: "/webhooks/endpoints/default", Audience: Partner, Handler: webhooks.putEndpoint,
			Act:   models.ActPutWebhookEndpoint,
			Scope: models.ScopeWebhooksWrite, Area: "webhooks", Body: JSONBody},
		{Method: del, Path: "/webhooks/endpoints/default", Audience: Partner, Handler: webhooks.deleteEndpoint,
			Act:   models.ActDeleteWebhookEndpoint,
			Scope: models.ScopeWebhooksWrite, Area: "webhooks"},
		{Method: post, Path: "/webhooks/endpoints/default/test", Audience: Partner, Handler: webhooks.testEndpoint,
			Act:   models.ActTestWebhookEndpoint,
			Scope: models.ScopeWebhooksWrite, Area: "webhooks", Timeout: webhookTestTimeout},
		{Method: get, Path: "/webhooks/endpoints/{siteId}", Audience: Partner, Handler: webhooks.getEndpoint,
			Scope: models.ScopeWebhooksRead, Area: "webhooks"},
		{Method: put, Path: "/webhooks/endpoints/{siteId}", Audience: Partner, Handler: webhooks.putEndpoint,
			Act:   models.ActPutWebhookEndpoint,
			Scope: models.ScopeWebhooksWrite, Area: "webhooks", Body: JSONBody},
		{Method: del, Path: "/webhooks/endpoints/{siteId}", Audience: Partner, Handler: webhooks.deleteEndpoint,
			Act:   models.ActDeleteWebhookEndpoint,
			Scope: models.ScopeWebhooksWrite, Area: "webhooks"},
		{Method: post, Path: "/webhooks/endpoints/{siteId}/test", Audience: Partner, Handler: webhooks.testEndpoint,
			Act:   models.ActTestWebhookEndpoint,
			Scope: models.ScopeWebhooksWrite, Area: "webhooks", Timeout: webhookTestTimeout},
		{Method: post, Path: "/webhooks/secret/rotation", Audience: Partner, Handler: webhooks.rotateSecret,
			Act:   models.ActRotateWebhookSecret,
			Scope: models.ScopeWebhooksWrite, Area: "webhooks", Body: OptionalJSON},
		{Method: get, Path: "/webhooks/events", Audience: Partner, Handler: webhooks.listEvents,
			Scope: models.ScopeWebhooksRead, Area: "webhooks", Paged: true, Query: eventFilters},
		{Method: post, Path: "/webhooks/events/redelivery", Audience: Partner, Handler: webhooks.redeliverMany,
			Act:   models.ActRedeliverWebhooks,
			Scope: models.ScopeWebhooksWrite, Area: "webhooks", Body: JSONBody, Timeout: redeliveryTimeout},
		{Method: get, Path: "/webhooks/events/{idempotencyKey}", Audience: Partner, Handler: webhooks.getEvent,
			Scope: models.ScopeWebhooksRead, Area: "webhooks", Param: webhookEventParam},
		{Method: post, Path: "/webhooks/events/{idempotencyKey}/redelivery", Audience: Partner,
			Handler: webhooks.redeliver,
			Act:     models.ActRedeliverWebhook,
			Scope:   models.ScopeWebhooksWrite, Area: "webhooks", Param: webhookEventParam},
		{Method: get, Path: "/webhooks/listen", Audience: Partner, Handler: webhooks.listen,
			Scope: models.ScopeWebhooksRead, Area: "webhooks"},

		// Checkout of a Site
		{Method: get, Path: "/checkout/{siteId}/payment-intent", Audience: Partner, Handler: intents.list,
			Scope: models.ScopePaymentIntentsRead, Paged: true, Query: intentFilters},
		{Method: post, Path: "/checkout/{siteId}/payment-intent", Audience: Partner, Handler: intents.create,
			Scope: models.ScopePaymentIntentsWrite, Body: JSONBody, Idempotent: true},
		{Method: get, Path: "/checkout/{siteId}/payment-intent/{paymentIntentId}", Audience: Partner,
			Handler: intents.get,
			Scope:   models.ScopePaymentIntentsRead, Param: paymentIntentParam, Timeout: held},
		{Method: post, Path: "/checkout/{siteId}/payment-intent/{paymentIntentId}/cancellation", Audience: Partner,
			Handler: intents.cancel,
			Act:     models.ActCancelPaymentIntent,
			Scope:   models.ScopePaymentIntentsWrite, Param: paymentIntentParam},

		// The customer app's backend
		{Method: get, Path: "/customer-app/payment-intents/{code}", Audience: CustomerApp, Handler: payments.get,
			Scope: models.ScopePaymentsWrite, Param: intentCodeParam},
		{Method: post, Path: "/customer-app/payment-intents/{code}/transactions", Audience: CustomerApp,
			Handler: payments.pay,
			Scope:   models.ScopePaymentsWrite, Param: intentCodeParam, Body: JSONBody},
		{Method: get, Path: "/customer-app/signups/{token}", Audience: CustomerApp, Handler: signups.get,
			Scope: models.ScopeSignupsWrite, Area: "signups", Param: signupParam},
		{Method: post, Path: "/customer-app/signups/{token}/completion", Audience: CustomerApp,
			Handler: signups.complete,
			Scope:   models.ScopeSignupsWrite, Area: "signups", Param: signupParam, Body: JSONBody},
		{Method: post, Path: "/customer-app/links/{linkId}/revocation", Audience: CustomerApp, Handler: signups.revoke,
			Act:   models.ActRevokeCustomer,
			Scope: models.ScopeSignupsWrite, Area: "customers", Param: linkParam},

		// Pages that customers open
		{Method: get, Path: "/signup/{token}", Audience: Public, Handler: signupPage.show,
			Page: true, Area: "signups", Param: signupParam},
		{Method: get, Path: "/P/{code}", Audience: Public, Handler: paymentPage.show, Page: true,
			Param: intentCodeParam},
	}
	if !cfg.SeparateOpsListener {
		table = append(table,
			Route{Method: get, Path: "/livez", Audience: Public, Handler: live, SkipAdmission: true},
			Route{Method: get, Path: "/readyz", Audience: Public, Handler: readyHandler(cfg), SkipAdmission: true},
			Route{Method: get, Path: "/metrics", Audience: Public, Handler: metricsHandler(cfg.Metrics),
				SkipAdmission: true},
		)
	}
	if cfg.Sandbox == nil {
		return table
	}

	// The sandbox plays the customer app, and shows the request log
	sandbox := &sandbox{store: cfg.Store}
	requests := &loggedRequests{log: cfg.requests, streams: streams, now: cfg.Now}
	table = append(table,
		Route{Method: post, Path: "/sandbox/sites/{siteId}/customers/{customerReference}/signup", Audience: Partner,
			Handler: sandbox.signup,
			Scope:   models.ScopeCustomersWrite, Area: "signups", Param: customerParam, Body: OptionalJSON},
		Route{Method: post, Path: "/sandbox/payment-intents/{paymentIntentId}/payment", Audience: Partner,
			Handler: payments.payInSandbox,
			Scope:   models.ScopePaymentIntentsWrite, Param: paymentIntentParam, Body: OptionalJSON},
		Route{Method: get, Path: loggedRequestsPath, Audience: Partner, Handler: requests.list,
			Query: []string{"limit", "status", "method", "path"}},
		Route{Method: post, Path: "/signup/{token}", Audience: Public, Handler: signupPage.act,
			Page: true, Area: "signups", Param: signupParam, Body: FormBody, Bounds: pageForm},
		Route{Method: post, Path: "/P/{code}", Audience: Public, Handler: paymentPage.act,
			Page: true, Param: intentCodeParam, Body: FormBody, Bounds: pageForm},
	)
	if !cfg.Sandbox.Clock {
		return table
	}
	return slices.Concat(table, []Route{
		{Method: get, Path: "/sandbox/clock", Audience: Partner, Handler: sandbox.readClock},
		{Method: post, Path: "/sandbox/clock", Audience: Partner, Handler: sandbox.moveClock, Body: JSONBody},
	})
}
