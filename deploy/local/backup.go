package local

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Backup takes a base backup of the primary with the WAL that it needs, verifies it with
// pg_verifybackup, and removes it. It returns the size of the backup in bytes. It has no time-out
// beside ctx.
func (p *Pair) Backup(ctx context.Context) (size int64, err error) {
	primary := p.Primary()
	pg, ok := primary.Postgres.program.(*postgres)
	if !ok {
		return 0, fmt.Errorf("the primary %T is not PostgreSQL", primary.Postgres.program)
	}
	dir := pg.data + ".backup"
	defer func() { _ = os.RemoveAll(dir) }()
	if err := pg.account.mkdir(dir); err != nil {
		return 0, err
	}
	args := []string{"-D", dir, "-X", "stream", "-c", "fast", "-d", primary.conninfo()}
	if err := runAs(ctx, pg.account, pg.tool("pg_basebackup", args...), pg.login()...); err != nil {
		return 0, fmt.Errorf("back up the primary: %w", err)
	}
	if err := runAs(ctx, pg.account, pg.tool("pg_verifybackup", dir)); err != nil {
		return 0, fmt.Errorf("verify the backup: %w", err)
	}
	return folderSize(dir)
}

// folderSize returns the size of all files below a folder, in bytes.
func folderSize(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}
