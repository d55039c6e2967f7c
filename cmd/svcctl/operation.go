package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"partnerbilling/api/client"
)

// operation describes a command that calls one operation of the API: its arguments, flags, request
// and output.
type operation struct {
	noun, verb string // the command; a noun without a verb is a command by itself
	short      string
	method     string
	path       string // with {siteId} for the Site, and {name} for an argument
	args       []argument
	query      []parameter // flags that become query parameters
	body       []parameter // flags that become fields of the body
	list       listKind
	columns    []column // of a list
	keyed      bool     // takes an Idempotency-Key
	repeatable bool     // repeating it has no further effect
	file       bool     // answers with a file, not with JSON
	many       bool     // the last argument may be repeated: one call for each
	// extend adds flags to the command. It returns the function to run after each call, with the
	// data of the answer. nil: nothing runs after a call.
	extend func(c *ctl, cmd *cobra.Command) func(ctx context.Context, run *operationRun, data json.RawMessage) error
}

// listKind says whether and how an operation answers with a list.
type listKind int

const (
	listNone  listKind = iota
	listWhole          // all items at once
	listPaged          // page by page
)

// argument is a positional argument: a segment of the path or a field of the body.
type argument struct {
	parameter
	field    string // the field of the body; "": as the name
	label    string // the name in the usage
	optional string // the value if the argument is missing; "": it is required
}

// operationRun is a run of an operation's command. It may call the operation several times.
type operationRun struct {
	*ctl
	operation
	api  *client.Client
	site string // "" if the path has no {siteId}
}

// pageSize is the number of items that one request for a list asks for.
const pageSize = 100

// defaultLimit is the number of items that a list prints without the flag --limit.
const defaultLimit = 100

// addOperations adds the commands of all operations to root, grouped by noun. It adds further
// commands to the nouns batches and logs.
func (c *ctl) addOperations(root *cobra.Command) {
	nouns := map[string]*cobra.Command{}
	for _, op := range operations {
		if op.verb == "" {
			c.addGrouped(root, groupResources, c.operationCommand(op, op.noun))
			continue
		}
		noun, ok := nouns[op.noun]
		if !ok {
			noun = &cobra.Command{Use: op.noun, Short: nounTexts[op.noun]}
			nouns[op.noun] = noun
			c.addGrouped(root, groupResources, noun)
		}
		noun.AddCommand(c.operationCommand(op, op.verb))
	}
	nouns["batches"].AddCommand(c.validateCommand(), c.waitCommand())
	nouns["logs"].AddCommand(c.tailCommand())
}

// operationCommand returns the command of an operation. It makes one call, or one for each value of
// a repeated argument, and prints the answers.
func (c *ctl) operationCommand(op operation, name string) *cobra.Command {
	cmd := &cobra.Command{Use: name + op.usage(), Short: op.short, Args: op.checkArgs}
	query, body := c.addFlags(cmd, op.query), c.addFlags(cmd, op.body)
	if !op.file {
		c.addOutput(cmd)
	}
	var key string
	if op.keyed {
		cmd.Flags().StringVar(&key, "idempotency-key", "",
			"repeat the command with the same key without a second effect")
	}
	limit := 0
	if op.list == listPaged {
		cmd.Flags().IntVar(&limit, "limit", defaultLimit, "maximum number of items; 0: all")
	}
	var after func(ctx context.Context, run *operationRun, data json.RawMessage) error
	if op.extend != nil {
		after = op.extend(c, cmd)
	}
	cmd.ValidArgsFunction = c.completeArgument(op)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		inputs, err := op.inputs(args)
		if err != nil {
			return err
		}
		if key != "" && len(inputs) > 1 {
			return fail(exitUsage, "--idempotency-key is the key of one call: name one %s", op.args[0].name)
		}
		run, err := c.open(cmd.Context(), op)
		if err != nil {
			return err
		}
		printer := c.newPrinter(op.columns)
		for _, input := range inputs {
			request := run.request(input, query, body, key)
			if op.list != listNone {
				return printer.abort(run.printList(cmd.Context(), printer, request, limit))
			}
			if err := run.once(cmd.Context(), printer, request, after); err != nil {
				return input.wrap(op, err)
			}
		}
		return nil
	}
	return cmd
}

// addOutput adds the flag --output.
func (c *ctl) addOutput(cmd *cobra.Command) {
	c.output = outputTable
	cmd.Flags().VarP(&c.output, "output", "o", "form of the output")
	c.complete(cmd, "output", cobra.FixedCompletions(outputFormats, cobra.ShellCompDirectiveNoFileComp))
}

// usage returns the arguments as the usage of the command shows them, with a space before each.
func (op operation) usage() string {
	var b strings.Builder
	for i, a := range op.args {
		switch {
		case a.optional != "":
			fmt.Fprintf(&b, " [%s]", a.label)
		case op.many && i == len(op.args)-1:
			fmt.Fprintf(&b, " %s…", a.label)
		default:
			b.WriteString(" " + a.label)
		}
	}
	return b.String()
}

// checkArgs refuses too few or too many arguments.
func (op operation) checkArgs(_ *cobra.Command, args []string) error {
	required := 0
	for _, a := range op.args {
		if a.optional == "" {
			required++
		}
	}
	switch {
	case len(args) < required:
		return fmt.Errorf("%s is missing", op.args[len(args)].label)
	case len(args) > len(op.args) && !op.many:
		return fmt.Errorf("%q is one argument too many", args[len(op.args)])
	}
	return nil
}

// input holds the parsed arguments of one call, by name.
type input map[string]any

