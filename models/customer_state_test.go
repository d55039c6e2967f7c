package models_test

import (
	"testing"

	"partnerbilling/models"
)

func TestLinkStateEveryPair(t *testing.T) {
	const (
		invited = models.LinkInvited
		linked  = models.LinkLinked
		expired = models.LinkExpired
		revoked = models.LinkRevoked
		none    = models.LinkState("")
		other   = models.LinkState("Invited")
	)
	table := []struct {
		from, to models.LinkState
		allowed  bool
	}{
		{invited, invited, false}, {invited, linked, true}, {invited, expired, true}, {invited, revoked, true},
		{linked, invited, false}, {linked, linked, false}, {linked, expired, false}, {linked, revoked, true},
		{expired, invited, false}, {expired, linked, false}, {expired, expired, false}, {expired, revoked, false},
		{revoked, invited, false}, {revoked, linked, false}, {revoked, expired, false}, {revoked, revoked, false},
		{none, invited, false}, {none, linked, false}, {invited, none, false}, {other, linked, false}, {invited, other,
			false},
	}
	known := 0
	for _, row := range table {
		if row.from.Valid() && row.to.Valid() {
			known++
		}
		if got := row.from.CanBecome(row.to); got != row.allowed {
			t.Errorf("%q to %q: got %v, want %v", row.from, row.to, got, row.allowed)
		}
	}
	if n := len(models.LinkStates); known != n*n {
		t.Errorf("the table has %d pairs of known states, want %d", known, n*n)
	}
}

func TestLinkStateActive(t *testing.T) {
	want := map[models.LinkState]bool{models.LinkInvited: true, models.LinkLinked: true}
	for _, s := range models.LinkStates {
		if s.Active() != want[s] {
			t.Errorf("%s: Active is %v", s, s.Active())
		}
	}
}

func TestLinkStateAtExpiry(t *testing.T) {
	const expiresAt = models.Millis(1_000)
	for _, s := range models.LinkStates {
		for _, now := range []models.Millis{0, 999, 1_000, 1_001} {
			want := s
			if s == models.LinkInvited && now >= 1_000 {
				want = models.LinkExpired
			}
			if got := s.At(expiresAt, now); got != want {
				t.Errorf("%s at %d: got %s, want %s", s, now, got, want)
			}
		}
	}
}
