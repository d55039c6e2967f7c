package models_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

// TestRandomLivesOfAnIntent runs customers, the partner, time, sweeps and workers in random order,
// and checks the stored intent against the invariants.
func TestRandomLivesOfAnIntent(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	modelstest.SetClock(t, store, noon)
	rapid.Check(t, func(rt *rapid.T) {
		life := &intentLife{T: t, store: store, was: modelstest.Intent(t, store, site.ID, 1000, 600, 600)}
		rt.Repeat(map[string]func(*rapid.T){
			"pay": life.pay, "cancel": life.cancel, "claim": life.claim, "finish": life.finish, "": life.check,
			"sweep": func(rt *rapid.T) {
				if _, err := store.ExpirePaymentIntents(rt.Context(), 10); err != nil {
					rt.Fatal(err)
				}
			},
			"leases run out": func(rt *rapid.T) {
				life.exec(rt,
					"UPDATE payment_intents SET lease_until = clock_timestamp() WHERE lease_until IS NOT NULL")
			},
			"time passes": func(rt *rapid.T) {
				step := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, models.DefaultIntentLife}).
					Draw(rt, "step")
				if _, err := store.AdvanceClock(rt.Context(), step); err != nil {
					rt.Fatal(err)
				}
			},
		})
	})
	modelstest.Audit(t, store)
}

// intentLife is one intent under test. claims are all claims ever made, those with lost leases
// included; decided is the rail's final answer.
type intentLife struct {
	*testing.T
	store   *models.Store
	was     models.PaymentIntent
	party   models.Party
	task    models.TaskID
	claims  []models.ClaimedTransaction
	decided models.TransactionStatus
}

