package models

// LedgerAccount is one side of the double entry that records a movement of money.
type LedgerAccount string

// The accounts, each kept per Site and currency. A successful debit moves money from the customer's bank to the service
// (railClearing is debited), which then owes it to the partner (sitePayable is credited).
const (
	AccountRailClearing LedgerAccount = "railClearing"
	AccountSitePayable  LedgerAccount = "sitePayable"
)
