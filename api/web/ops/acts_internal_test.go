package ops

import (
	"regexp"
	"strings"
	"testing"

	"partnerbilling/models"
)

// The message about a redelivery names the exact time from which the next one continues, in forms
// that the field of the page and the parameter accept.
func TestRedeliveredNamesTheExactTime(t *testing.T) {
	t.Parallel()
	const from models.Millis = 1_800_000_012_030 // 2027-01-15T08:00:12.030Z
	message := redelivered(models.Redelivery{Count: 2, ResumeFrom: from})
	text := regexp.MustCompile(`from (\S+)\.$`).FindStringSubmatch(message)
	if text == nil {
		t.Fatalf("no time in %q", message)
	}
	for _, typed := range []string{text[1], strings.TrimSuffix(text[1], "Z")} {
		if at, err := parseTime(typed); at != from || err != nil {
			t.Errorf("%q: %d, %v; want %d", typed, at, err, from)
		}
	}
	if message := redelivered(models.Redelivery{Count: 1}); message != "1 event will be delivered again." {
		t.Error(message)
	}
}
