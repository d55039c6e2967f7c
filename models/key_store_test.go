package models_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
)

// The texts of two master keys.
var keyA, keyB = seal.GenerateMasterKey(), seal.GenerateMasterKey()

// process is one process's view of the keys.
type process struct {
	store *models.Store
	ring  *seal.Keyring
	keys  *models.Keys
}

func newProcess(t testing.TB, store *models.Store) *process {
	t.Helper()
	ring := modelstest.Keyring(t, keyA)
	p := &process{store, ring, models.NewKeys(store, ring)}
	must(t, p.keys.Ensure(t.Context()))
	return p
}

func (p *process) current(t testing.TB, purpose models.KeyPurpose) models.Key {
	t.Helper()
	key, err := p.keys.Current(t.Context(), purpose)
	must(t, err)
	return key
}

func (p *process) live(t testing.TB, purpose models.KeyPurpose) []models.Key {
	t.Helper()
	keys, err := p.keys.Live(t.Context(), purpose)
	must(t, err)
	return keys
}

// age moves every key's times into the past, in place of waiting.
func (p *process) age(t testing.TB, by time.Duration) {
	t.Helper()
	_, err := p.store.DB().ExecContext(t.Context(), `UPDATE service_keys SET active_at = active_at - ?0,
		created_at = created_at - ?0, retired_at = retired_at - ?0`, by.Milliseconds())
	must(t, err)
	must(t, p.keys.Refresh(t.Context()))
}

func TestEnsureKeysAtOnce(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	ring := modelstest.Keyring(t, keyA)
	var starting sync.WaitGroup
	seen := make([]map[models.KeyPurpose]models.KeyID, 8)
	for i := range seen {
		seen[i] = map[models.KeyPurpose]models.KeyID{}
		starting.Go(func() {
			keys := models.NewKeys(store, ring)
			if err := keys.Ensure(t.Context()); err != nil {
				t.Errorf("Ensure: %v", err)
			}
			for _, purpose := range models.KeyPurposes {
				key, err := keys.Current(t.Context(), purpose)
				if err != nil || len(key.Secret) != models.KeySecretSize || key.Purpose != purpose {
					t.Errorf("Current(%s) = %v, %v", purpose, key, err)
				}
				seen[i][purpose] = key.ID
			}
		})
	}
	starting.Wait()
	for i := range seen {
		for _, purpose := range models.KeyPurposes {
			if seen[i][purpose] != seen[0][purpose] {
				t.Errorf("process %d has another %s key", i, purpose)
			}
		}
	}
}

func TestRotateKey(t *testing.T) {
	t.Parallel()
	p := newProcess(t, modelstest.Open(t))
	first := p.current(t, models.KeyAccessToken)
	second, err := p.store.RotateKey(t.Context(), p.ring, models.KeyAccessToken)
	must(t, err)
	must(t, p.keys.Refresh(t.Context()))
	if got := p.current(t, models.KeyAccessToken); got.ID != first.ID {
		t.Errorf("current is %s before the new key is active", got.ID)
	}
	if live := p.live(t, models.KeyAccessToken); len(live) != 2 || live[0].ID != second {
		t.Errorf("live keys are %v", live)
	}
	if _, err := p.store.RotateKey(t.Context(), p.ring, models.KeyAccessToken); !errors.Is(err, models.ErrKeyRotating) {
		t.Errorf("rotation during a rotation: %v", err)
	}
	must(t, p.keys.Ensure(t.Context())) // a process that starts now changes nothing
	if got := p.current(t, models.KeyAccessToken); got.ID != first.ID {
		t.Errorf("current is %s after another start", got.ID)
	}

	p.age(t, models.KeyActivationDelay)
	if got := p.current(t, models.KeyAccessToken); got.ID != second {
		t.Errorf("current is %s once the new key is active", got.ID)
	}
	if old, err := p.keys.ByID(t.Context(), first.ID); err != nil || !bytes.Equal(old.Secret, first.Secret) {
		t.Errorf("the old key is gone while what it made is valid: %v", err)
	}

	p.age(t, models.KeyAccessToken.Lifetime())
	if _, err := p.keys.ByID(t.Context(), first.ID); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("the old key outlives what it made: %v", err)
	}
	if live := p.live(t, models.KeyAccessToken); len(live) != 1 || live[0].ID != second {
		t.Errorf("live keys are %v", live)
	}
	_, err = p.store.RotateKey(t.Context(), p.ring, models.KeyAccessToken)
	must(t, err)
}

func TestRotateKeyAtOnce(t *testing.T) {
	t.Parallel()
	p := newProcess(t, modelstest.Open(t))
	var rotating sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		rotating.Go(func() { _, errs[i] = p.store.RotateKey(t.Context(), p.ring, models.KeySignupLink) })
	}
	rotating.Wait()
	done := 0
	for _, err := range errs {
		switch {
		case err == nil:
			done++
		case !errors.Is(err, models.ErrKeyRotating):
			t.Error(err)
		}
	}
	if done != 1 {
		t.Errorf("%d rotations at once, want 1", done)
	}
}

