package ops_test

import (
	"net/http"
	"strings"
	"testing"

	"partnerbilling/models/modelstest"
)

// The replica serves every page, also right after the act that the page shows. Acts run on the
// primary. A page shows the latest act even while the replica's replay is paused.
func TestReplicaServesPages(t *testing.T) {
	t.Parallel()
	replicated := modelstest.OpenReplicated(t)
	p := newPagesTestOn(t, replicated.Store, nil)
	for _, path := range p.paths() {
		replicated.OnReplica(path, func() { p.page(path) })
	}
	organisation := p.site.OrganisationID.String()
	for _, act := range []struct{ do, shows string }{{"pause", "Resume"}, {"resume", "Pause"}} {
		served := replicated.Served()
		a := p.post("/ops/debits", "jane", "do", act.do, "organisation", organisation, "reason", "a drill")
		if a.status != http.StatusSeeOther || replicated.Served() != served {
			t.Fatalf("%s: %d, and the replica answered %d reads", act.do, a.status, replicated.Served()-served)
		}
		replicated.OnReplica("the page after "+act.do, func() {
			p.page("/ops/organisation?id="+organisation, act.shows)
		})
	}
	must(t, replicated.Pair.PauseReplay(t.Context()))
	p.post("/ops/debits", "jane", "do", "pause", "organisation", organisation, "reason", "another drill")
	if page := p.page("/ops/organisation?id=" + organisation); !strings.Contains(page, "another drill") {
		t.Errorf("a page behind a paused replay lacks the act before it:\n%s", page)
	}
}
