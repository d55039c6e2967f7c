package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// DefaultStatementTimeout is the time after which the server cancels a statement.
const DefaultStatementTimeout = 10 * time.Second

// Setting is one setting of a session.
type Setting struct{ Name, Value string }

// Settings are the settings that the service's sessions need.
type Settings []Setting

// SessionSettings returns the settings of a session with the default statement timeout. Behind a
// pooler, the service's role must have these settings, because a DB cannot set them there.
func SessionSettings() Settings { return sessionSettings(DefaultStatementTimeout) }

func sessionSettings(statementTimeout time.Duration) Settings {
	return Settings{
		{"statement_timeout", fmt.Sprint(statementTimeout.Milliseconds())},
		// 10 s. Bounds how long a process that stops in a transaction keeps its locks.
		{"idle_in_transaction_session_timeout", "10000"},
		{"jit", "off"}, // compiling short statements does not pay
		// Postgres keeps a plan until the table's statistics change. A plan made while the outbox
		// was almost empty would scan a backlog from end to end.
		{"enable_seqscan", "off"},
		// By default Postgres plans statements with array parameters anew each time, which takes
		// longer than running them. Every statement of the service is written for one plan.
		{"plan_cache_mode", "force_generic_plan"},
	}
}

// Alter returns the SQL statements that give the settings to a role in a database.
func (s Settings) Alter(role, database string) []string {
	statements := make([]string, len(s))
	for i, setting := range s {
		statements[i] = fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s = '%s'", pgx.Identifier{role}.Sanitize(),
			pgx.Identifier{database}.Sanitize(), setting.Name, setting.Value)
	}
	return statements
}

// ErrSettings reports that sessions lack settings of SessionSettings.
var ErrSettings = errors.New("postgres: sessions lack the service's settings")

//go:embed settings.sql
var settingsSQL string

// heldSetting is a row of settings.sql: a setting as sessions of this role have it.
type heldSetting struct {
	Name     string
	Session  string  // the value in one session, which may be older than Stored
	Stored   *string // the value that is stored for the role or the database; nil: none
	Role     string
	Database string
}

// heldSettings reads settings by their names, in one session.
func (db *DB) heldSettings(ctx context.Context, names []string) (held []heldSetting, err error) {
	err = db.Native(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, settingsSQL, names)
		if err != nil {
			return err
		}
		held, err = pgx.CollectRows(rows, pgx.RowToStructByName[heldSetting])
		return err
	})
	return held, err
}

// CheckSettings checks that the sessions behind a pooler have the service's settings, which the
// pool does not set there. It checks the stored settings, which new sessions get, and those of one
// session, which may be older. It returns ErrSettings. For wrong stored settings, the error
// contains the statements that correct the role.
func (db *DB) CheckSettings(ctx context.Context) error {
	names, wanted := make([]string, len(db.settings)), make(map[string]Setting, len(db.settings))
	for i, s := range db.settings {
		names[i], wanted[s.Name] = s.Name, s
	}
	held, err := db.heldSettings(ctx, names)
	if err != nil {
		return fmt.Errorf("postgres: check the settings of sessions: %w", err)
	}
	if len(held) != len(names) {
		return fmt.Errorf("%w: the server knows %d of %s", ErrSettings, len(held), strings.Join(names, ", "))
	}
	var faults Settings
	var old []string
	for _, h := range held {
		switch want := wanted[h.Name]; {
		case h.Stored == nil || *h.Stored != want.Value:
			faults = append(faults, want)
		case h.Session != want.Value:
			old = append(old, h.Name)
		}
	}
	switch {
	case len(faults) > 0:
		return fmt.Errorf("%w; run: %s;", ErrSettings, strings.Join(faults.Alter(held[0].Role, held[0].Database), "; "))
	case len(old) > 0:
		return fmt.Errorf("%w: sessions of the pooler are older than ALTER ROLE, without %s; run RECONNECT on it",
			ErrSettings, strings.Join(old, ", "))
	default:
		return nil
	}
}
