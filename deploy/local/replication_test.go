package local

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A start copies the primary again if the copy of an earlier start was killed. The test is not
// parallel: while another test starts a process, the script may be busy.
func TestKilledCopyIsRepeated(t *testing.T) {
	tools := openDir(t)
	must(t, os.Mkdir(tools, 0o755))
	o := Options{Dir: openDir(t), Ephemeral: true, WithoutRedis: true, replicated: true}
	primary := start(t, o)
	execSQL(t, primary.DatabaseURL, "CREATE TABLE copied ()")
	installed := primary.Postgres.program.(*postgres).binaries
	must(t, os.WriteFile(filepath.Join(tools, "pg_basebackup"),
		fmt.Appendf(nil, "#!/bin/sh\necho %d > \"$2/PG_VERSION\"\nkill -KILL $$\n", installed.major), 0o755))

	o.Dir, o.standbyOf = openDir(t), primary
	dir, err := openServersDir(o)
	must(t, err)
	killed := &postgres{binaries: pgBinaries{dir: tools}, account: dir.account, data: dir.file(postgresName)}
	if err := killed.copyPrimary(t.Context(), primary); err == nil {
		t.Fatal("the copy was not killed")
	}
	must(t, dir.close())

	standby := start(t, o)
	got := query(t, standby.DatabaseURL, "SELECT pg_is_in_recovery() || ' ' || count(*) FROM copied")
	if got != "true 0" {
		t.Errorf("the standby returned %s", got)
	}
}
