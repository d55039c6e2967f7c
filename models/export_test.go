package models

// ClaimDueSQL is for a test that looks at its plan.
const ClaimDueSQL = claimDueSQL