func (l *intentLife) exec(t *rapid.T, query string) {
	if _, err := l.store.DB().ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

func (l *intentLife) pay(t *rapid.T) {
	name := rapid.SampledFrom([]string{"ada", "bob"}).Draw(t, "customer")
	party := models.Party{CustomerID: name, AgreementID: name}
	var discounts []models.Discount
	for range rapid.IntRange(0, 2).Draw(t, "discounts") {
		discounts = append(discounts, models.Discount{
			LineItem: rapid.IntRange(0, 2).Draw(t, "line"), Amount: models.Amount(rapid.IntRange(1, 600).Draw(t,
				"off")), Reason: "r",
		})
	}
	started, err := l.store.StartTransaction(t.Context(), l.was.Code, party, discounts)
	var refused *models.DiscountError
	switch {
	case err == nil && !started.Replayed:
		if l.task != (models.TaskID{}) {
			t.Fatalf("a second transaction: %+v", started)
		}
		l.party, l.task = party, started.Task
	case err == nil && party != l.party, errors.Is(err, models.ErrIntentTaken) && party == l.party:
		t.Fatalf("%s pays, %s has begun to: %v", name, l.party.CustomerID, err)
	case err != nil && !errors.As(err, &refused) && !errors.Is(err, models.ErrIntentTaken) &&
		!errors.Is(err, models.ErrIntentExpired) && !errors.Is(err, models.ErrIntentCancelled):
		t.Fatal(err)
	}
}

func (l *intentLife) cancel(t *rapid.T) {
	got, _, err := l.store.CancelPaymentIntent(t.Context(), l.was.SiteID, l.was.ID)
	if err == nil && got.Status != models.TransactionCancelled || err != nil &&
		!errors.Is(err, models.ErrIntentNotCancellable) {
		t.Fatalf("cancelled: %+v, %v", got, err)
	}
}

func (l *intentLife) claim(t *rapid.T) {
	if l.task.IsZero() {
		t.Skip("no payment begun")
	}
	claimed, err := l.store.ClaimTransaction(t.Context(), l.task, models.NewLeaseToken())
	if err != nil && !errors.Is(err, models.ErrNotFound) {
		t.Fatal(err)
	}
	if claimed.Claimed {
		l.claims = append(l.claims, claimed)
	} else if err := l.store.ParkTransaction(t.Context(), l.task); err != nil {
		t.Fatal(err)
	}
}

// finish lets any worker that ever claimed the transaction record an answer that a correct rail may
// have given.
func (l *intentLife) finish(t *rapid.T) {
	if len(l.claims) == 0 {
		t.Skip("nothing is claimed")
	}
	claimed := rapid.SampledFrom(l.claims).Draw(t, "claim")
	var result models.TransactionResult
	switch answer := rapid.SampledFrom([]string{"final", "unknown", "unavailable"}).Draw(t, "answer"); {
	case answer == "unknown":
	case answer == "unavailable" && l.decided == "":
		result.Release = true
	default:
		if l.decided == "" {
			l.decided = rapid.SampledFrom(
				[]models.TransactionStatus{models.TransactionSettled, models.TransactionDeclined,
					models.TransactionFailed}).Draw(t, "word")
		}
		result.Status = l.decided
	}
	if _, err := l.store.FinishTransaction(t.Context(), claimed, result); err != nil {
		t.Fatal(err)
	}
}

func (l *intentLife) check(t *rapid.T) {
	is, err := l.store.PaymentIntent(t.Context(), l.was.SiteID, l.was.ID)
	if err != nil {
		t.Fatal(err)
	}
	was := l.was
	if was.State != is.State && !was.State.CanBecome(is.State) {
		t.Fatalf("it went from %s to %s", was.State, is.State)
	}
	if was.Status != "" && (was.Status != is.Status || was.FinalAt != is.FinalAt) {
		t.Fatalf("%s at %d became %s at %d", was.Status, was.FinalAt, is.Status, is.FinalAt)
	}
	if !was.Transaction.ID.IsZero() && (was.Transaction.ID != is.Transaction.ID ||
		was.Transaction.Charge != is.Transaction.Charge) {
		t.Fatalf("transaction %+v became %+v", was.Transaction, is.Transaction)
	}
	if is.Status.HasTransaction() && is.Status != l.decided {
		t.Fatalf("it is %s, the rail said %q", is.Status, l.decided)
	}
	var want []models.TransactionStatus
	if is.Status != "" {
		want = append(want, is.Status)
	}
	if events := modelstest.PushedStatuses(l.T, l.store, is.ID); !slices.Equal(events, want) {
		t.Fatalf("it is %s, its events say %v", is.Status, events)
	}
	l.was = is
}

// races returns the number of races between payment, expiry and cancellation.
func races() int {
	if testing.Short() {
		return 200
	}
	return 1000
}

// TestPaymentAgainstExpiryAgainstCancellation races two customers, the partner, readers and the
// sweep at the millisecond of expiry.
func TestPaymentAgainstExpiryAgainstCancellation(t *testing.T) {
	c := newCheckout(t)
	ended := map[models.TransactionStatus]int{}
	for range races() {
		modelstest.SetClock(t, c.store, noon)
		intent := modelstest.Intent(t, c.store, c.site.ID, 1000, 1000)
		modelstest.SetClock(t, c.store, intent.ExpiresAt-1)
		race := &intentRace{checkout: c, intent: intent}
		race.run()
		status := race.settle()
		ended[status]++
		c.want(intent, models.IntentFinal, status)
	}
	modelstest.Audit(t, c.store)
	t.Logf("ended: %v", ended)
	for _, status := range []models.TransactionStatus{models.TransactionSettled, models.TransactionCancelled,
		models.TransactionExpired} {
		if ended[status] == 0 {
			t.Errorf("none ended as %s: it was no race", status)
		}
	}
}

// intentRace is one race and the answers that its participants got.
type intentRace struct {
	*checkout
	intent models.PaymentIntent

	mu        sync.Mutex
	task      models.TaskID
	payments  int
	cancelled bool
	seen      []models.PaymentIntent // as readers saw it
}

func (r *intentRace) run() {
	runners := []func() error{r.pay("ada"), r.pay("bob"), r.cancel, r.read, r.read, r.sweep, r.tick}
	start := make(chan struct{})
	var all sync.WaitGroup
	for _, run := range runners {
		all.Go(func() {
			<-start
			if err := run(); err != nil {
				r.Error(err)
			}
		})
	}
	close(start)
	all.Wait()
}

func (r *intentRace) pay(name string) func() error {
	return func() error {
		started, err := r.store.StartTransaction(r.Context(), r.intent.Code,
			models.Party{CustomerID: name, AgreementID: name}, nil)
		if errors.Is(err, models.ErrIntentTaken) || errors.Is(err, models.ErrIntentExpired) ||
			errors.Is(err, models.ErrIntentCancelled) {
			return nil
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.task, r.payments = started.Task, r.payments+1
		return err
	}
}

func (r *intentRace) cancel() error {
	_, _, err := r.store.CancelPaymentIntent(r.Context(), r.intent.SiteID, r.intent.ID)
	if errors.Is(err, models.ErrIntentNotCancellable) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelled = true
	return err
}

func (r *intentRace) read() error {
	got, err := r.store.PaymentIntent(r.Context(), r.intent.SiteID, r.intent.ID)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, got)
	return err
}

func (r *intentRace) sweep() error {
	_, err := r.store.ExpirePaymentIntents(r.Context(), 10)
	return err
}

func (r *intentRace) tick() error {
	_, err := r.store.AdvanceClock(r.Context(), time.Millisecond)
	return err
}

// settle ends the payment, and checks all answers against the final state.
func (r *intentRace) settle() models.TransactionStatus {
	r.Helper()
	is := r.get(r.intent)
	if (is.State == models.IntentPending) != (r.payments == 1) || r.payments > 1 ||
		(is.Status == models.TransactionCancelled) != r.cancelled {
		r.Fatalf("%d payments, cancelled %t, and the intent is %s %s", r.payments, r.cancelled, is.State, is.Status)
	}
	if is.Transaction.StartedAt >= is.ExpiresAt || is.Status == models.TransactionCancelled &&
		is.FinalAt >= is.ExpiresAt {
		r.Fatalf("at %d it had expired: %+v", is.ExpiresAt, is)
	}
	for _, seen := range r.seen {
		if seen.State == models.IntentFinal && seen.Status != is.Status {
			r.Fatalf("it was seen as %s, and is %s", seen.Status, is.Status)
		}
	}
	if is.State == models.IntentPending {
		r.finish(r.claim(r.task), models.TransactionResult{Status: models.TransactionSettled})
		return models.TransactionSettled
	}
	return is.Status
}
