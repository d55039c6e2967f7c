package queue

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"partnerbilling/models"
)

func newTasks(kind models.TaskKind, n int) (all []models.Task) {
	for i := range n {
		all = append(all, models.Task{
			ID: models.TaskID{kind[0], byte(i),
				byte(i >> 8)}, Kind: kind, OrganisationID: models.OrganisationID{byte(i)},
			TraceID: models.TraceID(fmt.Sprint("trace", i)), Epoch: i + 1,
		})
	}
	return all
}

func TestMakeBundles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ webhooks, bundles, largest int }{
		{0, 0, 0}, {1, 1, 1}, {minBundleSize, 1, minBundleSize}, {2*minBundleSize + 1, 3, minBundleSize},
		{160, 15, 11}, {1000, 16, 63}, {10 * maxBundleSize * targetBundles, 160, maxBundleSize},
	} {
		bundles := makeBundles(append(newTasks(models.TaskDebitRows, 3),
			newTasks(models.TaskDeliverWebhook, c.webhooks)...))
		all, largest := 0, 0
		for _, b := range bundles[3:] { // after the debits, each in a bundle of its own
			all, largest = all+len(b), max(largest, len(b))
		}
		if len(bundles)-3 != c.bundles || all != c.webhooks || largest != c.largest {
			t.Errorf("%d webhooks: %d in %d bundles of at most %d", c.webhooks, all, len(bundles)-3, largest)
		}
	}
}

func TestBundlesCarryTheirMembers(t *testing.T) {
	t.Parallel()
	tasks := newTasks(models.TaskDeliverWebhook, 3)
	if got, err := readBundle(newBundle(tasks)); err != nil || cmp.Diff(tasks, got) != "" {
		t.Errorf("%v, (-want +got):\n%s", err, cmp.Diff(tasks, got))
	}
	for name, task := range map[string]*asynq.Task{
		"one webhook": newBundle(tasks[:1]), "another kind": newBundle(newTasks(models.TaskDebitRows, 1)),
	} {
		if got, err := readBundle(task); len(got) != 0 || err != nil {
			t.Errorf("%s: members %v, %v", name, got, err)
		}
	}
	for _, payload := range []string{"x\n", "tsk_0 1 org_0 t\n", "a b c d e\n"} {
		_, err := readBundle(asynq.NewTask(string(models.TaskDeliverWebhook), []byte(payload)))
		if !errors.Is(err, asynq.SkipRetry) {
			t.Errorf("read %q: %v", payload, err)
		}
	}
}
