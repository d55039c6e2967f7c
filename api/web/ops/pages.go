package ops

import (
	"strconv"
	"time"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// The limits of the lists on the operators' pages.
const (
	maxShown       = 200
	maxLanes       = 200
	logPageSize    = 100
	eventsPageSize = 100
	refreshEvery   = 10 // seconds until the overview reloads itself
)

// overviewPage is the first page: the state of the whole service.
type overviewPage struct {
	Figures        models.Figures
	Backlogs       []models.Backlog
	Lanes          []models.Lane
	Alerts         []models.Alert
	Names          map[models.OrganisationID]string // of the organisations of Alerts
	Rail           []models.RailAnswers
	Reconciliation models.Reconciliation
	Audit          models.AuditPass
	Refreshing     bool // the page reloads itself
}

// overview shows key figures, open alerts, backlogs, and the rail's latest answers. With the
// parameter refresh, the page reloads itself.
func (v *visit) overview() (err error) {
	var p overviewPage
	for _, read := range []func() error{
		func() error { p.Figures, err = v.store().Figures(v.ctx); return err },
		func() error { p.Backlogs, err = v.store().Backlogs(v.ctx); return err },
		func() error { p.Lanes, err = v.store().Lanes(v.ctx, maxLanes); return err },
		func() error { p.Alerts, err = v.store().OpenAlerts(v.ctx, maxShown); return err },
		func() error { p.Names, err = v.names(p.Alerts); return err },
		func() error { p.Reconciliation, err = v.store().Reconciliation(v.ctx); return err },
		func() error { p.Audit, err = v.store().AuditPass(v.ctx); return err },
		func() error { p.Rail, err = v.store().RailAnswers(v.ctx); return err },
	} {
		if err := read(); err != nil {
			return err
		}
	}
	b := &base{Title: "Overview", Tab: "overview"}
	if p.Refreshing = v.query("refresh") != ""; p.Refreshing {
		b.Refresh = refreshEvery
	}
	return v.show("overview", b, &p)
}

// names returns the names of the organisations of alerts.
func (v *visit) names(alerts []models.Alert) (map[models.OrganisationID]string, error) {
	var ids []models.OrganisationID
	for _, a := range alerts {
		if !a.OrganisationID.IsZero() {
			ids = append(ids, a.OrganisationID)
		}
	}
	return v.store().OrganisationNames(v.ctx, ids)
}

// searchPage is the page of a search for any kind of object.
type searchPage struct {
	Text string
	Hits []models.Hit
}

// search shows the objects that the parameter q names, such as by id, reference or name.
func (v *visit) search() (err error) {
	p := searchPage{Text: v.query("q")}
	if p.Hits, err = v.store().Search(v.ctx, p.Text); err != nil {
		return err
	}
	return v.show("search", &base{Title: "Search", Tab: "search"}, &p)
}

// organisationPage is the page of one organisation.
type organisationPage struct {
	Organisation models.Organisation
	Sites        []models.Site
	Clients      []models.Client
	Endpoints    []models.WebhookEndpoint
	Pause        *models.Pause       // of its debits; nil for none
	Recent       []models.AuditEntry // the latest acts about it
}

// organisation shows the organisation with the parameter id.
func (v *visit) organisation() error {
	var p organisationPage
	var id models.OrganisationID
	err := id.UnmarshalText([]byte(v.query("id")))
	if err != nil {
		return err
	}
	filter := models.AuditFilter{OrganisationID: id}
	for _, read := range []func() error{
		func() error { p.Organisation, err = v.store().Organisation(v.ctx, id); return err },
		func() error { p.Sites, err = v.store().Sites(v.ctx, id); return err },
		func() error { p.Clients, err = v.store().Clients(v.ctx, id); return err },
		func() error { p.Endpoints, err = v.store().WebhookEndpoints(v.ctx, id); return err },
		func() error { p.Pause, err = v.pauseOf(id); return err },
		func() error {
			p.Recent, err = v.store().AuditLog(v.ctx, filter, models.AuditPosition{}, 10)
			return err
		},
	} {
		if err := read(); err != nil {
			return err
		}
	}
	return v.show("organisation", &base{Title: p.Organisation.Name, Tab: "search"}, &p)
}

// pauseOf returns the pause of an organisation's debits, nil for none.
func (v *visit) pauseOf(id models.OrganisationID) (*models.Pause, error) {
	all, err := v.store().Pauses(v.ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Queue == "" && all[i].OrganisationID == id {
			return &all[i], nil
		}
	}
	return nil, nil
}

// batchPage is the page of one batch.
type batchPage struct {
	models.BatchStory
	Organisation models.Organisation
	Site         models.Site
}

// batch shows the batch with the parameters site and ref, its batchReference.
func (v *visit) batch() error {
	var site models.SiteID
	err := site.UnmarshalText([]byte(v.query("site")))
	if err != nil {
		return err
	}
	var p batchPage
	if p.BatchStory, err = v.store().BatchStory(v.ctx, site, v.query("ref")); err != nil {
		return err
	}
	if p.Organisation, err = v.store().Organisation(v.ctx, p.Batch.OrganisationID); err != nil {
		return err
	}
	if p.Site, err = v.store().AnySite(v.ctx, site); err != nil {
		return err
	}
	return v.show("batch", &base{Title: "Batch " + p.Batch.Reference, Tab: "search"}, &p)
}

// paymentPage is the page of one payment intent.
type paymentPage struct {
	models.PaymentStory
	Organisation models.Organisation
	Site         models.Site
}

// payment shows the payment intent with the parameter id.
func (v *visit) payment() error {
	var id models.PaymentIntentID
	err := id.UnmarshalText([]byte(v.query("id")))
	if err != nil {
		return err
	}
	var p paymentPage
	if p.PaymentStory, err = v.store().PaymentStory(v.ctx, id); err != nil {
		return err
	}
	if p.Organisation, err = v.store().Organisation(v.ctx, p.Intent.OrganisationID); err != nil {
		return err
	}
	if p.Site, err = v.store().AnySite(v.ctx, p.Intent.SiteID); err != nil {
		return err
	}
	return v.show("payment", &base{Title: "Payment " + id.String(), Tab: "search"}, &p)
}

// pausesPage is the page of the pauses. Its base has those that are in force.
type pausesPage struct{ Queues []models.Queue }

// pauses shows the pauses, and the queues that can be paused.
func (v *visit) pauses() error {
	return v.show("pauses", &base{Title: "Pauses", Tab: "pauses"}, &pausesPage{models.PausableQueues})
}

// booksPage is the page about the books: the comparison of ledger and rail, and the recurring
// audit.
type booksPage struct {
	Reconciliation models.Reconciliation
	Audit          models.AuditPass
	Found          []models.Difference // between ledger and rail
	Alerts         []models.Alert      // violations and gaps
}

// Violations returns the number of open alerts about violations that the audit has found.
func (p *booksPage) Violations() (n int) {
	for _, a := range p.Alerts {
		if a.Kind == models.AlertAuditViolation {
			n++
		}
	}
	return n
}

// books shows how far comparison and audit have come, and what they have found.
func (v *visit) books() (err error) {
	var p booksPage
	if p.Reconciliation, err = v.store().Reconciliation(v.ctx); err != nil {
		return err
	}
	if p.Audit, err = v.store().AuditPass(v.ctx); err != nil {
		return err
	}
	if p.Found, err = v.store().Differences(v.ctx, maxShown); err != nil {
		return err
	}
	alerts, err := v.store().OpenAlerts(v.ctx, models.MostCounted)
	if err != nil {
		return err
	}
	for _, a := range alerts {
		if a.Kind == models.AlertAuditViolation || a.Kind == models.AlertReconciliationGap {
			p.Alerts = append(p.Alerts, a)
		}
	}
	return v.show("books", &base{Title: "Books", Tab: "books"}, &p)
}

// logPage is a page of the audit log.
type logPage struct {
	Filter  models.AuditFilter
	Fields  map[string]string // the filter as typed, by parameter
	Entries []models.AuditEntry
	Next    string // the next page's address, which may be empty; "" after a page that is not full
}

// auditLog shows the entries that match the parameters, newest first.
func (v *visit) auditLog() error {
	p := logPage{Fields: map[string]string{}}
	for _, name := range []string{"actor", "act", "organisation", "subject", "from", "to"} {
		p.Fields[name] = v.query(name)
	}
	p.Filter = models.AuditFilter{
		Actor: p.Fields["actor"], Act: models.ActName(p.Fields["act"]), Subject: p.Fields["subject"],
	}
	if text := p.Fields["organisation"]; text != "" {
		if err := p.Filter.OrganisationID.UnmarshalText([]byte(text)); err != nil {
			return err
		}
	}
	from, to, err := v.period()
	if err != nil {
		return err
	}
	p.Filter.From, p.Filter.To = from, to
	var at models.AuditPosition
	if at.At, err = v.after(&at.Key); err != nil {
		return err
	}
	if p.Entries, err = v.store().AuditLog(v.ctx, p.Filter, at, logPageSize); err != nil {
		return err
	}
	if len(p.Entries) == logPageSize {
		last := p.Entries[logPageSize-1]
		fields := []any{"afterAt", int64(last.At), "afterId", last.ID}
		for name, value := range p.Fields {
			fields = append(fields, name, value)
		}
		p.Next = web.WithQuery(Path+"/log", fields...)
	}
	return v.show("log", &base{Title: "Audit log", Tab: "log"}, &p)
}

// after reads the position at which a further page of a list begins. It returns the time of the
// position, and sets id to its id. On the first page, it returns 0 and leaves id unchanged.
func (v *visit) after(id interface{ UnmarshalText([]byte) error }) (models.Millis, error) {
	if v.query("afterId") == "" {
		return 0, nil
	}
	at, err := strconv.ParseInt(v.query("afterAt"), 10, 64)
	if err != nil {
		return 0, inputError("The position of the page is not valid: begin at the first page.")
	}
	return models.Millis(at), id.UnmarshalText([]byte(v.query("afterId")))
}

// period reads the parameters from and to. It returns 0 for an empty one.
func (v *visit) period() (from, to models.Millis, err error) {
	if from, err = parseTime(v.r.FormValue("from")); err != nil {
		return 0, 0, err
	}
	to, err = parseTime(v.r.FormValue("to"))
	return from, to, err
}

// parseTime reads a time in UTC: a date, a value of an input of the type datetime-local, or a time
// of RFC 3339. It returns 0 for "".
func parseTime(text string) (models.Millis, error) {
	if text == "" {
		return 0, nil
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return models.MillisOf(at), nil
		}
	}
	return 0, inputError("A time looks like 2026-01-31 or 2026-01-31T08:00, in UTC.")
}
