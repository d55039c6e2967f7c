package queue

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"partnerbilling/models"
	"partnerbilling/queue/queuetest"
)

// limiterModel drives a limiter without Redis, and accounts for every token.
type limiterModel struct {
	limiter  *FleetLimiter
	waiting  []*tokenWaiter // in order of arrival
	served   []*tokenWaiter // with tokens, not returned yet
	given    int            // tokens
	returned int            // tokens of waiters that returned
	expired  int            // tokens without a waiter
}

// Waiters join, leave and are served in any order. No token expires while there is a waiter, no
// waiter gets more than it wants, organisations get tokens in rotation, and within an organisation
// the oldest waiter comes first.
func TestFleetLimiterDistributesFairly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &limiterModel{limiter: NewFleetLimiter(nil, "rail", 100, nil)}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				organisation := models.OrganisationID{byte(rapid.IntRange(1, 4).Draw(t, "organisation"))}
				m.waiting = append(m.waiting, m.limiter.join(organisation, rapid.IntRange(1, 10).Draw(t, "wanted")))
			},
			"give":  m.give,
			"leave": m.leave,
			"return": func(t *rapid.T) {
				i := m.index(t, m.served)
				m.returned += m.served[i].tokens
				m.served = slices.Delete(m.served, i, i+1)
			},
			"": m.check,
		})
	})
}

func (m *limiterModel) index(t *rapid.T, waiters []*tokenWaiter) int {
	if len(waiters) == 0 {
		t.Skip("no waiter")
	}
	return rapid.IntRange(0, len(waiters)-1).Draw(t, "waiter")
}

func (m *limiterModel) give(t *rapid.T) {
	tokens := rapid.IntRange(1, 40).Draw(t, "tokens")
	m.given += tokens
	m.distribute(t, tokens, func() { m.limiter.give(tokens) })
}

// leave lets a waiter leave that waits, or that has tokens and has not returned yet.
func (m *limiterModel) leave(t *rapid.T) {
	i := m.index(t, append(slices.Clone(m.waiting), m.served...))
	if i < len(m.waiting) {
		leaver := m.waiting[i]
		m.waiting = slices.Delete(m.waiting, i, i+1)
		m.distribute(t, 0, func() { m.limiter.leave(leaver) })
		return
	}
	i -= len(m.waiting)
	leaver := m.served[i]
	m.served = slices.Delete(m.served, i, i+1)
	m.distribute(t, leaver.tokens, func() { m.limiter.leave(leaver) })
}

// distribute calls do, which distributes the tokens, and checks that they are distributed fairly.
func (m *limiterModel) distribute(t *rapid.T, tokens int, do func()) {
	before, wanted := m.waiting, map[models.OrganisationID]int{}
	for _, w := range before {
		wanted[w.organisation] += w.wanted
	}
	do()
	got, sum := map[models.OrganisationID]int{}, 0
	m.waiting = nil
	exhausted := map[models.OrganisationID]bool{} // an older waiter got less than it wants
	for _, w := range before {
		if isServed(w) && exhausted[w.organisation] {
			t.Fatal("a waiter was served before an older one had all it wants")
		}
		exhausted[w.organisation] = exhausted[w.organisation] || w.tokens < w.wanted
		if !isServed(w) {
			m.waiting = append(m.waiting, w)
			continue
		}
		m.served = append(m.served, w)
		got[w.organisation] += w.tokens
		sum += w.tokens
	}
	m.expired += tokens - sum
	if sum < tokens && len(m.waiting) > 0 {
		t.Fatalf("%d of %d tokens were distributed while %d wait", sum, tokens, len(m.waiting))
	}
	for one := range wanted {
		for other := range wanted {
			if got[one] > got[other]+1 && got[other] < wanted[other] {
				t.Fatalf("%v got %d tokens while %v, which wants %d, got %d",
					one, got[one], other, wanted[other], got[other])
			}
		}
	}
}

func isServed(w *tokenWaiter) bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

func (m *limiterModel) check(t *rapid.T) {
	held, wanted := 0, 0
	for _, w := range m.served {
		if held += w.tokens; w.tokens < 1 || w.tokens > w.wanted {
			t.Fatalf("a waiter that wants %d got %d tokens", w.wanted, w.tokens)
		}
	}
	for _, w := range m.waiting {
		if wanted += w.wanted; w.tokens != 0 {
			t.Fatalf("a waiter that still waits has %d tokens", w.tokens)
		}
	}
	if held+m.returned+m.expired != m.given {
		t.Fatalf("of %d tokens %d are held, %d returned and %d expired", m.given, held, m.returned, m.expired)
	}
	if got, want := m.limiter.wanted(), min(wanted, maxTokensPerRequest, m.limiter.limit.Burst); got != want {
		t.Fatalf("the limiter requests %d tokens, want %d", got, want)
	}
	rotation := slices.Clone(m.limiter.rotation)
	slices.SortFunc(rotation, func(a, b models.OrganisationID) int { return slices.Compare(a[:], b[:]) })
	if len(slices.Compact(rotation)) != len(m.limiter.waiting) || len(m.limiter.rotation) != len(m.limiter.waiting) {
		t.Fatalf("the rotation is %v, and %d organisations wait", m.limiter.rotation, len(m.limiter.waiting))
	}
}

// cancelAfterScript returns a hook that cancels the caller's context when Redis has run a script
// and the caller has not seen the answer. A caller whose context has ended gets no answer.
func cancelAfterScript(cancel func()) queuetest.CommandHook {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if _, script := cmd.(*redis.Cmd); script && err == nil {
			if cancel(); ctx.Err() != nil {
				cmd.SetErr(ctx.Err())
				return ctx.Err()
			}
		}
		return err
	}
}

// The waiter that requests tokens for all gives up during the request: the tokens go to the others.
func TestTokensAreNotLostWithTheRequestingWaiter(t *testing.T) {
	t.Parallel()
	client := queuetest.Client(t, queuetest.Redis(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client.AddHook(cancelAfterScript(cancel))
	limiter := NewFleetLimiter(client, "rail", 1, nil)
	other := limiter.join(models.OrganisationID{1}, 1)
	if got := limiter.Take(ctx, models.OrganisationID{2}, 1); got != 0 || !isServed(other) {
		t.Errorf("the requesting waiter has %d tokens, and the other %d", got, other.tokens)
	}
}
