package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"partnerbilling/api/client"
	"partnerbilling/cmd/cmdtest"
	"partnerbilling/models"
)

// A short run has a promotion without and one with loss. No row may be debited twice, and no
// success lost.
func TestHA(t *testing.T) {
	t.Parallel()
	svc := cmdtest.Build(t, "svc")
	var out bytes.Buffer
	err := run(t.Context(), []string{
		"chaos", "--ha", "--svc", svc, "--seed", "3", "--promotions", "2", "--loss", "1",
		"--rows", "2000", "--payments", "100", "--json",
	}, &out)
	var report haReport
	if decodeErr := json.Unmarshal(out.Bytes(), &report); err != nil || decodeErr != nil {
		t.Fatalf("%v, %v: %s", err, decodeErr, out.String())
	}
	p := report.Partners
	if p.Rows != 2000 || p.Payments != 100 || p.Vanished.Batches == 0 || len(report.PromotionsDone) != 2 {
		t.Errorf("the run did not submit, lose and promote everything: %+v", report)
	}
}

func TestHARefusesAnInvalidPlan(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--promotions", "0"}, {"--promotions", "2", "--loss", "3"}, {"--loss", "-1"}} {
		err := run(t.Context(), append([]string{"chaos", "--ha"}, args...), io.Discard)
		if err == nil || !strings.Contains(err.Error(), "--promotions") {
			t.Errorf("%v: error %v", args, err)
		}
	}
}

// The servers of a deployment have no Redis masters that the run can kill.
func TestHARefusesADeploymentWithRedis(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--redis", "sentinel"}, {"--ha", "--proxy"}, {"--ha", "--loss", "1"}} {
		args = append([]string{"chaos", "--deployment", t.TempDir(), "--loss", "0"}, args...)
		err := run(t.Context(), args, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "--deployment goes with") {
			t.Errorf("%v: error %v", args, err)
		}
	}
}

func TestLossHistory(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	var l lossHistory
	l.begin(at(10))
	if len(l.ended(0)) != 0 || !l.mayBeLost(since(time.Now())) {
		t.Error("the open window is not open")
	}
	l.end(at(20))
	l.begin(at(40))
	l.end(at(50))
	if diff := cmp.Diff([]span{{at(40), at(50)}}, l.ended(1), cmp.AllowUnexported(span{})); diff != "" {
		t.Error(diff)
	}
	for _, tt := range []struct {
		from, to int
		want     bool
	}{{1, 9, false}, {9, 10, true}, {12, 13, true}, {5, 60, true}, {21, 39, false}, {50, 51, true}, {51, 52, false}} {
		if got := l.mayBeLost(span{at(tt.from), at(tt.to)}); got != tt.want {
			t.Errorf("%d to %d may be lost: %t", tt.from, tt.to, got)
		}
	}
	if l.mayBeLost(span{}) {
		t.Error("the zero span may be lost")
	}
}

func TestHAPace(t *testing.T) {
	t.Parallel()
	p := &haPace{promotions: 4, done: 2, last: time.Now().Add(-promotionInterval / 2)}
	if got := p.due(1000); got < 600 || got > 700 {
		t.Errorf("halfway between the second and third promotion of four, %d of 1000 are due", got)
	}
	p.last = time.Now().Add(-time.Hour)
	if got := p.due(1000); got != 750 {
		t.Errorf("during the third promotion of four, %d of 1000 are due", got)
	}
	p.finish()
	if got := p.due(1000); got != 1000 || !p.isFinished() {
		t.Errorf("after all promotions, %d of 1000 are due", got)
	}
}

