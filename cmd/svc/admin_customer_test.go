package main

import (
	"encoding/json"
	"testing"

	"partnerbilling/models"
	"partnerbilling/models/modelstest"
)

func TestAdminExportsAndErasesACustomer(t *testing.T) {
	a := newAdmin(t)
	store := a.store()
	site := modelstest.Site(t, store)
	link := modelstest.Customer(t, store, site.ID, "ada", models.BehaviourPays)
	export := func() (data models.CustomerData) {
		t.Helper()
		if err := json.Unmarshal([]byte(a.run("customer", "export", site.ID.String(), "ada")), &data); err != nil {
			t.Fatal(err)
		}
		return data
	}
	if data := export(); len(data.Links) != 1 || data.Links[0].AgreementID != modelstest.Agreement(link) ||
		data.Links[0].State != models.LinkLinked {
		t.Errorf("exported %+v", data)
	}
	if out := a.run("customer", "erase", site.ID.String(), "ada"); out != "erased from 1 links and 0 payments" {
		t.Errorf("printed %q", out)
	}
	if data := export(); data.Links[0].AgreementID != "" || data.Links[0].State != models.LinkRevoked {
		t.Errorf("after the erasure: %+v", data)
	}
	a.fails("customer", "erase", site.ID.String(), "unknown")
	a.fails("customer", "export", "site", "ada")
	delete(a.env, "SVC_MASTER_KEY")
	a.fails("customer", "export", site.ID.String(), "ada")
}
