package migrations_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// lastInitial is the last migration of the first release. The linter checks only later ones: before
// the first release all tables are empty, and may be changed in any way.
const lastInitial = "0008"

// lintRules are the forms of statements that lock or rewrite a large table, or that break the
// binary of the previous release. ifNew exempts tables that the same file creates.
var lintRules = []struct {
	pattern *regexp.Regexp // the first group is the table
	ifNew   bool
	advice  string
}{
	{rule(`CREATE (?:UNIQUE )?INDEX (?:IF NOT EXISTS )?\S+ ON (\S+)`), true,
		"build the index CONCURRENTLY, in a file without .tx"},
	{rule(`ALTER TABLE (\S+) .*ADD (?:CONSTRAINT \S+ )?(?:CHECK|FOREIGN KEY)\b(?:[^;]*)`), true,
		"add the constraint NOT VALID, and VALIDATE it in a later file"},
	{rule(`ALTER TABLE (\S+) .*ADD (?:CONSTRAINT \S+ )?(?:UNIQUE|PRIMARY KEY) ?\(`), true,
		"build a unique index CONCURRENTLY, and add the constraint USING INDEX"},
	{rule(`ALTER TABLE (\S+) .*ADD (?:COLUMN )?\S+ [^,;]*\bNOT NULL\b(?:[^,;]*)`), true,
		"give the column a constant DEFAULT, or leave it nullable"},
	{rule(`ALTER TABLE (\S+) .*ADD (?:COLUMN )?\S+ [^,;]*DEFAULT (?:clock_timestamp|random|gen_random_uuid|nextval)`),
		true,
		"a volatile DEFAULT rewrites the table"},
	{rule(`ALTER TABLE (\S+) .*ALTER (?:COLUMN )?\S+ (?:SET DATA )?TYPE\b`), true, "another type rewrites the table"},
	{rule(`ALTER TABLE (\S+) .*ALTER (?:COLUMN )?\S+ SET NOT NULL`), true,
		"validate a CHECK (… IS NOT NULL) instead"},
	{rule(`ALTER TABLE (\S+) .*(?:RENAME|DROP COLUMN|DROP CONSTRAINT)\b`), false, "the release before uses it"},
	{rule(`DROP (?:TABLE|TYPE|FUNCTION)\b()`), false, "the release before uses it"},
	{rule(`(?:^|;) ?UPDATE (\S+)`), true, "change rows in bounded steps, as a task"},
	{rule(`(?:^|;) ?DELETE FROM (\S+)`), true, "delete rows in bounded steps, as a task"},
	{rule(`\b(?:LOCK TABLE|TRUNCATE|VACUUM FULL|CLUSTER|REFRESH MATERIALIZED VIEW)\b()`), false,
		"it locks out all traffic"},
	{rule(`REINDEX (?:TABLE|INDEX) (?:CONCURRENTLY )?(\S+)`), false, "reindex CONCURRENTLY by hand"},
}

func rule(pattern string) *regexp.Regexp { return regexp.MustCompile("(?i)" + pattern) }

var (
	lintComment  = regexp.MustCompile(`--[^\n]*`)
	lintBody     = regexp.MustCompile(`(?s)\$(\w*)\$.*?\$(\w*)\$`) // of a function
	lintNewTable = rule(`CREATE TABLE (?:IF NOT EXISTS )?(\S+)`)
	lintApart    = rule(`^(?:(?:CREATE (?:UNIQUE )?|DROP )INDEX CONCURRENTLY|ANALYZE|` +
		`ALTER TABLE \S+ VALIDATE CONSTRAINT)\b`)
	lintHarmless  = rule(`NOT VALID|USING INDEX`)
	lintDefault   = rule(`\bDEFAULT\b`)
	lintCreateNew = rule(`DROP INDEX CONCURRENTLY IF EXISTS`)
)

