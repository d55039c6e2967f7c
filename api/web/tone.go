package web

import "fmt"

// Tone returns the CSS class that colours a state, and other for a state that it does not know.
func Tone(state any, other string) string {
	switch fmt.Sprint(state) {
	case "linked", "succeeded", "Settled", "settled", "delivered", "active", "done":
		return "good"
	case "failed", "Failed", "unconfirmed", "undelivered", "refused", "disabled":
		return "bad"
	case "revoked", "expired", "Expired", "Cancelled", "cancelled", "customerNotActive", "":
		return "still"
	case "invited", "created":
		return "open"
	case "inProgress", "pending":
		return "busy"
	}
	return other
}
