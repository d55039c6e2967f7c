// Package explain executes statements and returns their plans, for tests and measurements.
package explain

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"partnerbilling/models/postgres"
)

// Plan is an executed plan: its topmost step, and the text.
type Plan struct {
	Node
	JSON string // the whole plan, as Postgres writes it
}

// Node is one step of a plan, with the steps below it.
type Node struct {
	Type     string `json:"Node Type"`          // such as "Seq Scan"
	Relation string `json:"Relation Name"`      // the table that a scan reads; else ""
	Hit      int    `json:"Shared Hit Blocks"`  // blocks found in cache, with all steps below
	Read     int    `json:"Shared Read Blocks"` // other blocks, with all steps below
	Plans    []Node
}

// Blocks returns the number of blocks that the step reads, with all steps below it, from Postgres's
// cache or from disk.
func (n *Node) Blocks() int { return n.Hit + n.Read }

// Sequential returns the tables that the step scans sequentially, with all steps below it.
func (n *Node) Sequential() (tables []string) {
	if n.Type == "Seq Scan" {
		tables = append(tables, n.Relation)
	}
	for i := range n.Plans {
		tables = append(tables, n.Plans[i].Sequential()...)
	}
	return tables
}

// querier is a pool, a connection or a transaction of database/sql.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Run executes a statement with its arguments under EXPLAIN (ANALYZE, BUFFERS).
func Run(ctx context.Context, on querier, s postgres.Statement, args postgres.Args) (Plan, error) {
	values, err := s.Bind(args)
	if err != nil {
		return Plan{}, err
	}
	return RunText(ctx, on, s.Text(), values...)
}

// RunText is Run for a statement as text, which may be an EXECUTE.
func RunText(ctx context.Context, on querier, query string, values ...any) (plan Plan, err error) {
	row := on.QueryRowContext(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+query, values...)
	if err := row.Scan(&plan.JSON); err != nil {
		return Plan{}, fmt.Errorf("explain: %w", err)
	}
	var explained []struct{ Plan Node }
	if err := json.Unmarshal([]byte(plan.JSON), &explained); err != nil {
		return Plan{}, fmt.Errorf("explain: %w", err)
	}
	if len(explained) != 1 {
		return Plan{}, errors.New("explain: not one plan")
	}
	plan.Node = explained[0].Plan
	return plan, nil
}
