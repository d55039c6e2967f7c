package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"partnerbilling/api"
	"partnerbilling/api/apitest"
	"partnerbilling/api/auth"
	"partnerbilling/api/docs"
	"partnerbilling/models"
)

func newServer(checks ...api.ReadinessCheck) *api.Server {
	return api.New(api.Config{
		Authenticator: tokens, Sites: tokens, Checks: checks, Metrics: prometheus.NewRegistry(),
		Log: slog.New(slog.DiscardHandler), Sandbox: &api.Sandbox{Clock: true}, // the whole table
	})
}

func TestEveryRouteIsDescribedAndEveryDescriptionRouted(t *testing.T) {
	description, err := apitest.Served()
	if err != nil {
		t.Fatal(err)
	}
	var described, routed []string
	for path, item := range description.Document().Paths.Map() {
		for method, operation := range item.Operations() {
			described = append(described, method+" "+path)
			if operation.OperationID == "" || operation.Summary == "" || len(operation.Tags) != 1 {
				t.Errorf("%s %s has no operationId, summary or tag", method, path)
			}
			if len(operation.Tags) == 1 && description.Document().Tags.Get(operation.Tags[0]) == nil {
				t.Errorf("%s %s: the tag %s is not listed", method, path, operation.Tags[0])
			}
		}
	}
	for _, route := range newServer().Routes() {
		routed = append(routed, route.Method+" "+route.Path)
	}
	slices.Sort(described)
	slices.Sort(routed)
	if diff := cmp.Diff(described, routed); diff != "" {
		t.Errorf("described (-) and routed (+):\n%s", diff)
	}
}

// The description agrees with the route table.
func TestDescriptionAgreesWithTheTable(t *testing.T) {
	description, err := apitest.Served()
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range newServer().Routes() {
		name := route.Method + " " + route.Path
		item := description.Document().Paths.Value(route.Path)
		if item == nil {
			continue // the test above reports it
		}
		operation := item.GetOperation(route.Method)
		if operation == nil {
			continue
		}
		scopes := []string{}
		if operation.Security != nil {
			for _, requirement := range *operation.Security {
				scopes = append(scopes, requirement["token"]...)
			}
		} else {
			t.Errorf("%s says nothing of security", name)
		}
		want := []string{}
		if route.Scope != "" {
			want = append(want, string(route.Scope))
		}
		if diff := cmp.Diff(want, scopes); diff != "" {
			t.Errorf("%s: scopes of the table (-) and the description (+):\n%s", name, diff)
		}
		var query, header []string
		for _, p := range slices.Concat(item.Parameters, operation.Parameters) {
			switch p.Value.In {
			case "query":
				query = append(query, p.Value.Name)
			case "header":
				header = append(header, fmt.Sprint(p.Value.Name, p.Value.Required))
			}
		}
		known := slices.Clone(route.Query)
		if route.Paged {
			known = append(known, "cursor")
		}
		slices.Sort(query)
		slices.Sort(known)
		if !slices.Equal(query, known) {
			t.Errorf("%s: query parameters %v, described %v", name, known, query)
		}
		version := map[api.Versioning]string{api.VersionOptional: "Svc-Api-Versionfalse",
			api.VersionRequired: "Svc-Api-Versiontrue"}[route.Version]
		if version != "" && !slices.Contains(header, version) || version == "" &&
			strings.Contains(fmt.Sprint(header), "Svc-Api-Version") {
			t.Errorf("%s: header parameters %v", name, header)
		}
		if route.Idempotent != slices.Contains(header, "Idempotency-Keyfalse") {
			t.Errorf("%s: header parameters %v", name, header)
		}
		isOwnAffair := route.Path == auth.TokenPath // the token endpoint checks its body itself
		if hasBody := operation.RequestBody != nil; hasBody != (route.Body != api.NoBody || isOwnAffair) {
			t.Errorf("%s: describes a body: %v", name, hasBody)
		}
		if operation.RequestBody != nil && operation.RequestBody.Value.Required == (route.Body == api.OptionalJSON) {
			t.Errorf("%s: required body: %v", name, operation.RequestBody.Value.Required)
		}
	}
}

func TestRouteTableIsSound(t *testing.T) {
	for _, route := range newServer().Routes() {
		name := route.Method + " " + route.Path
		underBilling := strings.HasPrefix(route.Path, "/billing/")
		if underBilling != (route.Version != api.VersionIgnored) {
			t.Errorf("%s: version header is treated as %v", name, route.Version)
		}
		if route.Audience == api.Public && route.Scope != "" || route.Audience == 0 || route.Handler == nil {
			t.Errorf("%s: audience %v, scope %q", name, route.Audience, route.Scope)
		}
		isForAnyPartner := slices.Contains(
			[]string{"/sandbox/clock", "/sandbox/requests", "/traces/{traceId}"}, route.Path)
		if route.Audience == api.Partner && !slices.Contains(models.PartnerScopes, route.Scope) && !isForAnyPartner ||
			route.Audience == api.CustomerApp && !slices.Contains(models.CustomerAppScopes, route.Scope) {
			t.Errorf("%s: the audience cannot have the scope %q", name, route.Scope)
		}
		params := regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(route.Path, -1)
		for _, p := range params {
			if p[1] != "siteId" && (p[1] != route.Param.Name || route.Param.NotFound == "") {
				t.Errorf("%s: nothing checks the parameter %s", name, p[1])
			}
		}
	}
}

