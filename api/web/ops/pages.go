package ops

import (
	"strconv"
	"time"

	"partnerbilling/api/web"
	"partnerbilling/models"
)

// The limits of the pages' lists.
const (
	maxShown       = 200
	maxLanes       = 200
	logPageSize    = 100
	eventsPageSize = 100
	refreshEvery   = 10 // seconds
)

type overviewPage struct {
	Figures        models.Figures
	Backlogs       []models.Backlog
	Lanes          []models.Lane
	Alerts         []models.Alert
	Names          map[models.OrganisationID]string
	Rail           []models.RailAnswers
	Reconciliation models.Reconciliation
	Audit          models.AuditPass
	Refreshing     bool
}

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

type searchPage struct {
	Text string
	Hits []models.Hit
}

func (v *visit) search() (err error) {
	p := searchPage{Text: v.query("q")}
	if p.Hits, err = v.store().Search(v.ctx, p.Text); err != nil {
		return err
	}
	return v.show("search", &base{Title: "Search", Tab: "search"}, &p)
}

type organisationPage struct {
	Organisation models.Organisation
	Sites        []models.Site
	Clients      []models.Client
	Endpoints    []models.WebhookEndpoint
	Pause        *models.Pause
	Recent       []models.AuditEntry
}

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

type batchPage struct {
	models.BatchStory
	Organisation models.Organisation
	Site         models.Site
}

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

type paymentPage struct {
	models.PaymentStory
	Organisation models.Organisation
	Site         models.Site
}

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

type pausesPage struct{ Queues []models.Queue }

func (v *visit) pauses() error {
	return v.show("pauses", &base{Title: "Pauses", Tab: "pauses"}, &pausesPage{models.PausableQueues})
}

type booksPage struct {
	Reconciliation models.Reconciliation
	Audit          models.AuditPass
	Found          []models.Difference
	Alerts         []models.Alert // about the books
}

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

type logPage struct {
	Filter  models.AuditFilter
	Fields  map[string]string
	Entries []models.AuditEntry
	Next    string // the next page's address; "" on the last
}

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

// after reads the position in the query of a further page: it returns the time, and sets id.
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

// period reads the parameters from and to; 0 for an empty one.
func (v *visit) period() (from, to models.Millis, err error) {
	if from, err = parseTime(v.r.FormValue("from")); err != nil {
		return 0, 0, err
	}
	to, err = parseTime(v.r.FormValue("to"))
	return from, to, err
}

// parseTime reads a time in UTC as a field of the kind datetime-local writes it, a date, or a time
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