// inputs parses the arguments of the command. It returns an input for each call: more than one only
// if the last argument is repeated.
func (op operation) inputs(args []string) ([]input, error) {
	for len(args) < len(op.args) {
		args = append(args, op.args[len(args)].optional)
	}
	count := max(1, len(args)-len(op.args)+1)
	inputs := make([]input, count)
	for n := range inputs {
		inputs[n] = input{}
		for i, a := range op.args {
			text := args[i]
			if op.many && i == len(op.args)-1 {
				text = args[i+n]
			}
			value, err := a.parse(text, time.Now())
			if err != nil {
				return nil, fail(exitUsage, "%s: %w", a.label, err)
			}
			inputs[n][a.name] = value
		}
	}
	return inputs, nil
}

// wrap adds the value of the repeated argument to the error of a call. Without such an argument it
// returns err as it is.
func (in input) wrap(op operation, err error) error {
	if !op.many {
		return err
	}
	return fmt.Errorf("%v: %w", in[op.args[len(op.args)-1].name], err)
}

// open signs in, and returns a run of the operation. It needs a Site only if the operation's path
// contains {siteId}.
func (c *ctl) open(ctx context.Context, op operation) (*operationRun, error) {
	run := &operationRun{ctl: c, operation: op}
	var err error
	if strings.Contains(op.path, siteVariable) {
		run.api, run.site, err = c.connectSite(ctx)
	} else {
		run.api, _, err = c.connect(ctx)
	}
	return run, err
}

// request returns the call for one input. query and body are the values of the flags. If the
// operation takes an Idempotency-Key and key is "", the call gets a random key.
func (run *operationRun) request(in input, query, body []*parameterValue, key string) client.Call {
	var segments []string
	inPath := map[string]bool{}
	for segment := range strings.SplitSeq(strings.TrimPrefix(run.path, "/"), "/") {
		name := strings.TrimSuffix(strings.TrimPrefix(segment, "{"), "}")
		switch name {
		case segment:
		case "siteId":
			segment = run.site
		default:
			segment, inPath[name] = fmt.Sprint(in[name]), true
		}
		segments = append(segments, segment)
	}
	request := client.Call{
		Method: run.method, Path: client.Path(segments...), Repeatable: run.repeatable || run.method == http.MethodGet,
		Raw: run.file,
	}
	parameters := map[string]string{}
	for _, p := range query {
		parameters[p.name] = p.query()
	}
	request.Path += client.Query(parameters)
	if fields := bodyFields(run.args, in, inPath, body); len(fields) > 0 || len(run.body) > 0 {
		request.Body = fields
	}
	if run.keyed {
		if key == "" {
			key = rand.Text()
		}
		request.Header, request.Repeatable = http.Header{"Idempotency-Key": {key}}, true
	}
	return request
}

// bodyFields returns the fields of a body: the arguments that are not in the path, and the flags.
func bodyFields(args []argument, in input, inPath map[string]bool, body []*parameterValue) map[string]any {
	fields := map[string]any{}
	for _, a := range args {
		if !inPath[a.name] {
			fields[cmp.Or(a.field, a.name)] = in[a.name]
		}
	}
	for _, p := range body {
		if value := p.valueOrPreset(); value != nil {
			fields[p.name] = value
		}
	}
	return fields
}

// once makes a call, and prints the object or file that it returns. After an object it calls after,
// unless after is nil.
func (run *operationRun) once(
	ctx context.Context, printer *printer, request client.Call,
	after func(ctx context.Context, run *operationRun, data json.RawMessage) error,
) error {
	response, err := run.api.Do(ctx, request)
	if err != nil {
		return err
	}
	if run.file {
		return run.printBody(response)
	}
	if err := printer.object(response.Data); err != nil || after == nil {
		return err
	}
	return after(ctx, run, response.Data)
}

// listPage is a page of a list.
type listPage struct {
	Items      []json.RawMessage `json:"items"`
	TotalItems *int              `json:"totalItems"`
	NextHref   string            `json:"nextHref"`
}

// printList prints up to limit items of a list; a limit of 0 means all. It fetches pages as needed.
func (run *operationRun) printList(ctx context.Context, printer *printer, request client.Call, limit int) error {
	if run.list == listPaged {
		request.Path = withPageSize(request.Path, limit)
	}
	for {
		var page listPage
		response, err := run.api.Do(ctx, request)
		if err == nil {
			err = json.Unmarshal(response.Data, &page)
		}
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			if limit > 0 && printer.items == limit {
				return run.endTruncated(printer, page)
			}
			if err := printer.item(item); err != nil {
				return err
			}
		}
		if page.NextHref == "" {
			return printer.end()
		}
		if limit > 0 && printer.items == limit {
			return run.endTruncated(printer, page)
		}
		if request.Path, err = run.api.LinkPath(page.NextHref); err != nil {
			return err
		}
	}
}

// endTruncated ends the output of a list that has more items than --limit. It prints a hint about
// the flag to standard error.
func (run *operationRun) endTruncated(printer *printer, page listPage) error {
	if err := printer.end(); err != nil {
		return err
	}
	of := ""
	if page.TotalItems != nil {
		of = " of " + strconv.Itoa(*page.TotalItems)
	}
	fmt.Fprintf(run.errOut, "showing %d%s; --limit 0 shows all\n", printer.items, of)
	return nil
}

// withPageSize adds the size of the pages to the path of a list. limit is the number of items to
// print; 0: all.
func withPageSize(path string, limit int) string {
	size := pageSize
	if 0 < limit && limit < pageSize {
		size = limit
	}
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return path + separator + "limit=" + strconv.Itoa(size)
}

// named returns the operation with a noun and a verb. It panics if there is none.
func named(noun, verb string) operation {
	i := slices.IndexFunc(operations, func(op operation) bool { return op.noun == noun && op.verb == verb })
	return operations[i]
}
