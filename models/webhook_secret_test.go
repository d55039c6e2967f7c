package models_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/models"
	"partnerbilling/models/seal"
)

// signing shows which named secret makes which signature.
func (w *webhooks) signing(names map[models.WebhookSecret]string) string {
	w.t.Helper()
	secrets, err := w.WebhookSecrets(w.t.Context(), w.ring, w.site.OrganisationID)
	if err != nil {
		w.t.Fatal(err)
	}
	var live []string
	for _, s := range secrets.Live {
		live = append(live, names[s])
	}
	return names[secrets.Current] + " of " + strings.Join(live, ",")
}

func (w *webhooks) rotate(activateAt *models.Millis) models.WebhookRotation {
	w.t.Helper()
	r, err := w.RotateWebhookSecret(w.t.Context(), w.ring, w.site.OrganisationID, activateAt)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func TestWebhookSecretRotation(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	if _, err := w.RotateWebhookSecret(t.Context(), w.ring, w.site.OrganisationID, nil); !errors.Is(err,
		models.ErrNoWebhookSecret) {
		t.Errorf("before the first: %v", err)
	}
	first := w.put(models.SiteID{}, "https://example.com/")
	rotation := w.rotate(nil)
	if rotation.ActivateAt != webhookStart.Add(24*time.Hour) || rotation.OverlapTo != webhookStart.Add(48*time.Hour) {
		t.Errorf("%+v", rotation)
	}
	names := map[models.WebhookSecret]string{*first: "first", rotation.Secret: "second"}
	var got []string
	for range 3 {
		got = append(got, w.signing(names))
		w.advance(24*time.Hour - time.Millisecond)
		got = append(got, w.signing(names))
		w.advance(time.Millisecond)
	}
	want := []string{
		"first of second,first", "first of second,first", "second of second,first", "second of second,first",
		"second of second", "second of second",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("signing (-want +got):\n%s", diff)
	}
}

func TestWebhookSecretRotatedAgain(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	first := w.put(models.SiteID{}, "https://example.com/")
	names := map[models.WebhookSecret]string{*first: "first"}
	names[w.rotate(nil).Secret] = "lost"
	now := webhookStart
	names[w.rotate(&now).Secret] = "second" // the one before was not active yet, and is dropped
	if got := w.signing(names); got != "second of second,first" {
		t.Error(got)
	}
	names[w.rotate(&now).Secret] = "third"
	names[w.rotate(&now).Secret] = "fourth"
	if got := w.signing(names); got != "fourth of fourth,third,second" {
		t.Error(got)
	}
	late := webhookStart.Add(models.WebhookActivateWithin + time.Millisecond)
	var field *models.FieldError
	if _, err := w.RotateWebhookSecret(t.Context(), w.ring, w.site.OrganisationID, &late); !errors.As(err, &field) {
		t.Errorf("too far ahead: %v", err)
	}
}

func TestWebhookSecretsAreSealed(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	secret := w.put(models.SiteID{}, "https://example.com/")
	text, ok := strings.CutPrefix(secret.Reveal(), "whsec_")
	if raw, err := base64.StdEncoding.DecodeString(text); !ok || err != nil || len(raw) != 32 {
		t.Errorf("secret %s", secret.Reveal())
	}
	for _, shown := range []string{fmt.Sprint(secret),
		fmt.Sprintf("%v %+v %#v %s", *secret, *secret, *secret, *secret)} {
		if strings.Contains(shown, text[:8]) {
			t.Errorf("printing shows the secret: %s", shown)
		}
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", *secret)
	if strings.Contains(log.String(), text[:8]) {
		t.Error("the log shows the secret")
	}
	var sealed []byte
	if err := w.DB().NewRaw("SELECT sealed FROM webhook_secrets").Scan(t.Context(), &sealed); err != nil ||
		strings.Contains(string(sealed), text[:8]) {
		t.Errorf("at rest: %v", err)
	}
	both, err := seal.ParseKeyring("new:" + strings.SplitN(seal.GenerateMasterKey(), ":", 2)[1] + "," + w.master)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.ResealWebhookSecrets(t.Context(), both); n != 1 || err != nil {
		t.Errorf("resealed %d, %v", n, err)
	}
	if _, err := w.WebhookSecrets(t.Context(), w.ring, w.site.OrganisationID); !errors.Is(err, seal.ErrOpen) {
		t.Errorf("with the old master key alone: %v", err)
	}
	w.ring = both
	if got := w.signing(map[models.WebhookSecret]string{*secret: "it"}); got != "it of it" {
		t.Error(got)
	}
}

func TestFirstSecretIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := newWebhooks(t)
	second, err := w.CreateSite(t.Context(), w.site.OrganisationID, "second")
	if err != nil {
		t.Fatal(err)
	}
	endpoints := []models.SiteID{{}, w.site.ID, second.ID}
	results := race(9, func(i int) string {
		_, secret, err := w.PutWebhookEndpoint(t.Context(), w.ring, w.site.OrganisationID, endpoints[i%3],
			"https://example.com/")
		return fmt.Sprint(secret != nil, err)
	})
	if diff := cmp.Diff(map[string]int{"true <nil>": 1, "false <nil>": 8}, results); diff != "" {
		t.Error(diff)
	}
}
