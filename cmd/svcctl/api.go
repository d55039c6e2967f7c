package main

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"partnerbilling/api/client"
)

// apiCommand returns `svcctl api`, which calls any operation of the API by its method and path.
func (c *ctl) apiCommand() *cobra.Command {
	body := parameterValue{parameter: parameter{name: "data", kind: kindJSON, usage: "the body as JSON, or @FILE"}}
	var headers []string
	cmd := &cobra.Command{
		Use: "api METHOD PATH", Short: "Call any operation of the API, and print its answer",
		Long: `Call any operation of the API, and print the body of its answer. {siteId} in the path stands for
the Site. If the answer is lost, the command repeats a GET. It also repeats the creation of an
invitation or a payment intent with the header Idempotency-Key.`,
		Example: "  svcctl api GET '/billing/sites/{siteId}/customers?limit=5'\n" +
			"  svcctl api POST /webhooks/events/redelivery --data '{\"status\":\"failed\"}'",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.callAPI(cmd.Context(), strings.ToUpper(args[0]), args[1], body.value, headers)
		},
	}
	cmd.Flags().Var(&body, "data", body.usage)
	cmd.Flags().StringArrayVarP(&headers, "header", "H", nil, "a further header, 'Name: value'")
	return cmd
}

// callAPI calls an operation and prints the body of the answer. body is sent as JSON, unless it is
// nil. Each header has the form "Name: value". If the answer is lost, callAPI repeats a GET, and an
// operation that takes an Idempotency-Key and has one.
func (c *ctl) callAPI(ctx context.Context, method, path string, body any, headers []string) error {
	if !strings.HasPrefix(path, "/") {
		return fail(exitUsage, "PATH must begin with a slash")
	}
	call := client.Call{Method: method, Path: path, Body: body, Header: http.Header{}, Raw: true}
	for _, header := range headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok {
			return fail(exitUsage, "--header must be 'Name: value'")
		}
		call.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	api, s, err := c.connect(ctx)
	if err != nil {
		return err
	}
	keyed := call.Header.Get("Idempotency-Key") != "" && takesKey(method, path)
	call.Repeatable = method == http.MethodGet || keyed
	if strings.Contains(path, siteVariable) {
		site, err := c.siteOf(s)
		if err != nil {
			return err
		}
		call.Path = atSite(path, site)
	}
	response, err := api.Do(ctx, call)
	if err != nil {
		return err
	}
	return c.printBody(response)
}

// takesKey reports whether the operation of a method and a path takes an Idempotency-Key. The
// service ignores the header on all others.
func takesKey(method, path string) bool {
	return slices.ContainsFunc(operations, func(op operation) bool {
		before, after, _ := strings.Cut(op.path, siteVariable)
		return op.keyed && op.method == method && strings.HasPrefix(path, before) && strings.HasSuffix(path, after)
	})
}

// printBody prints a JSON body with indentation, and any other body as it is. On a terminal it
// replaces control characters.
func (c *ctl) printBody(response client.Response) error {
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		return printIndented(c.out, response.Body)
	}
	text := response.Body
	if terminalWidth(c.out) > 0 {
		text = []byte(printableLines(strings.ReplaceAll(string(text), "\r\n", "\n")))
	}
	_, err := c.out.Write(text)
	return err
}

// siteVariable stands for the Site in a path.
const siteVariable = "{siteId}"

// atSite replaces siteVariable in a path by a Site.
func atSite(path, site string) string {
	return strings.ReplaceAll(path, siteVariable, strings.TrimPrefix(client.Path(site), "/"))
}
