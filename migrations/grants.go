package migrations

import (
	_ "embed"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed grants.sql
var grants string

// Roles are the names of the service's database roles.
type Roles struct {
	Owner   string // owns the tables, and applies migrations
	Runtime string // used by the service's processes and the operators' commands
	Read    string // used by reports
}

// Setting is a setting of a role's sessions, such as statement_timeout. Neither field may contain a
// quote.
type Setting struct{ Name, Value string }

// Grants returns the SQL script that gives the runtime role and the reading role their privileges
// and the settings. The script must run again after a migration, so that the roles can use new
// tables.
func Grants(roles Roles, settings []Setting) string {
	name := func(role string) string { return pgx.Identifier{role}.Sanitize() }
	var alter []string
	for _, role := range []string{roles.Runtime, roles.Read} {
		for _, s := range settings {
			alter = append(alter, "    EXECUTE format($set$ALTER ROLE "+name(role)+" IN DATABASE %I SET "+s.Name+" = '"+
				s.Value+"'$set$, current_database());")
		}
	}
	return strings.NewReplacer(":owner", name(roles.Owner), ":runtime", name(roles.Runtime), ":read", name(roles.Read),
		":settings", strings.Join(alter, "\n")).Replace(grants)
}
