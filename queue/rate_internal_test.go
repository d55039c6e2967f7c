package queue

import (
	"context"
	"net"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"partnerbilling/models"
	"partnerbilling/queue/queuetest"
)

// limiterLife is a limiter without its questions: who waits, what comes, and who leaves.
type limiterLife struct {
	limiter *FleetLimiter
	waiting []*taker // as they came
	served  []*taker // and not gone yet
	given   int      // turns
	gone    int      // that takers went with
	lapsed  int      // that nobody waited for
}

// TestTurnsAreSharedOutWhole lets takers come, leave and be served in any order: every turn is somebody's as long as anybody waits,
// nobody has more than he wants, organisations that wait take turns, and within one who came first goes first.
func TestTurnsAreSharedOutWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &limiterLife{limiter: NewFleetLimiter(nil, "rail", 100)}
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				organisation := models.OrganisationID{byte(rapid.IntRange(1, 4).Draw(t, "organisation"))}
				l.waiting = append(l.waiting, l.limiter.join(organisation, rapid.IntRange(1, 10).Draw(t, "wanted")))
			},
			"give":  l.give,
			"leave": l.leave,
			"go": func(t *rapid.T) {
				i := l.index(t, l.served)
				l.gone += l.served[i].turns
				l.served = slices.Delete(l.served, i, i+1)
			},
			"": l.check,
		})
	})
}

func (l *limiterLife) index(t *rapid.T, of []*taker) int {
	if len(of) == 0 {
		t.Skip("nobody is there")
	}
	return rapid.IntRange(0, len(of)-1).Draw(t, "who")
}

func (l *limiterLife) give(t *rapid.T) {
	turns := rapid.IntRange(1, 40).Draw(t, "turns")
	l.given += turns
	l.serve(t, turns, func() { l.limiter.give(turns) })
}

// leave is somebody's who waits, or who has been served and does not know yet.
func (l *limiterLife) leave(t *rapid.T) {
	i := l.index(t, append(slices.Clone(l.waiting), l.served...))
	if i < len(l.waiting) {
		leaver := l.waiting[i]
		l.waiting = slices.Delete(l.waiting, i, i+1)
		l.serve(t, 0, func() { l.limiter.leave(leaver) })
		return
	}
	i -= len(l.waiting)
	leaver := l.served[i]
	l.served = slices.Delete(l.served, i, i+1)
	l.serve(t, leaver.turns, func() { l.limiter.leave(leaver) })
}

// serve does what hands out turns, and checks who gets them.
func (l *limiterLife) serve(t *rapid.T, turns int, do func()) {
	before, wanted := l.waiting, map[models.OrganisationID]int{}
	for _, w := range before {
		wanted[w.organisation] += w.wanted
	}
	do()
	got, sum := map[models.OrganisationID]int{}, 0
	l.waiting = nil
	ended := map[models.OrganisationID]bool{} // there was not enough for the last one that came before
	for _, w := range before {
		if isServed(w) && ended[w.organisation] {
			t.Fatal("one was served before another who came first had what it wants")
		}
		ended[w.organisation] = ended[w.organisation] || w.turns < w.wanted
		if !isServed(w) {
			l.waiting = append(l.waiting, w)
			continue
		}
		l.served = append(l.served, w)
		got[w.organisation] += w.turns
		sum += w.turns
	}
	l.lapsed += turns - sum
	if sum < turns && len(l.waiting) > 0 {
		t.Fatalf("%d of %d turns were handed out, and %d wait", sum, turns, len(l.waiting))
	}
	for one := range wanted {
		for other := range wanted {
			if got[one] > got[other]+1 && got[other] < wanted[other] {
				t.Fatalf("%v got %d turns while %v, which wants %d, got %d", one, got[one], other, wanted[other], got[other])
			}
		}
	}
}

func isServed(w *taker) bool {
	select {
	case <-w.served:
		return true
	default:
		return false
	}
}

func (l *limiterLife) check(t *rapid.T) {
	held, wanted := 0, 0
	for _, w := range l.served {
		if held += w.turns; w.turns < 1 || w.turns > w.wanted {
			t.Fatalf("%d turns for who wants %d", w.turns, w.wanted)
		}
	}
	for _, w := range l.waiting {
		if wanted += w.wanted; w.turns != 0 {
			t.Fatalf("one who waits has %d turns", w.turns)
		}
	}
	if held+l.gone+l.lapsed != l.given {
		t.Fatalf("of %d turns %d are held, %d went and %d lapsed", l.given, held, l.gone, l.lapsed)
	}
	if got, want := l.limiter.wanted(), min(wanted, askForMost, l.limiter.limit.Burst); got != want {
		t.Fatalf("%d turns are worth asking for, want %d", got, want)
	}
	order := slices.Clone(l.limiter.order)
	slices.SortFunc(order, func(a, b models.OrganisationID) int { return slices.Compare(a[:], b[:]) })
	if len(slices.Compact(order)) != len(l.limiter.waiting) || len(l.limiter.order) != len(l.limiter.waiting) {
		t.Fatalf("the order is %v, and %d organisations wait", l.limiter.order, len(l.limiter.waiting))
	}
}

// leaving lets somebody leave once Redis has done what it was asked to, and before it is known. As always, who has left learns nothing.
type leaving struct{ leave func() }

func (l leaving) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (l leaving) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if _, script := cmd.(*redis.Cmd); script && err == nil {
			if l.leave(); ctx.Err() != nil {
				cmd.SetErr(ctx.Err())
				return ctx.Err()
			}
		}
		return err
	}
}

func (l leaving) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The one who asks for all leaves while he asks: what comes is the others'.
func TestTurnsAreNotLostWithTheAsker(t *testing.T) {
	t.Parallel()
	client := queuetest.Client(t, queuetest.Redis(t))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	client.AddHook(leaving{leave})
	limiter := NewFleetLimiter(client, "rail", 1)
	other := limiter.join(models.OrganisationID{1}, 1)
	if got := limiter.Take(ctx, models.OrganisationID{2}, 1); got != 0 || !isServed(other) {
		t.Errorf("the asker has %d turns, and the other %d", got, other.turns)
	}
}
