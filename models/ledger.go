package models

// LedgerAccount is one side of the double entry that records a movement of money.
type LedgerAccount string

// The accounts, each kept per Site and currency. A successful debit moves money from the customer's
// bank to the service (debits railClearing), which then owes it to the partner (credits
// sitePayable).
const (
	AccountRailClearing LedgerAccount = "railClearing"
	AccountSitePayable  LedgerAccount = "sitePayable"
)
