package local

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// A data folder behind a symbolic link holds its servers' files like any other.
func TestDataFolderBehindASymbolicLink(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	must(t, os.Mkdir(dir, 0o711))
	link := filepath.Join(filepath.Dir(dir), "link")
	must(t, os.Symlink(dir, link))
	var log bytes.Buffer
	for range 2 { // creates the servers' folder, and finds it
		d, err := openServersDir(Options{Dir: link, Log: slog.New(slog.NewTextHandler(&log, nil))})
		must(t, err)
		must(t, d.close())
	}
	if log.Len() > 0 {
		t.Errorf("logged %s", log.String())
	}
	if _, err := os.Stat(filepath.Join(dir, serversName, folderName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the servers' folder has a file of folders outside: %v", err)
	}
}
