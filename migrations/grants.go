package migrations

import (
	_ "embed"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed grants.sql
var grants string

// Roles are the names of the database roles.
type Roles struct {
	Owner   string // owns the tables, and applies migrations
	Runtime string // of the service's processes and its operators' commands
	Read    string // of reports
}

// Setting is a setting of the sessions of the runtime and the reading role.
type Setting struct{ Name, Value string }

// Grants returns the statements that give the runtime and the reading role their privileges and
// settings. They apply to the tables that exist: after a migration they must run again.
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