// lint returns the faults of a migration.
func lint(file, text string) (faults []string) {
	text = lintBody.ReplaceAllString(lintComment.ReplaceAllString(text, " "), "''")
	created := map[string]bool{}
	for _, m := range lintNewTable.FindAllStringSubmatch(text, -1) {
		created[m[1]] = true
	}
	apart := !strings.HasSuffix(file, ".tx.up.sql")
	if apart && strings.Contains(text, "CREATE") && !lintCreateNew.MatchString(text) {
		faults = append(faults, "DROP INDEX CONCURRENTLY IF EXISTS comes first: a crash leaves an invalid index")
	}
	for statement := range strings.SplitSeq(text, ";") {
		statement = strings.Join(strings.Fields(statement), " ")
		concurrently := strings.Contains(strings.ToUpper(statement), "CONCURRENTLY")
		switch {
		case statement == "":
			continue
		case apart && !lintApart.MatchString(statement):
			faults = append(faults, "only indexes built CONCURRENTLY, VALIDATE and ANALYZE go without .tx: "+statement)
			continue
		case !apart && concurrently:
			faults = append(faults, "CONCURRENTLY needs a file without .tx: "+statement)
			continue
		}
		for _, r := range lintRules {
			m := r.pattern.FindStringSubmatch(statement)
			switch {
			case m == nil, r.ifNew && created[m[1]], concurrently, lintHarmless.MatchString(statement):
			case strings.Contains(r.advice, "constant DEFAULT") && lintDefault.MatchString(m[0]):
			default:
				faults = append(faults, r.advice+": "+statement)
			}
		}
	}
	return faults
}

// No migration after the first release locks or rewrites a large table, or breaks the binary of the
// previous release.
func TestLint(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("*.up.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name[:len(lastInitial)] <= lastInitial {
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range lint(name, string(content)) {
			t.Errorf("%s: %s", name, fault)
		}
	}
	for name, file := range later {
		for _, fault := range lint(name, string(file.Data)) {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

func TestLintFindsFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, sql, want string }{
		{"1.tx.up.sql", "CREATE INDEX i ON batches (id);", "CONCURRENTLY"},
		{"1.tx.up.sql", "CREATE TABLE new (id int);\nCREATE INDEX i ON new (id);", ""},
		{"1.tx.up.sql", "CREATE INDEX CONCURRENTLY i ON batches (id);", "without .tx"},
		{"1.up.sql", "CREATE INDEX CONCURRENTLY i ON batches (id);", "DROP INDEX CONCURRENTLY"},
		{"1.up.sql", "DROP INDEX CONCURRENTLY IF EXISTS i;\nCREATE INDEX CONCURRENTLY i ON batches (id);", ""},
		{"1.up.sql", "ALTER TABLE batches ADD COLUMN a int;", "only indexes"},
		{"1.tx.up.sql", "ALTER TABLE batches ADD CONSTRAINT c CHECK (id > 0);", "NOT VALID"},
		{"1.tx.up.sql", "ALTER TABLE batches ADD CONSTRAINT c CHECK (id > 0) NOT VALID;", ""},
		{"1.tx.up.sql", "ALTER TABLE batches ADD PRIMARY KEY (id);", "USING INDEX"},
		{"1.tx.up.sql", "ALTER TABLE batches ADD COLUMN a int NOT NULL;", "constant DEFAULT"},
		{"1.tx.up.sql", "ALTER TABLE batches ADD COLUMN a int NOT NULL DEFAULT 0;", ""},
		{"1.tx.up.sql", "ALTER TABLE batches ADD COLUMN a uuid DEFAULT gen_random_uuid();", "volatile"},
		{"1.tx.up.sql", "ALTER TABLE batches ALTER COLUMN a TYPE bigint;", "rewrites"},
		{"1.tx.up.sql", "ALTER TABLE batches ALTER COLUMN a SET NOT NULL;", "validate"},
		{"1.tx.up.sql", "ALTER TABLE batches RENAME COLUMN a TO b;", "release before"},
		{"1.tx.up.sql", "DROP TABLE batches;", "release before"},
		{"1.tx.up.sql", "UPDATE batches SET a = 1;", "bounded steps"},
		{"1.tx.up.sql", "LOCK TABLE batches;", "locks out"},
		{"1.tx.up.sql", "-- UPDATE x\nCREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$ UPDATE x SET a = 1; $$;", ""},
	} {
		got := strings.Join(lint(c.file, c.sql), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s\nfound %q, want %q", c.file, c.sql, got, c.want)
		}
	}
}