func TestCatalogue(t *testing.T) {
	pattern := regexp.MustCompile(
		`^urn:svc:platform:billing:error:(requests|auth|sites|customers|invitations|batches|webhooks|signups):[a-z]+(-[a-z]+)*$`)
	seen := map[api.Code]bool{}
	for _, e := range api.Catalogue() {
		if !pattern.MatchString(e.Code.URN()) || seen[e.Code] {
			t.Errorf("code %s", e.Code.URN())
		}
		seen[e.Code] = true
		if e.Status < 400 || e.Status > 599 || http.StatusText(e.Status) == "" || !strings.HasSuffix(e.Message, ".") {
			t.Errorf("%s: status %d, message %q", e.Code, e.Status, e.Message)
		}
		if got := api.Refuse(e.Code, "x"); got.Status() != e.Status || got.Faults[0].Message != e.Message ||
			!strings.Contains(got.Error(), string(e.Code)) {
			t.Errorf("%s: %+v", e.Code, got)
		}
	}
	for _, name := range strings.Fields(`requests:malformed-json requests:missing-field
		requests:invalid-field requests:invalid-parameter
		requests:unsupported-media-type requests:body-too-large requests:not-found requests:method-not-allowed
		requests:unsupported-api-version requests:rate-limited requests:idempotency-key-reused requests:idempotency-key-in-flight
		requests:unavailable requests:internal auth:invalid-token auth:insufficient-scope sites:site-not-accessible
		customers:invalid-pagination-link customers:invalid-parameter customers:customer-not-found
		invitations:customer-reference-active batches:batch-reference-conflict batches:batch-not-found batches:invalid-field`) {
		if !seen[api.Code(name)] {
			t.Errorf("the contract's %s is not in the catalogue", name)
		}
	}
}

func TestErrorsCarryTheirCause(t *testing.T) {
	cause := errors.New("cause")
	e := api.RefuseField(api.InvalidField, "amount", "must be less")
	e.Cause = cause
	if !errors.Is(fmt.Errorf("wrapped: %w", e), cause) || !strings.Contains(e.Error(), "amount must be less: cause") {
		t.Errorf("%v", e)
	}
	if err := api.BodyError("batches", nil); err != nil {
		t.Errorf("no faults are an error: %v", err)
	}
}

func TestDescriptionIsServed(t *testing.T) {
	c := apitest.New(t, newServer())
	var document struct {
		OpenAPI string `json:"openapi"`
		Shared  any    `json:"x-shared"`
	}
	a := c.Get("/openapi.json").Expect(200)
	if err := json.Unmarshal(a.Body, &document); err != nil || document.OpenAPI != "3.1.0" || document.Shared != nil {
		t.Errorf("%v %+v", err, document)
	}
}

func TestDocsListEverything(t *testing.T) {
	server := newServer()
	c := apitest.New(t, server)
	page := html.UnescapeString(string(c.Get("/docs").Expect(200).Body))
	for _, route := range server.Routes() {
		if !strings.Contains(page, "<b>"+route.Method+"</b> "+route.Path+"<") {
			t.Errorf("the page does not have %s %s", route.Method, route.Path)
		}
	}
	for _, e := range api.Catalogue() {
		if !strings.Contains(page, e.Code.URN()) || !strings.Contains(page, e.Message) {
			t.Errorf("the page does not have %s", e.Code)
		}
	}
}

// Each page of the documentation has a policy, and its assets arrive compressed or not, as the
// client wants.
func TestDocsPages(t *testing.T) {
	c := apitest.New(t, newServer())
	for path, policy := range map[string]string{
		"/docs": docs.PagePolicy, "/docs/guides/webhooks": docs.PagePolicy, "/docs/reference": docs.ReferencePolicy,
	} {
		a := c.Get(path).Expect(200)
		if got := a.Header.Get("Content-Security-Policy"); got != policy {
			t.Errorf("%s: policy %s", path, got)
		}
		if a.Header.Get("Content-Type") != "text/html;charset=UTF-8" ||
			a.Header.Get("Cache-Control") != "public, max-age=300" {
			t.Errorf("%s: %v", path, a.Header)
		}
	}
	c.Get("/docs/guides/nothing").Refused(404, "requests:not-found")
	c.Get("/docs/assets/nothing.js").Refused(404, "requests:not-found")

	plain := c.Get("/docs/assets/scalar.js").Expect(200)
	packed := c.With("Accept-Encoding", "br, gzip").Get("/docs/assets/scalar.js").Expect(200)
	if plain.Header.Get("Content-Encoding") != "" || packed.Header.Get("Content-Encoding") != "gzip" ||
		packed.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("plain: %v\ncompressed: %v", plain.Header, packed.Header)
	}
	reader, err := gzip.NewReader(bytes.NewReader(packed.Body))
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(reader); err != nil || !bytes.Equal(body, plain.Body) || len(body) < 1<<20 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

