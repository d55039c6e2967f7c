package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"partnerbilling/api/client"
)

// The exit codes. exitCodes says what each means.
const (
	exitFailure        = 1
	exitUsage          = 2
	exitAuthentication = 3
	exitNotFound       = 4
	exitRefused        = 5
	exitUnavailable    = 6
	exitNetwork        = 7
	exitIncomplete     = 8
	exitInterrupted    = 130
)

// exitCodes are the meanings of the exit codes, for the help.
var exitCodes = []struct {
	code int
	text string
}{
	{0, "the command did what it says"},
	{exitFailure, "another failure, such as a file that cannot be written"},
	{exitUsage, "usage: an unknown command or flag, or a missing argument or setting"},
	{exitAuthentication, "authentication: the credentials are not accepted, or may not do this (401, 403)"},
	{exitNotFound, "not found (404, 410)"},
	{exitRefused, "refused: the request or file has faults, or does not fit the state (400, 409, 413, 415, 422)"},
	{exitUnavailable, "try again later: a rate limit, a quota, or a service that cannot answer now (429, 5xx)"},
	{exitNetwork, "network: no answer; the address is in the message"},
	{exitIncomplete, "the command worked, but not everything succeeded: a row, a payment, a rule for receivers"},
	{exitInterrupted, "interrupted"},
}

// exitCodesTopic returns the help topic "exit-codes".
func exitCodesTopic() *cobra.Command {
	var list strings.Builder
	for _, e := range exitCodes {
		fmt.Fprintf(&list, "  %3d  %s\n", e.code, e.text)
	}
	return &cobra.Command{
		Use: "exit-codes", Short: "What the exit codes mean",
		Long: "svcctl exits with a code that tells a script what to do next:\n\n" +
			strings.TrimSuffix(list.String(), "\n"),
	}
}

// failure is an error that determines the exit code.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// fail returns an error with an exit code.
func fail(code int, format string, values ...any) error {
	return &failure{code, fmt.Errorf(format, values...)}
}

// exitCode returns the exit code for the error of a command, or 0 for nil. ctx is the context of
// the command: its end means an interruption.
func (c *ctl) exitCode(ctx context.Context, err error) int {
	var own *failure
	var refused *client.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &own):
		return own.code
	case ctx.Err() != nil:
		return exitInterrupted
	case !c.started, errors.Is(err, client.ErrNotUTF8):
		return exitUsage
	case errors.As(err, &refused):
		return codeOfStatus(refused.Status)
	case isNetworkError(err):
		return exitNetwork
	}
	return exitFailure
}

// codeOfStatus returns the exit code for the HTTP status of a refusal.
func codeOfStatus(status int) int {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return exitAuthentication
	case status == http.StatusNotFound, status == http.StatusGone:
		return exitNotFound
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return exitUnavailable
	}
	return exitRefused
}

// errorCodePrefix is the beginning of every error code of the API. Messages leave it out.
const errorCodePrefix = "urn:svc:platform:billing:error:"

// printError prints an error to standard error. It prints a refusal by the API with its status,
// each of its faults on a line, and its traceId.
func (c *ctl) printError(err error) {
	var refused *client.Error
	if !errors.As(err, &refused) || len(refused.Faults) == 0 {
		fmt.Fprintln(c.errOut, "svcctl:", printableLines(err.Error()))
		if !c.started {
			fmt.Fprintln(c.errOut, `Run "svcctl help" for the commands.`)
		}
		return
	}
	// The text before the refusal names the subject, such as a batch.
	subject, _, _ := strings.Cut(err.Error(), refused.Error())
	fmt.Fprintf(c.errOut, "svcctl: %s%d %s\n", printable(subject), refused.Status, http.StatusText(refused.Status))
	for _, f := range refused.Faults {
		line := strings.Join(strings.Fields(f.Target+" "+f.DisplayMessage+f.Message), " ")
		if code := strings.TrimPrefix(f.Code, errorCodePrefix); code != "" && code != line {
			line += " (" + code + ")"
		}
		fmt.Fprintln(c.errOut, "  "+printable(line))
	}
	if refused.TraceID != "" {
		fmt.Fprintln(c.errOut, "  trace "+printable(refused.TraceID))
	}
}
