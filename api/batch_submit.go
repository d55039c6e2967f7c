package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"

	"partnerbilling/api/strictjson"
	"partnerbilling/models"
)

// receipt is the answer to a submission. A repeated submission gets the same receipt, whatever has
// happened to the batch since.
type receipt struct {
	BatchReference string            `json:"batchReference"`
	State          models.BatchState `json:"state"`
	RowCount       int               `json:"rowCount"`
	TotalAmount    models.Amount     `json:"totalAmount"`
	SubmittedAt    models.Millis     `json:"submittedAt"`
	SettleBy       models.Millis     `json:"settleBy"`
}

// receiptOf returns the receipt of a batch, which shows the state at submission.
func receiptOf(b *models.Batch) receipt {
	return receipt{
		BatchReference: b.Reference, State: models.BatchInProgress, RowCount: b.Counts.Rows(),
		TotalAmount: b.TotalAmount, SubmittedAt: b.SubmittedAt, SettleBy: b.SettleBy,
	}
}

// MaxDifferences is the largest number of differences that the answer to a conflicting submission
// lists.
const MaxDifferences = 20

// submit stores the batch in the body and answers 202 with its receipt, also if the same body is
// submitted again. Another body under the same batchReference gets 409 with the differences.
func (b *batches) submit(ctx context.Context, r *Request) error {
	n, err := readSubmission(r)
	if err != nil {
		return err
	}
	n.Fingerprint = sha256.Sum256(strictjson.Canonical(r.Body))
	if n.Extras, err = batchExtras(r.Body); err != nil {
		return err
	}
	earlier, err := b.create(ctx, r, &n)
	if earlier != nil {
		return conflictError(earlier, n.Reference, r.Body)
	}
	return err
}

// create stores a batch and answers with its receipt. If an earlier submission with another body
// holds the batchReference, create writes no answer and returns that submission.
func (b *batches) create(ctx context.Context, r *Request, n *models.NewBatch) (*models.StoredSubmission, error) {
	done, err := b.store.SubmitBatch(ctx, *n)
	if err != nil || done.Conflict != nil {
		return done.Conflict, err
	}
	b.reader.expect(batchKey{n.SiteID, n.Reference}, len(n.Rows))
	return nil, b.answerSubmission(r, &done)
}

// answerSubmission answers with the receipt of a batch. If the batch is new, it also wakes workers
// for its tasks.
func (b *batches) answerSubmission(r *Request, done *models.Submission) error {
	if done.Replayed {
		r.Replayed()
	} else {
		notifyTasks(b.notify, done.Tasks...)
	}
	r.Location("billing", "sites", r.Site.ID.String(), "batches", done.Batch.Reference)
	r.RetryAfter(retryInProgress)
	return r.JSON(http.StatusAccepted, receiptOf(&done.Batch))
}

// conflictError returns the refusal of a body under the batchReference of an earlier submission.
// The refusal lists at most MaxDifferences differences between the two bodies. A retry, which has
// no body, differs from every submission in retryOf.
func conflictError(earlier *models.StoredSubmission, reference string, body strictjson.Value) error {
	e := Refuse(BatchReferenceConflict, "batchReference")
	stored, err := storedBody(earlier, reference)
	if err != nil {
		return err
	}
	most := MaxDifferences
	if earlier.RetryOf != "" {
		most--
		e.Add(Fault{Code: BatchReferenceConflict, Target: "retryOf",
			Message: "retryOf is set in the stored batch, which a retry made: repeat that retry to get its receipt"})
	}
	for _, path := range strictjson.Diff(stored, body, most) {
		e.Add(Fault{Code: BatchReferenceConflict, Target: path,
			Message: path + " differs from the batch that was submitted first"})
	}
	return e
}

