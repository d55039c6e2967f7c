package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"partnerbilling/api/client"
)

func (c *ctl) inviteCommand() *cobra.Command {
	return c.command("invite REFERENCE…", "Invite customers and print their sign-up links", cobra.MinimumNArgs(1),
		func(ctx context.Context, api *client.Client, site string, references []string) error {
			for _, reference := range references {
				invitation, err := api.CreateInvitation(ctx, site,
					client.NewInvitation{CustomerReference: reference}, "")
				if err != nil {
					return fmt.Errorf("%s: %w", reference, err)
				}
				fmt.Fprintf(c.out, "%s\t%s\n", reference, invitation.SignupURL)
			}
			return nil
		})
}

func (c *ctl) customersCommand() *cobra.Command {
	var state string
	cmd := c.command("customers", "List the Site's customers, newest first", cobra.NoArgs,
		func(ctx context.Context, api *client.Client, site string, _ []string) error {
			for customer, err := range api.Customers(ctx, site, client.CustomerFilter{State: state, Limit: 100}) {
				if err != nil {
					return err
				}
				fmt.Fprintf(c.out, "%s\t%s\n", customer.State, customer.CustomerReference)
			}
			return nil
		})
	cmd.Flags().StringVar(&state, "state", "", "list only customers in this state: invited, linked, expired or revoked")
	return cmd
}

func (c *ctl) submitCommand() *cobra.Command {
	const short = "Submit a batch; columns customerReference, rowReference, amount (in minor units)"
	return c.command("submit REFERENCE FILE.csv", short,
		cobra.ExactArgs(2), func(ctx context.Context, api *client.Client, site string, args []string) error {
			file, err := os.Open(args[1])
			if err != nil {
				return err
			}
			rows, err := readRows(file)
			if err = errors.Join(err, file.Close()); err != nil {
				return fmt.Errorf("%s: %w", args[1], err)
			}
			receipt, err := api.SubmitBatch(ctx, site, client.Batch{BatchReference: args[0], Rows: rows})
			if err != nil {
				return err
			}
			return c.print(receipt)
		})
}

// readRows reads the rows of a batch from CSV with a header line.
func readRows(in io.Reader) ([]client.Row, error) {
	lines := csv.NewReader(in)
	header, err := lines.Read()
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	column := map[string]int{}
	for _, name := range []string{"customerReference", "rowReference", "amount"} {
		if column[name] = slices.Index(header, name); column[name] < 0 {
			return nil, fmt.Errorf("column %s is missing", name)
		}
	}
	var rows []client.Row
	for {
		line, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		amount, err := strconv.ParseInt(strings.TrimSpace(line[column["amount"]]), 10, 64)
		if err != nil {
			n, _ := lines.FieldPos(column["amount"])
			return nil, fmt.Errorf("line %d: the amount must be a whole number of minor units", n)
		}
		rows = append(rows, client.Row{
			CustomerReference: line[column["customerReference"]], RowReference: line[column["rowReference"]],
			Amount: amount,
		})
	}
}

func (c *ctl) batchCommand() *cobra.Command {
	var wait bool
	cmd := c.command("batch REFERENCE", "Show a batch and its rows", cobra.ExactArgs(1),
		func(ctx context.Context, api *client.Client, site string, args []string) error {
			get := api.Batch
			if wait {
				get = api.AwaitBatch
			}
			batch, err := get(ctx, site, args[0])
			if err != nil {
				return err
			}
			return c.print(batch)
		})
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until every row is settled")
	return cmd
}

func (c *ctl) traceCommand() *cobra.Command {
	return c.command("trace TRACEID", "Show what a request led to, by the traceId of its response", cobra.ExactArgs(1),
		func(ctx context.Context, api *client.Client, _ string, args []string) error {
			trace, err := api.Trace(ctx, args[0])
			if err != nil {
				return err
			}
			return c.print(trace)
		})
}
