package main

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/api/client"
)

// completionTimeout bounds the request for the values that a shell offers when the user presses
// Tab.
const completionTimeout = 1500 * time.Millisecond

// liveValues are the lists of the API that complete arguments, by the name of the argument.
var liveValues = map[string]struct {
	list  string // the path of the list
	field string // the field of an item with the value
	hint  string // the field of an item that is shown beside the value; see object.get
}{
	"customerReference": {"/billing/sites/{siteId}/customers", "customerReference", "state"},
	"batchReference":    {"/billing/sites/{siteId}/batches", "batchReference", "state"},
	"paymentIntentId":   {"/checkout/{siteId}/payment-intent", "paymentIntentId", "orderId|transactionStatus|state"},
	"idempotencyKey":    {"/webhooks/events", "idempotencyKey", "type"},
	"endpoint":          {"/webhooks/endpoints", "endpoint", "url"},
}

// completion is a function that returns the completions of an argument or a flag, as cobra takes
// it.
type completion = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// complete sets the completion of a command's flag.
func (c *ctl) complete(cmd *cobra.Command, flag string, values completion) {
	_ = cmd.RegisterFlagCompletionFunc(flag, values) // fails for an unknown flag only
}

// completeSites completes a siteId with the Sites of the profile or sandbox in use. It sends no
// request.
func (c *ctl) completeSites(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	s, err := c.service()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return s.sites, cobra.ShellCompDirectiveNoFileComp
}

// completeProfiles completes the name of a profile.
func (c *ctl) completeProfiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	stored, err := c.loadProfiles()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(stored.Profiles)), cobra.ShellCompDirectiveNoFileComp
}

// completeArgument completes the next argument of an operation with values of the service. It shows
// no error, and gives up after completionTimeout.
func (c *ctl) completeArgument(op operation) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(op.args) == 0 || len(args) >= len(op.args) && !op.many {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		name := op.args[min(len(args), len(op.args)-1)].name
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		return c.live(ctx, name, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// live returns the values for the argument name that begin with prefix. It takes them from the
// first page of the argument's list. For an endpoint it adds "default" and the known Sites.
func (c *ctl) live(ctx context.Context, name, prefix string) []cobra.Completion {
	source, ok := liveValues[name]
	s, err := c.service()
	if !ok || err != nil {
		return nil
	}
	var found []cobra.Completion
	if name == "endpoint" {
		for _, endpoint := range append([]string{client.DefaultEndpoint}, s.sites...) {
			if strings.HasPrefix(endpoint, prefix) {
				found = append(found, endpoint)
			}
		}
	}
	path := source.list
	if strings.Contains(path, siteVariable) {
		site, err := c.siteOf(s)
		if err != nil {
			return nil
		}
		path = atSite(path, site)
	}
	// Without Repeatable, the client does not repeat a request that gets no response.
	response, err := s.client().Do(ctx, client.Call{Method: http.MethodGet, Path: path})
	var page listPage
	if err != nil || json.Unmarshal(response.Data, &page) != nil {
		return found
	}
	for _, item := range page.Items {
		o, err := parseObject(item)
		if err != nil {
			return found
		}
		value := display(source.field, o.get(source.field))
		listed := slices.ContainsFunc(found, func(c cobra.Completion) bool {
			known, _, _ := strings.Cut(c, "\t")
			return known == value
		})
		if strings.HasPrefix(value, prefix) && !listed {
			found = append(found, cobra.CompletionWithDesc(value, display(source.hint, o.get(source.hint))))
		}
	}
	return found
}
