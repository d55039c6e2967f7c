package railtest_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"partnerbilling/jobs/rail"
	"partnerbilling/jobs/rail/railtest"
	"partnerbilling/models"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newDebit(key, agreement string) rail.Debit {
	return rail.Debit{Key: key, AgreementID: agreement, Amount: 100, Currency: "AUD"}
}

func TestScriptedSteps(t *testing.T) {
	ctx := t.Context()
	held := newDebit("key", "agreement").Particulars()
	succeeded := rail.Result{Status: rail.Succeeded, Held: held}
	refused := rail.Result{Status: rail.Refused, Reason: rail.LimitExceeded, Held: held}
	tests := []struct {
		name    string
		steps   []railtest.Step
		debits  []rail.Status // of successive calls
		lookup  rail.Result
		debited int
	}{
		{"no script", nil, []rail.Status{rail.Succeeded, rail.Succeeded}, succeeded, 1},
		{"refuse", []railtest.Step{railtest.Refuse(rail.LimitExceeded)}, []rail.Status{rail.Refused, rail.Refused},
			refused, 0},
		{
			"unavailable twice", []railtest.Step{railtest.Unavailable, railtest.Unavailable},
			[]rail.Status{rail.Unavailable, rail.Unavailable, rail.Succeeded}, succeeded, 1,
		},
		{
			"lost answer", []railtest.Step{railtest.LoseAnswer},
			[]rail.Status{rail.Unknown, rail.Succeeded}, succeeded, 1,
		},
		{
			"invalid", []railtest.Step{railtest.Invalid, railtest.Succeed, railtest.Invalid},
			[]rail.Status{rail.Invalid, rail.Succeeded, rail.Invalid, rail.Succeeded}, succeeded, 1,
		},
		{
			"lost answer, then invalid", []railtest.Step{railtest.LoseAnswer, railtest.Invalid},
			[]rail.Status{rail.Unknown, rail.Invalid}, succeeded, 1,
		},
		{"lost request", []railtest.Step{railtest.LoseRequest}, []rail.Status{rail.Unknown},
			rail.Result{Status: rail.NotFound}, 0},
	}
	for _, tt := range tests {
		for _, by := range []string{"key", "agreement"} {
			s := railtest.NewScripted()
			s.Script(by, tt.steps...)
			for i, status := range tt.debits {
				if got := railtest.Debit(ctx, t, s, newDebit("key", "agreement"))[0]; got.Status != status {
					t.Errorf("%s, by %s: debit %d is %v, want %v", tt.name, by, i, got, status)
				}
			}
			if got := railtest.Lookup(ctx, t, s, "key")[0]; got != tt.lookup {
				t.Errorf("%s, by %s: lookup is %v, want %v", tt.name, by, got, tt.lookup)
			}
			if got := len(s.Moved()); got != tt.debited {
				t.Errorf("%s, by %s: money moved %d times, want %d", tt.name, by, got, tt.debited)
			}
			if got, want := s.Calls("key"), (railtest.Calls{Debits: len(tt.debits), Lookups: 1}); got != want {
				t.Errorf("%s, by %s: %+v, want %+v", tt.name, by, got, want)
			}
		}
	}
}

func TestScriptedHang(t *testing.T) {
	tests := []struct {
		name           string
		giveUp, cancel bool // before the release
		answer, lookup rail.Status
	}{
		{"caller waits", false, false, rail.Succeeded, rail.Succeeded},
		{"caller gave up", true, false, rail.Unknown, rail.Succeeded},
		{"cancelled", false, true, rail.Cancelled, rail.Cancelled},
		{"caller gave up, cancelled", true, true, rail.Unknown, rail.Cancelled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := railtest.NewScripted()
			s.Script("a", railtest.Hang)
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			done := make(chan []rail.Result)
			go func() { done <- railtest.Debit(ctx, t, s, newDebit("a", "agreement"), newDebit("b", "agreement")) }()
			s.AwaitCalls(t, "b", railtest.Calls{Debits: 1})
			var got []rail.Result
			if tt.giveUp {
				giveUp()
				got = <-done
			}
			if tt.cancel {
				railtest.Cancel(t.Context(), t, s, "a")
			}
			s.Release("a")
			if !tt.giveUp {
				got = <-done
			}
			if got[0].Status != tt.answer || got[1].Status != rail.Succeeded {
				t.Errorf("debits are %v, want %v and succeeded", got, tt.answer)
			}
			if after := railtest.Lookup(t.Context(), t, s, "a")[0]; after.Status != tt.lookup {
				t.Errorf("lookup is %v, want %v", after, tt.lookup)
			}
		})
	}
}

func TestScriptedDown(t *testing.T) {
	ctx, s := t.Context(), railtest.NewScripted()
	s.SetDown(true)
	for call, got := range map[string]struct{ is, want rail.Status }{
		"debit":  {railtest.Debit(ctx, t, s, newDebit("a", "agreement"))[0].Status, rail.Unavailable},
		"lookup": {railtest.Lookup(ctx, t, s, "a")[0].Status, rail.Unknown},
		"cancel": {railtest.Cancel(ctx, t, s, "a")[0].Status, rail.Unknown},
	} {
		if got.is != got.want {
			t.Errorf("%s is %v, want %v", call, got.is, got.want)
		}
	}
	s.SetDown(false)
	if got := railtest.Debit(ctx, t, s, newDebit("a", "agreement"))[0]; got.Status != rail.Succeeded {
		t.Errorf("debit is %v, want succeeded", got)
	}
	if len(s.Moved()) != 1 || s.Amounts()["a"] != 100 {
		t.Errorf("moved %v", s.Moved())
	}
}

func TestScriptedAdmission(t *testing.T) {
	ctx, s := t.Context(), railtest.NewScripted()
	one, other := models.OrganisationID{1}, models.OrganisationID{2}
	if n := s.Admit(ctx, one, 5); n != 5 {
		t.Errorf("%d of 5 admissions without a limit", n)
	}
	s.LimitAdmission()
	cancelled, cancel := context.WithCancel(ctx)
	gaveUp, waited := make(chan int), make(chan int)
	go func() { gaveUp <- s.Admit(cancelled, one, 5) }()
	go func() { waited <- s.Admit(ctx, other, 5) }()
	s.AwaitAdmitCallers(t, 2)
	cancel()
	if n := <-gaveUp; n != 0 {
		t.Errorf("%d admissions for the caller that gave up", n)
	}
	s.Allow(3)
	if n := <-waited; n != 3 || s.Admitted(one) != 5 || s.Admitted(other) != 3 {
		t.Errorf("%d admissions of 3; %d and %d in total", n, s.Admitted(one), s.Admitted(other))
	}
	for range 9 { // calls with 8 admissions
		s.Lookup(ctx, []string{"k"}, func(int, rail.Result) {})
	}
	if n := s.Unadmitted(); n != 1 {
		t.Errorf("%d calls had no admission, want 1", n)
	}
}
