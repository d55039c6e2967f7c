package api

import (
	"net/http"
	"slices"
)

// routes returns the route table. Each noun's rows are in its own file.
func routes(cfg Config) []Route {
	return slices.Concat(
		landingRoutes(cfg),
		opsRoutes(cfg),
		documentRoutes(),
		oauthRoutes(cfg),
		customerRoutes(cfg),
		invitationRoutes(cfg),
		batchRoutes(cfg),
		movementRoutes(cfg),
		traceRoutes(cfg),
		webhookEndpointRoutes(cfg),
		webhookEventRoutes(cfg),
		paymentIntentRoutes(cfg),
		customerPaymentRoutes(cfg),
		signupRoutes(cfg),
		signupPageRoutes(cfg),
		paymentPageRoutes(cfg),
		sandboxRoutes(cfg),
	)
}

// opsRoutes returns the operator's routes, unless they have a listener of their own.
func opsRoutes(cfg Config) []Route {
	if cfg.SeparateOpsListener {
		return nil
	}
	return []Route{
		{Method: http.MethodGet, Path: "/livez", Audience: Public, SkipAdmission: true, Handler: live},
		{Method: http.MethodGet, Path: "/readyz", Audience: Public, SkipAdmission: true, Handler: readyHandler(cfg)},
		{Method: http.MethodGet, Path: "/metrics", Audience: Public, SkipAdmission: true,
			Handler: metricsHandler(cfg.Metrics)},
	}
}

// documentRoutes returns the routes of the documentation.
func documentRoutes() []Route {
	return []Route{
		{Method: http.MethodGet, Path: "/openapi.json", Audience: Public, Handler: serveOpenAPI},
		{Method: http.MethodGet, Path: "/docs", Audience: Public, Handler: serveDocs},
	}
}
