package postgres_test

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"partnerbilling/models/modelstest"
	"partnerbilling/models/postgres"
)

func TestNamedArguments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"SELECT :a + :b + :a":                   "SELECT $1 + $2 + $1",
		"SELECT :row_2::bigint, now()::text":    "SELECT $1::bigint, now()::text",
		"SELECT ':a' || :a || '''s :b'":         "SELECT ':a' || $1 || '''s :b'",
		`SELECT 1 AS ":a", :b`:                  `SELECT 1 AS ":a", $1`,
		"SELECT 1 -- of :a\n + :b":              "SELECT 1 -- of :a\n + $1",
		"/* :a */ SELECT :b":                    "/* :a */ SELECT $1",
		"SELECT a[1 : 2], :A, : a":              "SELECT a[1 : 2], :A, : a",
		"SELECT DATE'2026-01-01', a$b$:c, 'E'":  "SELECT DATE'2026-01-01', a$b$$1, 'E'",
		"SELECT '$$', \"E'\", :a -- $x$":        "SELECT '$$', \"E'\", $1 -- $x$",
		"SELECT 'open":                          "SELECT 'open",
		"SELECT 1 --":                           "SELECT 1 --",
		"UPDATE t SET a=:a WHERE b IN (:b,:c);": "UPDATE t SET a=$1 WHERE b IN ($2,$3);",
	} {
		if got := postgres.SQL(text).Text(); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if names := postgres.SQL("SELECT :b, :a, :b").Names(); !slices.Equal(names, []string{"b", "a"}) {
		t.Errorf("names are %q", names)
	}
}

// A text that SQL cannot parse is refused: a colon in it might become an argument.
func TestUnparsedTextIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"DO $$ BEGIN RAISE ':a'; END $$", "SELECT $tag$ :a $tag$", `SELECT E'\' :a'`, `SELECT e'\':a`,
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q was accepted", text)
				}
			}()
			postgres.SQL(text)
		}()
	}
}

// Every argument needs a value, and every value an argument.
func TestBind(t *testing.T) {
	t.Parallel()
	s := postgres.SQL("SELECT :b, :a")
	if values, err := s.Bind(postgres.Args{"a": 1, "b": "x"}); err != nil || !slices.Equal(values, []any{"x", 1}) {
		t.Errorf("%v, %v", values, err)
	}
	if _, err := s.Bind(postgres.Args{"a": 1}); err == nil {
		t.Error("a missing value was accepted")
	}
	if _, err := s.Bind(postgres.Args{"a": 1, "b": 2, "c": 3}); err == nil {
		t.Error("an unknown value was accepted")
	}
}

// Whatever the text, only arguments change, and equal names get equal numbers.
func TestOnlyArgumentsChange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{
			":a", ":b", "::", ":", "'", "\"", "--", "\n", "/*", "*/", "x", " ", "1",
		})).Draw(r, "pieces"), "")
		s := postgres.SQL(text)
		restored := s.Text()
		for i := len(s.Names()); i > 0; i-- {
			restored = strings.ReplaceAll(restored, "$"+string(rune('0'+i)), ":"+s.Names()[i-1])
		}
		if restored != text {
			r.Errorf("%q became %q", text, s.Text())
		}
	})
}

// scanned has a column of each kind.
type scanned struct {
	Count int64
	Label string `bun:"name"`
	Due   int64  // NULL: 0
}

func TestRowsAreScannedByName(t *testing.T) {
	t.Parallel()
	db := open(t, postgres.Config{DSN: modelstest.DSN(t)})
	query := postgres.SQL(
		"SELECT name, NULL::bigint AS due, n AS count FROM unnest(:names::text[]) WITH ORDINALITY AS u (name, n)")
	args := postgres.Args{"names": []string{"a", "b"}}
	var all []scanned
	if err := db.Select(t.Context(), query, args, &all); err != nil ||
		!slices.Equal(all, []scanned{{1, "a", 0}, {2, "b", 0}}) {
		t.Errorf("%+v, %v", all, err)
	}
	err := db.InTx(t.Context(), func(tx postgres.Tx) error {
		var one scanned
		if err := tx.Get(t.Context(), query, args, &one); err != nil || one != (scanned{1, "a", 0}) {
			t.Errorf("%+v, %v", one, err)
		}
		var name string
		var due sql.NullInt64
		var count int
		if err := tx.Get(t.Context(), query, args, &name, &due, &count); err != nil || name != "a" || due.Valid ||
			count != 1 {
			t.Errorf("%q, %v, %d, %v", name, due, count, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	var none scanned
	if err := db.Get(t.Context(), query, postgres.Args{"names": []string{}}, &none); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("no row: %v", err)
	}
	if err := db.Get(t.Context(), postgres.SQL("SELECT 1 AS unknown"), nil, &none); err == nil {
		t.Error("a column without a field was dropped")
	}
}

// Run counts the changed rows; a statement that the server refuses changes none.
func TestRunCounts(t *testing.T) {
	t.Parallel()
	db := open(t, postgres.Config{DSN: modelstest.DSN(t), MaxConns: 1})
	for _, statement := range []string{"CREATE TEMP TABLE n (n int)", "INSERT INTO n SELECT generate_series(1, 5)"} {
		if _, err := db.Run(t.Context(), postgres.SQL(statement), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := db.Run(t.Context(), postgres.SQL("UPDATE n SET n = 0 WHERE n > :above"),
		postgres.Args{"above": 2}); n != 3 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
	if _, err := db.Run(t.Context(), postgres.SQL("UPDATE missing SET n = 0"), nil); err == nil {
		t.Error("a missing table was accepted")
	}
}
