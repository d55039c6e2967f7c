package api_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/apitest"
	"partnerbilling/models"
)

// notificationSchema returns the description's schema of an event's body.
func notificationSchema(t *testing.T, event models.WebhookEventType) *openapi3.MediaType {
	t.Helper()
	description, err := apitest.Served()
	if err != nil {
		t.Fatal(err)
	}
	item := description.Document().Webhooks[string(event)]
	if item == nil || item.Post == nil || item.Post.RequestBody == nil {
		t.Fatalf("%s is not described", event)
	}
	return item.Post.RequestBody.Value.Content["application/json"]
}

// asDescribed checks a body that was sent against the description.
func asDescribed(t *testing.T, event models.WebhookEventType, body []byte) {
	t.Helper()
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		t.Fatalf("%s: %v", event, err)
	}
	if err := notificationSchema(t, event).Schema.Value.VisitJSON(value, openapi3.EnableJSONSchema2020()); err != nil {
		t.Errorf("%s is not as described: %v\n%s", event, err, body)
	}
}

// Every type of event is described, and its example matches its schema.
func TestEveryEventIsDescribed(t *testing.T) {
	description, err := apitest.Served()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, event := range models.WebhookEventTypes {
		want = append(want, string(event))
		examples := notificationSchema(t, event).Examples
		if len(examples) == 0 {
			t.Errorf("%s has no example", event)
		}
		for _, example := range examples {
			body, err := json.Marshal(example.Value.Value)
			if err != nil {
				t.Fatal(err)
			}
			asDescribed(t, event, body)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(description.Document().Webhooks))); diff != "" {
		t.Errorf("events (-) and described (+):\n%s", diff)
	}
}