func TestRetireKey(t *testing.T) {
	t.Parallel()
	p := newProcess(t, modelstest.Open(t))
	purpose := models.KeySealedText

	leaked := p.current(t, purpose)
	must(t, p.store.RetireKey(t.Context(), p.ring, leaked.ID))
	must(t, p.keys.Refresh(t.Context()))
	replacement := p.current(t, purpose)
	if replacement.ID == leaked.ID {
		t.Error("a retired key is still in use")
	}
	if _, err := p.keys.ByID(t.Context(), leaked.ID); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("a retired key still counts: %v", err)
	}
	if err := p.store.RetireKey(t.Context(), p.ring, leaked.ID); !errors.Is(err, models.ErrNotFound) {
		t.Errorf("retired twice: %v", err)
	}

	// During a rotation the key that waits takes over at once.
	next, err := p.store.RotateKey(t.Context(), p.ring, purpose)
	must(t, err)
	must(t, p.store.RetireKey(t.Context(), p.ring, replacement.ID))
	must(t, p.keys.Refresh(t.Context()))
	if got := p.current(t, purpose); got.ID != next {
		t.Errorf("current is %s, want the one that waited, %s", got.ID, next)
	}

	// If the new key of a rotation leaks, the old one has a retirement date and cannot stay alone.
	old := next
	next, err = p.store.RotateKey(t.Context(), p.ring, purpose)
	must(t, err)
	must(t, p.store.RetireKey(t.Context(), p.ring, next))
	must(t, p.keys.Refresh(t.Context()))
	if got := p.current(t, purpose); got.ID == old || got.ID == next {
		t.Errorf("current is %s, want a fresh one", got.ID)
	}
}

func TestResealKeys(t *testing.T) {
	t.Parallel()
	p := newProcess(t, modelstest.Open(t))
	before := p.current(t, models.KeySignupLink)
	both := modelstest.Keyring(t, keyB+","+keyA)
	if changed, err := p.store.ResealKeys(t.Context(), both); err != nil || changed != len(models.KeyPurposes) {
		t.Fatalf("ResealKeys = %d, %v", changed, err)
	}
	if changed, err := p.store.ResealKeys(t.Context(), both); err != nil || changed != 0 {
		t.Fatalf("second ResealKeys = %d, %v", changed, err)
	}
	if err := p.keys.Refresh(t.Context()); !errors.Is(err, seal.ErrOpen) {
		t.Errorf("the old master key alone still opens: %v", err)
	}
	if got := p.current(t, models.KeySignupLink); got.ID != before.ID {
		t.Error("a failed refresh dropped the copy")
	}
	after := models.NewKeys(p.store, modelstest.Keyring(t, keyB))
	must(t, after.Ensure(t.Context()))
	if key, err := after.ByID(t.Context(), before.ID); err != nil || !bytes.Equal(key.Secret, before.Secret) {
		t.Errorf("under the new master key: %v", err)
	}
}

func TestKeysRefuseMovedSecrets(t *testing.T) {
	t.Parallel()
	p := newProcess(t, modelstest.Open(t))
	_, err := p.store.DB().ExecContext(t.Context(), `UPDATE service_keys SET sealed =
		(SELECT sealed FROM service_keys WHERE purpose = 'sealedText') WHERE purpose = 'accessToken'`)
	must(t, err)
	if err := p.keys.Refresh(t.Context()); !errors.Is(err, seal.ErrOpen) {
		t.Errorf("another row's secret was taken: %v", err)
	}
}

// The database's real time in milliseconds never lies in the future, like service time.
func TestRealTimeIsRoundedDown(t *testing.T) {
	t.Parallel()
	at := strings.ReplaceAll(models.RealNowExpr, "statement_timestamp()", "timestamptz '1970-01-01 00:00:07.0419Z'")
	var got models.Millis
	must(t, modelstest.Open(t).DB().QueryRowContext(t.Context(), "SELECT "+at).Scan(&got))
	if got != 7041 {
		t.Errorf("7041.9 ms read as %d", got)
	}
}

func TestKeysWithoutPostgres(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	p := newProcess(t, store)
	must(t, store.Close())
	for _, purpose := range models.KeyPurposes {
		key := p.current(t, purpose)
		if _, err := p.keys.ByID(t.Context(), key.ID); err != nil {
			t.Error(err)
		}
	}
	if err := p.keys.Refresh(t.Context()); err == nil {
		t.Error("a closed store was read")
	}
	if _, err := p.keys.ByID(t.Context(), models.KeyID{1}); err == nil || errors.Is(err, models.ErrNotFound) {
		t.Errorf("a key that may exist: %v", err)
	}
	if _, err := models.NewKeys(store, p.ring).Current(t.Context(), models.KeyAccessToken); err == nil {
		t.Error("a key out of nowhere")
	}
}

func TestKeysSeeNewKeyOnMiss(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	ring := modelstest.Keyring(t, keyA)
	stranger := models.NewKeys(store, ring)
	if _, err := stranger.Current(t.Context(), models.KeyAccessToken); !errors.Is(err, models.ErrNoKey) {
		t.Fatalf("before there is a key: %v", err)
	}
	p := newProcess(t, store)
	id := p.current(t, models.KeyAccessToken).ID
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for again := time.NewTicker(50 * time.Millisecond); ; { // misses read again at most once a second
		_, err := stranger.ByID(ctx, id)
		if err == nil {
			again.Stop()
			return
		}
		if !errors.Is(err, models.ErrNotFound) {
			t.Fatalf("ByID: %v", err)
		}
		<-again.C
	}
}

func TestKeysRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p := newProcess(t, modelstest.Open(t))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.keys.Run(ctx)
	}()
	cancel()
	<-ended
}

func TestKeyHidesSecret(t *testing.T) {
	t.Parallel()
	key := models.Key{Purpose: models.KeySignupLink, Secret: []byte("SECRET")}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		got := fmt.Sprintf(format, key)
		if bytes.Contains([]byte(got), []byte("SECRET")) || bytes.Contains([]byte(got), []byte("83, 69")) ||
			bytes.Contains([]byte(got), []byte("0x53")) {
			t.Errorf("%s prints %q", format, got)
		}
	}
}
