package logs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"partnerbilling/models"
	"partnerbilling/models/logs"
)

func TestRecordsCarryTheIDsOfTheirContext(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := slog.New(logs.NewHandler(slog.NewTextHandler(&b, nil), time.Now)).With("a", 1)
	id := models.NewTraceID()
	outer := logs.With(models.WithTraceID(context.Background(), id), slog.Int("outer", 2))
	log.InfoContext(logs.With(outer, slog.Int("inner", 3)), "x", "b", 4)
	log.InfoContext(logs.With(outer, slog.Int("other", 5)), "y")
	log.Info("z")
	lines := strings.SplitAfter(b.String(), "\n")
	for i, want := range []string{
		" a=1 b=4 traceId=" + string(id) + " outer=2 inner=3\n", " a=1 traceId=" + string(id) + " outer=2 other=5\n",
		"msg=z a=1\n",
	} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %q does not end in %q", lines[i], want)
		}
	}
}

func TestRecordsOfAnOutageAreBounded(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	now := time.Unix(0, 0)
	log := slog.New(logs.NewHandler(slog.NewTextHandler(&b, nil), func() time.Time { return now }))
	redis := fmt.Errorf("dispatch: %w", errors.Join(errors.New("other"), logs.OfRedis(errors.New("refused"))))
	postgres := fmt.Errorf("claim: %w", models.ErrUnavailable)
	for range 50 { // five seconds
		log.Warn("a loop", logs.Outage(redis))
		log.With("queue", "debits").Error("another loop", logs.Outage(redis))
		log.Info("an event", logs.Outage(redis))
		log.Warn("a statement", logs.Outage(postgres))
		log.Warn("not an outage", logs.Outage(errors.New("a fault")))
		now = now.Add(100 * time.Millisecond)
	}
	text := b.String()
	for part, want := range map[string]int{
		"a loop": 5, "another loop": 0, "outage=redis suppressed=19": 4, "an event": 50, "a statement": 5,
		"outage=postgres suppressed=9": 4, "not an outage": 50,
	} {
		if got := strings.Count(text, part); got != want {
			t.Errorf("%q occurs %d times, want %d", part, got, want)
		}
	}
}

func TestOutageOfNothing(t *testing.T) {
	t.Parallel()
	if err := logs.OfRedis(nil); err != nil {
		t.Errorf("error %v", err)
	}
	if a := logs.Outage(nil); !a.Equal(slog.Attr{}) {
		t.Errorf("attribute %v", a)
	}
}
