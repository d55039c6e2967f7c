package queue

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"partnerbilling/models"
)

func someTasks(kind models.TaskKind, n int) (all []models.Task) {
	for i := range n {
		all = append(all, models.Task{
			ID: models.TaskID{kind[0], byte(i), byte(i >> 8)}, Kind: kind, OrganisationID: models.OrganisationID{byte(i)},
			TraceID: models.TraceID(fmt.Sprint("trace", i)), Epoch: i + 1,
		})
	}
	return all
}

func TestPack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ webhooks, parcels, largest int }{
		{0, 0, 0}, {1, 1, 1}, {bundleLeast, 1, bundleLeast}, {2*bundleLeast + 1, 3, bundleLeast}, {160, 15, 11}, {1000, 16, 63}, {10 * bundleMost * bundleShares, 160, bundleMost},
	} {
		parcels := pack(append(someTasks(models.TaskDebitRows, 3), someTasks(models.TaskDeliverWebhook, c.webhooks)...))
		all, largest := 0, 0
		for _, p := range parcels[3:] { // after the debits, each on its own
			all, largest = all+len(p), max(largest, len(p))
		}
		if len(parcels)-3 != c.parcels || all != c.webhooks || largest != c.largest {
			t.Errorf("%d webhooks: %d in %d parcels of at most %d", c.webhooks, all, len(parcels)-3, largest)
		}
	}
}

func TestBundlesSayWhatIsInThem(t *testing.T) {
	t.Parallel()
	tasks := someTasks(models.TaskDeliverWebhook, 3)
	if got, err := unpack(newParcel(tasks)); err != nil || cmp.Diff(tasks, got) != "" {
		t.Errorf("%v, (-want +got):\n%s", err, cmp.Diff(tasks, got))
	}
	for name, task := range map[string]*asynq.Task{"one": newParcel(tasks[:1]), "other": newParcel(someTasks(models.TaskDebitRows, 1))} {
		if got, err := unpack(task); len(got) != 0 || err != nil {
			t.Errorf("%s: members %v, %v", name, got, err)
		}
	}
	for _, payload := range []string{"x\n", "tsk_0 1 org_0 t\n", "a b c d e\n"} {
		if _, err := unpack(asynq.NewTask(string(models.TaskDeliverWebhook), []byte(payload))); !errors.Is(err, asynq.SkipRetry) {
			t.Errorf("unpacked %q: %v", payload, err)
		}
	}
}
