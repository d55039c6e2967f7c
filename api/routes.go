package api

import (
	"net/http"
	"slices"
)

// routes is the whole route table: each noun's rows are in its own file.
func routes(cfg Config) []Route {
	return slices.Concat(
		landingRoutes(cfg),
		systemRoutes(cfg),
		oauthRoutes(cfg),
		customerRoutes(cfg),
		invitationRoutes(cfg),
		batchRoutes(cfg),
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

// systemRoutes are for those who run the service and those who read about it.
func systemRoutes(cfg Config) []Route {
	return []Route{
		{Method: http.MethodGet, Path: "/livez", Audience: Public, Always: true, Handler: live},
		{Method: http.MethodGet, Path: "/readyz", Audience: Public, Always: true, Handler: readyHandler(cfg)},
		{Method: http.MethodGet, Path: "/metrics", Audience: Public, Always: true, Handler: metricsHandler(cfg.Metrics)},
		{Method: http.MethodGet, Path: "/openapi.json", Audience: Public, Handler: serveOpenAPI},
		{Method: http.MethodGet, Path: "/docs", Audience: Public, Handler: serveDocs},
	}
}
