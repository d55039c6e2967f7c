package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"partnerbilling/models"
)

// batch is a batch as the API returns it.
type batch struct {
	models.BatchSummary
	Rows []models.BatchRowSummary `json:"rows"`
}

// Open reports whether the batch has rows that are not settled.
func (b batch) Open() bool { return b.State != models.BatchSettled }

// batchList is a page of the API's list of batches.
type batchList struct {
	page
	Items []batch `json:"items"`
}

// open reports whether a batch of the list is open.
func (l *batchList) open() bool { return slices.ContainsFunc(l.Items, batch.Open) }

// batchesPage is the console's page with the list of a Site's batches and its filters.
type batchesPage struct {
	List     batchList
	States   []string
	Chosen   string
	From, To string // dates, as they were filled in
	Pager    pager
}

func (c *Console) listBatches(v *visit) error {
	p := batchesPage{
		Chosen: v.query("state"), States: []string{"inProgress", "settled"}, From: v.query("from"), To: v.query("to"),
	}
	q := v.listQuery("state")
	if q.Get("cursor") == "" {
		setDay(q, "submittedFrom", p.From, 0)
		setDay(q, "submittedTo", p.To, 24*time.Hour-time.Millisecond)
	}
	if err := v.get(v.billing("batches"), q, &p.List); err != nil {
		return err
	}
	p.Pager = v.pager(p.List.page, "state", "from", "to")
	return v.render(http.StatusOK, "batches", &base{Title: "Batches", Tab: "batches", Poll: p.List.open()}, p)
}

// batchForm holds the fields of the form for a new batch, and the result of a dry run.
type batchForm struct {
	Reference, Rows string
	Checked         bool // a dry run has found no fault; the fields below are its result
	Predictions     []prediction
	Outcomes        []outcomeCount
	Total           models.Amount
}

// prediction is a row with the outcome that a dry run predicts.
type prediction struct {
	batchRow
	Prediction string
	Debit      models.Amount // the row's amount
}

// outcomeCount is the number of rows with an outcome.
type outcomeCount struct {
	Outcome string
	Count   int
}

// sampleAmount is the amount of the rows with which the console fills in a form, in cents.
const sampleAmount = "1250"

// newBatch shows the form for a new batch. With fill=linked, it fills in a row for each of up to
// 100 linked customers.
func (c *Console) newBatch(v *visit) error {
	f := batchForm{Reference: v.query("ref")}
	if v.query("fill") == "linked" {
		var list customerList
		if err := v.get(v.billing("customers"), url.Values{"state": {"linked"}, "limit": {"100"}}, &list); err != nil {
			return err
		}
		rows := make([]batchRow, len(list.Items))
		for i, customer := range list.Items {
			rows[i] = batchRow{Customer: customer.CustomerReference, Row: "row-" + pad(i+1), Amount: sampleAmount}
		}
		f.Rows = writeRows(rows)
	}
	return v.batchForm(http.StatusOK, f, nil)
}

// batchForm shows the form. It proposes the service time as the reference of a new batch.
func (v *visit) batchForm(status int, f batchForm, faults []fault) error {
	if f.Reference == "" && status == http.StatusOK {
		now, err := v.console.ServiceTime(v.ctx)
		if err != nil {
			return err
		}
		f.Reference = now.Time().Format("2006-01-02 15:04:05")
	}
	return v.render(status, "new-batch", &base{Title: "New batch", Tab: "batches", Faults: faults}, f)
}

// submitBatch submits the batch of a form, or only validates it. The rows of an uploaded file
// replace those of the form.
func (c *Console) submitBatch(v *visit) error {
	f := batchForm{Reference: v.form("batchReference"),
		Rows: strings.ReplaceAll(v.r.PostForm.Get("rows"), "\r\n", "\n")}
	uploaded, err := v.file("file")
	if err != nil {
		return err
	}
	if strings.TrimSpace(uploaded) != "" {
		f.Rows = uploaded
	}
	rows, err := readRows(f.Rows)
	if err != nil {
		return v.batchForm(http.StatusBadRequest, f, []fault{{Message: err.Error(), Target: "rows"}})
	}
	wire := make([]map[string]any, len(rows))
	for i, r := range rows {
		wire[i] = r.wire()
	}
	body := map[string]any{"batchReference": f.Reference, "rows": wire}
	if v.form("action") == "validate" {
		return v.validateBatch(f, rows, body)
	}
	refusal, err := refused(v.post(v.billing("batches"), body, nil))
	if refusal != nil {
		return v.batchForm(refusal.Status, f, nameLines(refusal.faults, rows))
	}
	if err != nil {
		return err
	}
	return v.seeOther(v.sitePath("/batch", "ref", f.Reference))
}

