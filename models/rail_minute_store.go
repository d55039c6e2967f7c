package models

import (
	"context"
	"time"

	"partnerbilling/models/postgres"
)

// RailCount counts a worker's rail calls of one kind that the rail has answered with one status.
type RailCount struct {
	Call    string // "debit", "lookup" or "cancel"
	Status  string // as rail.Status writes it
	Answers int64
}

// RailAnswers counts the fleet's rail calls of one kind that the rail has answered with one status.
type RailAnswers struct {
	Call            string    // as in RailCount
	Status          string    // as in RailCount
	LastFiveMinutes int64     // answers of this minute and the four before
	LastHour        int64     // answers of this minute and the 59 before
	LastAt          time.Time // server time of the last report with such an answer
}

var (
	recordRailSQL = postgres.SQL(`
WITH old AS (DELETE FROM rail_minutes WHERE minute < floor(extract(epoch FROM statement_timestamp()) / 60) - 60)
INSERT INTO rail_minutes AS m (minute, call, status, answers, last_at)
SELECT floor(extract(epoch FROM statement_timestamp()) / 60), c.call, c.status, c.answers, statement_timestamp()
FROM unnest(:calls::text[], :statuses::text[], :answers::bigint[]) AS c (call, status, answers) ORDER BY 2, 3
ON CONFLICT (minute, call, status) DO UPDATE SET answers = m.answers + excluded.answers, last_at = excluded.last_at`)
	railAnswersSQL = postgres.SQL(`
SELECT call, status, sum(answers)::bigint AS last_hour, max(last_at) AS last_at,
       coalesce(sum(answers) FILTER (
           WHERE minute > floor(extract(epoch FROM statement_timestamp()) / 60) - 5), 0)::bigint AS last_five_minutes
FROM rail_minutes WHERE minute > floor(extract(epoch FROM statement_timestamp()) / 60) - 60
GROUP BY call, status ORDER BY call, status`)
)

// RecordRailAnswers adds a worker's counts to those of the present minute, and drops counts older
// than an hour.
func (s *Store) RecordRailAnswers(ctx context.Context, counts []RailCount) error {
	n := len(counts)
	calls, statuses, answers := make([]string, n), make([]string, n), make([]int64, n)
	for i, c := range counts {
		calls[i], statuses[i], answers[i] = c.Call, c.Status, c.Answers
	}
	_, err := s.pg.Run(ctx, recordRailSQL, postgres.Args{"calls": calls, "statuses": statuses, "answers": answers})
	return wrap("record the rail's answers", err)
}

// RailAnswers returns the counts of the last hour, by call and then status.
func (s *Store) RailAnswers(ctx context.Context) (answers []RailAnswers, err error) {
	err = s.pg.Select(ctx, railAnswersSQL, nil, &answers)
	return answers, wrap("the rail's answers", err)
}