// A JSON error leads to the explanation of its code.
func TestErrorsLinkToTheirExplanation(t *testing.T) {
	c := apitest.New(t, newServer())
	for path, want := range map[string]string{
		"/nothing":                     "requestsnot-found",
		"/checkout/x/payment-intent":   "authinvalid-token",
		"/billing/sites/x/customers":   "authinvalid-token",
		"/docs/guides/%2e%2e%2fREADME": "requestsnot-found",
	} {
		link := c.Get(path).Header.Get("Link")
		if !strings.HasSuffix(link, "/docs/guides/error-codes#"+want+`>; rel="help"`) {
			t.Errorf("%s: Link %q", path, link)
		}
	}
}

func TestReadiness(t *testing.T) {
	var postgres, redis error
	c := apitest.New(t, newServer(
		api.ReadinessCheck{Name: "postgres", Required: true, Check: func(context.Context) error { return postgres }},
		api.ReadinessCheck{Name: "redis", Check: func(context.Context) error { return redis }},
	))
	var ready struct {
		Status string
		Checks map[string]string
	}
	measured := func(postgres, redis int) {
		t.Helper()
		metrics := string(c.Get("/metrics").Expect(200).Body)
		for name, want := range map[string]int{"postgres": postgres, "redis": redis} {
			if line := fmt.Sprintf("svc_dependency_up{dependency=%q} %d\n", name,
				want); !strings.Contains(metrics, line) {
				t.Errorf("the metrics lack %s", line)
			}
		}
	}
	c.Get("/readyz").Expect(200).Data(&ready)
	if ready.Status != "ready" || ready.Checks["postgres"] != "ok" || ready.Checks["redis"] != "ok" {
		t.Errorf("%+v", ready)
	}
	measured(1, 1)
	redis = errors.New("secret")
	measured(1, 0)
	c.Get("/readyz").Expect(200).Data(&ready)
	if ready.Checks["redis"] != "unavailable" {
		t.Errorf("%+v", ready)
	}
	postgres = errors.New("secret")
	measured(0, 0)
	a := c.Get("/readyz").Refused(503, "requests:unavailable postgres")
	if a.Header.Get("Retry-After") == "" || strings.Contains(string(a.Body), "secret") {
		t.Errorf("%v %s", a.Header, a.Body)
	}
	var live struct{ Status string }
	if c.Get("/livez").Expect(200).Data(&live); live.Status != "live" {
		t.Errorf("%+v", live)
	}
}

// A worker answers health requests like the API, except for the traceId.
func TestOpsHandlerAnswersAsTheAPIDoes(t *testing.T) {
	var postgres error
	checks := []api.ReadinessCheck{
		{Name: "postgres", Required: true, Check: func(context.Context) error { return postgres }},
		{Name: "redis", Required: true, Check: func(context.Context) error { return nil }},
	}
	c := apitest.New(t, newServer(checks...))
	worker := api.OpsHandler(checks, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	trace := regexp.MustCompile(`"traceId":"[0-9a-f]{32}"`)
	same := func(path string) {
		t.Helper()
		want, got := c.Get(path), httptest.NewRecorder()
		worker.ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if got.Code != want.Status || len(trace.FindAllString(got.Body.String(), -1)) != 1 ||
			trace.ReplaceAllString(got.Body.String(), "") != trace.ReplaceAllString(string(want.Body), "") {
			t.Errorf("%s: %d %s, want %d %s", path, got.Code, got.Body, want.Status, want.Body)
		}
		for _, name := range []string{"Content-Type", "Retry-After"} {
			if got.Header().Get(name) != want.Header.Get(name) {
				t.Errorf("%s: %s %q, want %q", path, name, got.Header().Get(name), want.Header.Get(name))
			}
		}
	}
	same("/livez")
	same("/readyz")
	postgres = errors.New("secret")
	same("/readyz")
}

func TestMetricsAreServed(t *testing.T) {
	c := apitest.New(t, newServer())
	c.Get("/livez")
	a := c.Get("/metrics").Expect(200)
	if !strings.Contains(string(a.Body), `svc_http_requests_total{method="GET",route="/livez",status="200"} 1`) {
		t.Errorf("%s", a.Body)
	}
	if got := a.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4") {
		t.Errorf("content type %s", got)
	}
}
