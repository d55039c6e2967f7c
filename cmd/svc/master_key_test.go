package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"partnerbilling/api/client"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/seal"
)

// keyRotation rotates the master key of a fleet under load.
type keyRotation struct {
	*fleet
	customers int
}

// work signs a customer up, debits all customers so far, and waits for the outcomes.
func (k *keyRotation) work(when string) {
	k.Helper()
	reference := fmt.Sprint("customer ", k.customers)
	k.customers++
	invitation := client.NewInvitation{CustomerReference: reference}
	if _, err := k.api.CreateInvitation(k.Context(), k.site.ID.String(), invitation, ""); err != nil {
		k.Fatalf("%s: %v", when, err)
	}
	if _, err := k.api.SignUp(k.Context(), k.site.ID.String(), reference, ""); err != nil {
		k.Fatalf("%s: %v", when, err)
	}
	batch := client.Batch{BatchReference: reference}
	for i := range k.customers {
		batch.Rows = append(batch.Rows, client.Row{
			CustomerReference: fmt.Sprint("customer ", i), RowReference: fmt.Sprint(i), Amount: 100,
		})
	}
	if _, err := k.api.SubmitBatch(k.Context(), k.site.ID.String(), batch); err != nil {
		k.Fatalf("%s: %v", when, err)
	}
	settled, err := k.api.AwaitBatch(k.Context(), k.site.ID.String(), reference)
	if err != nil || settled.Counts.Succeeded != k.customers {
		k.Fatalf("%s: %d of %d rows succeeded; %v", when, settled.Counts.Succeeded, k.customers, err)
	}
}

// restart replaces the API, and then the worker, by processes with a key ring. Work goes on in
// between, with two rings in the fleet.
func (k *keyRotation) restart(ring string) {
	k.Helper()
	k.env = with(k.env, "SVC_MASTER_KEY", ring)
	k.apiProcess.terminate()
	k.startAPI()
	k.work("with a new API beside an old worker")
	k.workers[0].terminate()
	k.workers = nil
	k.startWorker()
	k.work("with a new worker")
}

// The runbook's order of a rotation of the master key breaks nothing at any step: the new key
// second, then first, then resealing, then without the old one.
func TestMasterKeyRotation(t *testing.T) {
	if testing.Short() {
		t.Skip("a drill with whole servers")
	}
	t.Parallel()
	k := &keyRotation{fleet: newFleet(t, modelstest.DSN(t))}
	old, fresh := k.env["SVC_MASTER_KEY"], seal.GenerateMasterKey()
	received := make(chan struct{}, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		received <- struct{}{}
	}))
	defer receiver.Close()
	k.startAPI()
	k.startWorker()
	if _, err := k.api.PutWebhookEndpoint(t.Context(), "default", receiver.URL, "batchSettled"); err != nil {
		t.Fatal(err)
	}
	k.work("under the old key")
	k.restart(old + "," + fresh)
	k.restart(fresh + "," + old)
	if code, _, stderr := svc(t, k.env, "admin", "keys", "reseal"); code != 0 {
		t.Fatal(stderr)
	}
	k.restart(fresh)
	for range k.customers {
		<-received // signed with the secret that the old key sealed
	}
	if _, alerts, _ := svc(t, k.env, "admin", "alerts"); strings.Count(alerts, "\n") > 1 { // the heading
		t.Errorf("alerts:\n%s", alerts)
	}
}
