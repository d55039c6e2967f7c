package models_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"partnerbilling/models/modelstest"
)

var updateSchema = flag.Bool("update-schema", false, "write the tables of SCHEMA.md anew")

// tableColumns are the tables of the database, each as the lines of a Mermaid entity.
func tableColumns(t *testing.T) map[string]string {
	t.Helper()
	var columns []struct {
		TableName, ColumnName, Type string
		IsKey                       bool
	}
	err := modelstest.Open(t).DB().NewRaw(`
SELECT c.relname AS table_name, a.attname AS column_name,
       replace(replace(format_type(a.atttypid, NULL), ' ', '_'), '[]', '_array') AS type,
       coalesce(a.attnum = ANY (k.conkey), false) AS is_key
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND c.relname <> 'schema_migrations'
ORDER BY c.relname, a.attnum`).Scan(t.Context(), &columns)
	must(t, err)
	tables := map[string]string{}
	for _, c := range columns {
		line := "        " + c.Type + " " + c.ColumnName
		if c.IsKey {
			line += " PK"
		}
		tables[c.TableName] += line + "\n"
	}
	return tables
}

var (
	schemaEntity   = regexp.MustCompile(`(?m)^    (\w+) \{\n((?:        .*\n)*)    \}\n`)
	schemaRelation = regexp.MustCompile(`(?m)^    (\w+) \S+--\S+ (\w+) : "(\w+(?:, \w+)*)"$`)
)

// The picture of the schema shows every table with its columns, and its relations name columns of
// the table on their right.
func TestSchemaPicture(t *testing.T) {
	t.Parallel()
	tables := tableColumns(t)
	text, err := os.ReadFile("SCHEMA.md")
	must(t, err)
	if *updateSchema {
		text = schemaEntity.ReplaceAllFunc(text, func(entity []byte) []byte {
			name := schemaEntity.FindSubmatch(entity)[1]
			return fmt.Appendf(nil, "    %s {\n%s    }\n", name, tables[string(name)])
		})
		must(t, os.WriteFile("SCHEMA.md", text, 0o600))
	}
	shown := map[string]bool{}
	for _, entity := range schemaEntity.FindAllStringSubmatch(string(text), -1) {
		name := entity[1]
		if shown[name] = true; entity[2] != tables[name] {
			t.Errorf("%s is shown with\n%sand has\n%s", name, entity[2], tables[name])
		}
	}
	for name := range tables {
		if !shown[name] {
			t.Errorf("%s is not shown", name)
		}
	}
	relations := schemaRelation.FindAllStringSubmatch(string(text), -1)
	if strings.Count(string(text), "--o") != len(relations) || len(relations) < 15 {
		t.Errorf("%d relations, of which %d are understood", strings.Count(string(text), "--o"), len(relations))
	}
	for _, relation := range relations {
		parent, child := relation[1], relation[2]
		if tables[parent] == "" {
			t.Errorf("%s: no table %s", relation[0], parent)
		}
		for column := range strings.SplitSeq(relation[3], ", ") {
			if !strings.Contains(tables[child], " "+column+" ") && !strings.Contains(tables[child], " "+column+"\n") {
				t.Errorf("%s: %s has no column %s", relation[0], child, column)
			}
		}
	}
}
