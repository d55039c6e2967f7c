package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// probeAfter is how long a statement runs before the pool asks the server whether the server still
// works on it.
const probeAfter = 2 * time.Second

// errPooler reports that the server's process ids are not those of the client's connections.
var errPooler = errors.New("postgres: a pooler hides the server's processes")

// isAbandoned reports whether a backend, by its process id, does not work on a statement that the
// client waits for: the connection lost the statement or its answer, and stays open in silence.
// isAbandoned asks over a new connection. It reports false if the server does not answer there
// either, and always behind a pooler: then only the statement's deadline ends the wait. A slow
// statement is never abandoned.
func (c *connector) isAbandoned(ctx context.Context, backend uint32) bool {
	abandoned, err := c.probes.Do(ctx, backend)
	return err == nil && abandoned
}

// probe answers isAbandoned for several backends, in their order.
func (c *connector) probe(ctx context.Context, backends []uint32) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+checkTimeout)
	defer cancel()
	conn, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	server := conn.(*retirableConn).Conn().PgConn() //nolint:forcetypeassert // as connectAny made it
	results, err := server.Exec(ctx, probeQuery(backends)).ReadAll()
	if err != nil {
		return nil, err
	}
	abandoned := make([]bool, len(backends))
	for i, row := range results[0].Rows {
		if string(row[0]) != strconv.FormatUint(uint64(server.PID()), 10) {
			return nil, errPooler
		}
		abandoned[i] = string(row[1]) == "t"
	}
	return abandoned, nil
}

// probeQuery returns the query for probe, with one row for each backend in their order. A backend
// that is gone or idle works on no statement.
func probeQuery(backends []uint32) string {
	ids := make([]string, len(backends))
	for i, id := range backends {
		ids[i] = strconv.FormatUint(uint64(id), 10)
	}
	return fmt.Sprintf(`
SELECT pg_backend_pid(), coalesce(a.state LIKE 'idle%%', a.pid IS NULL)
FROM unnest(ARRAY[%s]::bigint[]) WITH ORDINALITY AS w (pid, i) LEFT JOIN pg_stat_activity a ON a.pid = w.pid
ORDER BY w.i`,
		strings.Join(ids, ", "))
}