// The books report each kind of breach, and nothing without one.
func TestBooksReportBreaches(t *testing.T) {
	t.Parallel()
	revoked := span{time.Unix(1, 0), time.Unix(2, 0)}
	for name, tt := range map[string]struct {
		change func(b *books, p *haPartner)
		want   string
	}{
		"in order": {func(*books, *haPartner) {}, ""},
		"debited twice": {func(b *books, _ *haPartner) { b.debits[1] = append(b.debits[1], b.debits[1][0]) },
			"debited twice"},
		"a lost success": {func(b *books, _ *haPartner) { delete(b.ledger, b.debits[1][0].Key) },
			"not in the ledger"},
		"another amount": {func(b *books, _ *haPartner) { b.ledger[b.debits[1][0].Key] = 8 },
			"not in the ledger"},
		"another key": {func(b *books, _ *haPartner) { b.debits[1][0].Key = "r1_0" }, "another key"},
		"a success without a debit": {func(b *books, _ *haPartner) { delete(b.debits, 1) },
			"a row disagrees with the gateway"},
		"a debit of a failed row": {func(_ *books, p *haPartner) { p.batches[0].final[0] = "timedOut" },
			"a row disagrees with the gateway"},
		"unconfirmed": {func(_ *books, p *haPartner) { p.batches[0].final[0] = "unconfirmed" },
			"a row is not settled"},
		"vanished at the end": {func(_ *books, p *haPartner) { p.batches[0].final = nil }, "vanished"},
		"only in the ledger": {func(b *books, _ *haPartner) { b.ledger["r1_7"] = 7 },
			"a ledger entry without a debit"},
		"another customer": {func(b *books, _ *haPartner) { b.debits[1][0].AgreementID = "b" }, "another customer"},
		"an unknown debit": {func(b *books, _ *haPartner) { b.debits[9] = []railDebit{{Key: "k", Amount: 9}} },
			"a debit without a row or payment"},
		"revoked": {func(_ *books, p *haPartner) {
			p.customers[0].revoked = revoked
			p.batches[0].first = time.Unix(3,
				0)
		},
			"a revoked customer was debited"},
		"a payment that expired": {func(_ *books, p *haPartner) { p.tills[0].made[0].status = "Expired" },
			"a payment disagrees"},
	} {
		p := &haPartner{fleet: &haFleet{losses: &lossHistory{}}, customers: []*haCustomer{{agreement: "a"}}}
		p.batches = []*haBatch{{
			Batch: client.Batch{BatchReference: "b", Rows: []client.Row{
				{CustomerReference: "0", RowReference: "r", Amount: 1},
				{CustomerReference: "0", RowReference: "s", Amount: 2}}},
			final: []string{"succeeded", "insufficientFunds"},
		}}
		p.tills = []*till{{made: []*haPayment{{id: "pi_3", amount: 3, status: "Settled"},
			{id: "pi_4", amount: 4, vanished: true}}}}
		row := models.NewBatchKey(p.site, "b", 1).Row("r")
		b := &books{
			debits: map[int64][]railDebit{}, ledger: map[string]int64{row: 1, "p1_pi_3": 3}, known: map[int64]bool{},
		}
		for amount, key := range map[int64]string{1: row, 3: "p1_pi_3", 4: "p1_pi_4"} {
			b.debits[amount] = []railDebit{{Key: key, AgreementID: "a", Amount: amount}}
		}
		tt.change(b, p)
		b.compare([]*haPartner{p})
		lines := strings.Join(b.broken.lines(), "\n")
		if tt.want == "" && lines != "" || !strings.Contains(lines, tt.want) {
			t.Errorf("%s: reported %q, want %q", name, lines, tt.want)
		}
		if p.counts.Vanished.Debits != 1 {
			t.Errorf("%s: %d debits of vanished intents, want 1", name, p.counts.Vanished.Debits)
		}
	}
}

// A partner checks the answer to a cancellation, and every later answer against it.
func TestHAPartnerChecksCancellations(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		redis    string
		rows     string // in the answer to the cancellation
		lost     bool   // a promotion may have lost the cancellation
		later    string // the outcome that a later read shows
		breaches int
	}{
		"cancelled":        {rows: cancelledRow, later: "cancelled"},
		"debited later":    {rows: cancelledRow, later: "succeeded", breaches: 1},
		"lost, debited":    {rows: cancelledRow, lost: true, later: "succeeded"},
		"closed on a rail": {rows: pendingRow, later: "succeeded"},
		"still pending":    {redis: redisSentinel, rows: pendingRow, later: "cancelled", breaches: 1},
		"in progress":      {redis: redisSentinel, rows: inProgressRow, later: "succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := answeringWith(t, func(w http.ResponseWriter) {
				_, _ = io.WriteString(w, `{"data":{"batchReference":"b","rows":[`+tt.rows+`]}}`)
			})
			p := &haPartner{
				fleet: &haFleet{losses: &lossHistory{}, plan: haPlan{Redis: tt.redis}},
				api:   api,
			}
			b := &haBatch{Batch: client.Batch{BatchReference: "b", Rows: []client.Row{
				{CustomerReference: "0", RowReference: "r", Amount: 1}}}}
			if tt.lost {
				p.fleet.losses.begin(time.Now())
			}
			if err := p.cancel(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			p.check(b, client.BatchStatus{Rows: []client.RowStatus{
				{CustomerReference: "0", RowReference: "r", Amount: 1, State: "settled", Outcome: tt.later},
			}}, since(time.Now()))
			if len(p.broken) != tt.breaches {
				t.Errorf("breaches %q, want %d", p.broken, tt.breaches)
			}
		})
	}
}

// Rows of a batch with one row, as JSON.
const (
	pendingRow    = `{"customerReference":"0","rowReference":"r","amount":1,"state":"pending"}`
	inProgressRow = `{"customerReference":"0","rowReference":"r","amount":1,"state":"inProgress"}`
	cancelledRow  = `{"customerReference":"0","rowReference":"r","amount":1,"state":"settled","outcome":"cancelled"}`
)
