package models_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	site := modelstest.Site(t, store)
	health := func() models.Health {
		t.Helper()
		h, err := store.Health(t.Context())
		must(t, err)
		return h
	}
	if h := health(); h.FailingEndpoints != 0 || h.ReplicationLag != 0 || h.Wraparound <= 0 || h.Wraparound > 0.1 {
		t.Errorf("health %+v", h)
	}
	if _, err := store.StartRecurring(t.Context(), models.TaskCloseBatches, time.Second); err != nil {
		t.Fatal(err)
	}
	_, err := store.DB().ExecContext(t.Context(), "UPDATE outbox SET available_at = available_at - 5000")
	must(t, err)
	if h := health(); h.OldestRecurring < 5000 || h.OldestRecurring > 60_000 {
		t.Errorf("health beside a recurring task that was due 5 s ago: %+v", h)
	}
	_, _, err = store.PutWebhookEndpoint(t.Context(), modelstest.Keyring(t, modelstest.MasterKey), site.OrganisationID,
		models.SiteID{}, "https://partner.example")
	must(t, err)
	tx, err := store.DB().BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	// The transaction is old once its server has waited. Its failures are seen after its commit.
	_, err = tx.ExecContext(t.Context(), "UPDATE webhook_endpoints SET failures = ?", models.FailingThreshold)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT pg_sleep(0.2)")
	must(t, err)
	if h := health(); h.OldestTransaction < 200 || h.FailingEndpoints != 0 {
		t.Errorf("health beside a transaction of 200 ms: %+v", h)
	}
	must(t, tx.Commit())
	if h := health(); h.FailingEndpoints != 1 {
		t.Errorf("health beside a failing endpoint: %+v", h)
	}
}

// receiveWAL receives WAL as pg_receivewal does, which replays nothing, until the test ends.
func receiveWAL(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), dsn+"&replication=true")
	must(t, err)
	t.Cleanup(func() { must(t, conn.Close(context.Background())) })
	system, err := conn.Exec(t.Context(), "IDENTIFY_SYSTEM").ReadAll()
	must(t, err)
	position := string(system[0].Rows[0][2])
	conn.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION " + position})
	must(t, conn.Frontend().Flush())
	message, err := conn.ReceiveMessage(t.Context())
	must(t, err)
	if _, ok := message.(*pgproto3.CopyBothResponse); !ok {
		t.Fatalf("the server answers %#v", message)
	}
}

// Only standbys count, and only their lag. Without the right to tell them from other receivers of
// WAL, all count, and the lag is unknown.
func TestHealthOfReplication(t *testing.T) {
	t.Parallel()
	r := modelstest.OpenReplicated(t)
	primary := r.Pair.Primary().DatabaseURL
	receiveWAL(t, primary)
	h, err := r.Health(t.Context())
	must(t, err)
	if h.Standbys != 1 || h.ReplicationLag < 0 {
		t.Errorf("%d standbys, lag %d, beside a receiver of WAL", h.Standbys, h.ReplicationLag)
	}
	for _, statement := range []string{
		"CREATE ROLE limited", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO limited",
	} {
		_, err := r.DB().ExecContext(t.Context(), statement)
		must(t, err)
	}
	limited := openConfig(t, postgres.Config{DSN: primary + "&role=limited"})
	h, err = limited.Health(t.Context())
	must(t, err)
	if h.Standbys != 2 || h.ReplicationLag != -1 {
		t.Errorf("without the right: %d standbys, lag %d", h.Standbys, h.ReplicationLag)
	}
}
