package models

import (
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// The derivation of event keys must never change: after a loss, every event would be reported under
// a new key.
func TestWebhookEventIDGolden(t *testing.T) {
	t.Parallel()
	intent, err := ParseID[intentNoun]("pi_01932c07-4a5b-7c6d-8e9f-0123456789ab")
	if err != nil {
		t.Fatal(err)
	}
	batch := BatchID(intent)
	for want, got := range map[string]WebhookEventID{
		"evt_01932c07-4a5b-71bc-848e-0e8b98f77d7e": webhookEventIDOf(intent, EventTransactionStatus, "Settled"),
		"evt_01932c07-4a5b-79f1-ab1f-be9da0bb53b9": webhookEventIDOf(intent, EventTransactionStatus, "Declined"),
		"evt_01932c07-4a5b-76de-a021-ac0069c07e94": webhookEventIDOf(batch, EventRowCorrected, "row 1", "succeeded"),
	} {
		if got.String() != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// An event's id is a UUIDv7 of its subject's time. It depends on subject, type and value alone.
func TestWebhookEventID(t *testing.T) {
	t.Parallel()
	type told struct {
		subject BatchID
		event   WebhookEventType
		value   [2]string
	}
	seen := map[WebhookEventID]told{}
	rapid.Check(t, func(t *rapid.T) {
		subjects := rapid.SampledFrom([]BatchID{
			NewID[batchNoun](), BatchID(uuid.MustParse("01932c07-4a5b-7c6d-8e9f-0123456789ab")),
			BatchID(uuid.MustParse("01932c07-4a5b-7c6d-8e9f-0123456789ac")),
		})
		value := rapid.SampledFrom([]string{"", "a", "b", "ab", "succeeded"})
		one := told{
			subjects.Draw(t, "subject"), rapid.SampledFrom(WebhookEventTypes).Draw(t, "type"),
			[2]string{value.Draw(t, "first"), value.Draw(t, "second")},
		}
		id := webhookEventIDOf(one.subject, one.event, one.value[:]...)
		u := uuid.UUID(id)
		if u.Version() != 7 || u.Variant() != uuid.RFC4122 || [6]byte(id[:6]) != [6]byte(one.subject[:6]) {
			t.Fatalf("%s of %s", id, one.subject)
		}
		if again := webhookEventIDOf(one.subject, one.event, one.value[:]...); again != id {
			t.Fatalf("%s, and then %s", id, again)
		}
		if earlier, ok := seen[id]; ok && earlier != one {
			t.Fatalf("%s of %+v and of %+v", id, earlier, one)
		}
		seen[id] = one
	})
}