// readSubmission decodes the body of a submission, and leaves Fingerprint and Extras empty. The
// error lists every fault.
func readSubmission(r *Request) (models.NewBatch, error) {
	body := strictjson.NewObject(r.Body, "batchReference", "rows")
	n := models.NewBatch{SiteID: r.Site.ID, OrganisationID: r.Site.OrganisationID, TraceID: r.TraceID()}
	n.Reference = body.RequiredString("batchReference", models.ValidateReference)
	var whole Error // faults of the rows as a whole
	expected := min(r.Body.Get("rows").Len(), models.MaxBatchRows)
	n.Rows = make([]models.NewRow, 0, expected)
	first := make(map[string]int, expected) // index by rowReference
	for i, fields := range body.RequiredObjects("rows", 1, models.MaxBatchRows, "customerReference", "rowReference",
		"amount") {
		row := models.NewRow{
			CustomerReference: fields.RequiredString("customerReference", models.ValidateReference),
			RowReference:      fields.RequiredString("rowReference", models.ValidateReference),
			Amount:            models.Amount(fields.RequiredInt("amount", strictjson.AtLeast(1))),
		}
		n.Rows = append(n.Rows, row)
		if j, repeats := first[row.RowReference]; repeats && row.RowReference != "" {
			whole.Add(repeatedReference(fields.Path("rowReference"), j))
		} else {
			first[row.RowReference] = i
		}
	}
	if overflows(n.Rows) {
		whole.Add(Fault{Code: BatchesInvalidField, Target: "rows", Message: fmt.Sprintf(
			"rows must have amounts that add up to at most %d", models.MaxAmount)})
	}
	return n, joinFaults(r.BodyError(body), whole.Faults)
}

// repeatedReference returns the fault of a rowReference that the row at index first already has.
func repeatedReference(path string, first int) Fault {
	return Fault{Code: DuplicateRowReference, Target: path,
		Message: fmt.Sprintf("%s is the same as rows[%d].rowReference", path, first)}
}

// overflows reports whether the valid amounts of the rows add up to more than models.MaxAmount.
func overflows(rows []models.NewRow) bool {
	var total models.Amount
	for _, row := range rows {
		var err error
		if total, err = total.Add(max(row.Amount, 0)); err != nil {
			return true
		}
	}
	return false
}

// joinFaults adds the faults of the body as a whole to fields, the error about the body's fields.
// It leaves them out if the body is malformed. It returns nil if there is no fault at all.
func joinFaults(fields error, whole []Fault) error {
	e := &Error{}
	if errors.As(fields, &e) && e.Faults[0].Code == MalformedJSON {
		return e
	}
	e.Faults = append(e.Faults, whole...)
	if len(e.Faults) == 0 {
		return nil
	}
	return e
}

// predictions is the answer to a validation.
type predictions struct {
	Rows []rowPrediction `json:"rows"`
}

// rowPrediction is the outcome that a debit of the row would have now, judged by the customer link
// alone.
type rowPrediction struct {
	RowReference string            `json:"rowReference"`
	Prediction   models.RowOutcome `json:"prediction"`
}

// validate checks a submission and answers with a prediction for each row. It stores nothing.
func (b *batches) validate(ctx context.Context, r *Request) error {
	n, err := readSubmission(r)
	if err != nil {
		return err
	}
	customers := make([]string, len(n.Rows))
	for i, row := range n.Rows {
		customers[i] = row.CustomerReference
	}
	outcomes, err := b.store.PredictOutcomes(ctx, r.Site.ID, customers)
	if err != nil {
		return err
	}
	answer := predictions{Rows: make([]rowPrediction, len(n.Rows))}
	for i, row := range n.Rows {
		answer.Rows[i] = rowPrediction{row.RowReference, outcomes[i]}
	}
	return r.JSON(http.StatusOK, answer)
}

// retry submits the retryable rows of a settled batch as a new batch, under the batchReference in
// the body. It answers 202 with the new batch's receipt.
func (b *batches) retry(ctx context.Context, r *Request) error {
	body := strictjson.NewObject(r.Body, "batchReference")
	reference := body.RequiredString("batchReference", models.ValidateReference)
	if err := r.BodyError(body); err != nil {
		return err
	}
	done, err := b.store.RetryBatch(ctx, models.NewRetry{
		SiteID: r.Site.ID, OrganisationID: r.Site.OrganisationID, Parent: r.Param(), Reference: reference,
		TraceID: r.TraceID(),
	})
	if err != nil {
		return batchError(err)
	}
	return b.answerSubmission(r, &done)
}
