package models

import "errors"

// ErrCustomerInUse says that a customer's data cannot be erased yet. A debit or payment of the
// customer is open or in doubt, and the service needs the customer's AgreementID to settle it.
var ErrCustomerInUse = errors.New("models: the customer has open debits or payments")

// CustomerData is everything that the service stores about the customer of a reference on one Site.
// An operator exports it as JSON. Amounts are in minor units, and times in service time.
type CustomerData struct {
	SiteID            SiteID         `json:"siteId"`
	CustomerReference string         `json:"customerReference"`
	Links             []LinkData     `json:"links"`     // every link of the reference, oldest first
	Rows              []RowData      `json:"rows"`      // by submission and position in the batch
	Movements         []MovementData `json:"movements"` // oldest first
	Payments          []PaymentData  `json:"payments"`  // made on the Site by the customers of Links
}

// PartyData is a Party, empty if it was erased or no customer has signed up.
type PartyData struct {
	CustomerID  string `json:"customerId,omitempty"`
	AgreementID string `json:"agreementId,omitempty"`
}

// LinkData is a customer link.
type LinkData struct {
	LinkID    LinkID    `json:"linkId"`
	State     LinkState `json:"state"`
	InvitedAt Millis    `json:"invitedAt"`
	ExpiresAt Millis    `json:"expiresAt"`
	LinkedAt  Millis    `json:"linkedAt,omitzero"`
	RevokedAt Millis    `json:"revokedAt,omitzero"`
	TraceID   TraceID   `json:"traceId,omitempty"`
	PartyData
	Party []byte `json:"-"` // PartyData as stored, sealed
}

// RowData is a batch row.
type RowData struct {
	BatchReference   string     `json:"batchReference"`
	RowReference     string     `json:"rowReference"`
	LinkID           LinkID     `json:"linkId,omitzero"`
	Amount           Amount     `json:"amount"`
	Currency         string     `json:"currency"`
	State            RowState   `json:"state"`
	Outcome          RowOutcome `json:"outcome,omitempty"`
	CorrectedOutcome RowOutcome `json:"correctedOutcome,omitempty"`
	SubmittedAt      Millis     `json:"submittedAt"`
	SettledAt        Millis     `json:"settledAt,omitzero"`
}

// MovementData is a ledger entry of a batch row.
type MovementData struct {
	RailKey        string `json:"railKey"`
	RecordedAt     Millis `json:"recordedAt"`
	Amount         Amount `json:"amount"`
	Currency       string `json:"currency"`
	BatchReference string `json:"batchReference"`
	RowReference   string `json:"rowReference"`
}

// PaymentData is a payment intent with its transaction.
type PaymentData struct {
	PaymentIntentID   PaymentIntentID   `json:"paymentIntentId"`
	TransactionID     TransactionID     `json:"transactionId"`
	OrderID           string            `json:"orderId,omitempty"`
	Amount            Amount            `json:"amount"`
	AmountCharged     Amount            `json:"amountCharged"`
	Currency          string            `json:"currency"`
	State             IntentState       `json:"state"`
	TransactionStatus TransactionStatus `json:"transactionStatus,omitempty"`
	StartedAt         Millis            `json:"startedAt"`
	FinalAt           Millis            `json:"finalAt,omitzero"`
	PartyData
	Party []byte `json:"-"` // PartyData as stored, sealed
}