// validateBatch shows the predicted outcome of each row.
func (v *visit) validateBatch(f batchForm, rows []batchRow, body any) error {
	var answer struct {
		Rows []struct{ Prediction string }
	}
	refusal, err := refused(v.post(v.billing("batches", "validation"), body, &answer))
	if refusal != nil {
		return v.batchForm(refusal.Status, f, nameLines(refusal.faults, rows))
	}
	if err != nil {
		return err
	}
	f.Checked = true
	for i, row := range answer.Rows {
		if i < len(rows) {
			f.Predictions = append(f.Predictions, prediction{rows[i], row.Prediction, rows[i].cents()})
			f.Total += rows[i].cents()
			f.Outcomes = countOutcome(f.Outcomes, row.Prediction)
		}
	}
	return v.batchForm(http.StatusOK, f, nil)
}

// countOutcome adds one to the count of an outcome.
func countOutcome(counts []outcomeCount, outcome string) []outcomeCount {
	for i := range counts {
		if counts[i].Outcome == outcome {
			counts[i].Count++
			return counts
		}
	}
	return append(counts, outcomeCount{outcome, 1})
}

// batchPage is the page of one batch.
type batchPage struct {
	Batch    batch
	Outcomes []outcomeCount           // rows by outcome, or by state if they have none
	Shown    []models.BatchRowSummary // the rows with the outcome Chosen; all for ""
	Chosen   string
}

func (c *Console) showBatch(v *visit) error { return v.batchPage(http.StatusOK, v.query("ref"), nil) }

func (v *visit) batchPage(status int, reference string, faults []fault) error {
	p := batchPage{Chosen: v.query("outcome")}
	if err := v.get(v.billing("batches", reference), nil, &p.Batch); err != nil {
		return err
	}
	for _, row := range p.Batch.Rows {
		shown := string(row.Outcome)
		if shown == "" {
			shown = string(row.State)
		}
		p.Outcomes = countOutcome(p.Outcomes, shown)
		if p.Chosen == "" || p.Chosen == shown {
			p.Shown = append(p.Shown, row)
		}
	}
	return v.render(status, "batch", &base{
		Title: "Batch " + reference, Tab: "batches", Poll: p.Batch.Open(), Faults: faults,
	}, p)
}

// changeBatch cancels or retries a batch.
func (c *Console) changeBatch(v *visit) error {
	reference, next := v.form("ref"), v.form("ref")
	var err error
	switch v.form("action") {
	case "cancel":
		err = v.post(v.billing("batches", reference, "cancellation"), nil, nil)
	case "retry":
		next = v.form("batchReference")
		err = v.post(v.billing("batches", reference, "retry"), object("batchReference", next), nil)
	default:
		return errForm
	}
	refusal, err := refused(err)
	if refusal != nil {
		return v.batchPage(refusal.Status, reference, refusal.faults)
	}
	if err != nil {
		return err
	}
	return v.seeOther(v.sitePath("/batch", "ref", next))
}

// downloadBatch answers with the API's CSV of the rows.
func (c *Console) downloadBatch(v *visit) error {
	r, err := v.call(http.MethodGet, v.billing("batches", v.query("ref"), "rows"), nil, "Accept", "text/csv")
	if err != nil {
		return err
	}
	if err := r.err(); err != nil {
		return err
	}
	for _, name := range []string{"Content-Type", "Content-Disposition"} {
		v.w.Header().Set(name, r.Header.Get(name))
	}
	v.answered = true
	_, _ = v.w.Write(r.Body)
	return nil
}

// setDay sets the parameter name of a list to the beginning of a date ("2026-11-28", UTC) plus
// after, in Unix ms. It passes a malformed date on, so that the API refuses it.
func setDay(q url.Values, name, date string, after time.Duration) {
	if date == "" {
		return
	}
	day, err := time.Parse(time.DateOnly, date)
	if err != nil {
		q.Set(name, date)
		return
	}
	q.Set(name, decimal(models.MillisOf(day.Add(after))))
}
