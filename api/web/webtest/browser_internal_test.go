package webtest

import (
	"slices"
	"testing"

	"github.com/chromedp/cdproto/runtime"
)

// Every call of console.error is reported, whatever its arguments.
func TestConsoleErrorsAreReported(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]*runtime.RemoteObject{
		"console.error:":       nil,
		`console.error: "a" 1`: {{Value: []byte(`"a"`)}, {Value: []byte("1")}},
	} {
		var tab Tab
		tab.listen(&runtime.EventConsoleAPICalled{Type: runtime.ConsoleAPICalledTypeError, Args: args})
		if got := tab.BrowserErrors(); !slices.Equal(got, []string{want}) {
			t.Errorf("reported %q, want %q", got, want)
		}
	}
}
