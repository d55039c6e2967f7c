// Package cmdtest builds the module's commands for tests that run them as processes.
//
// The commands are built as they are deployed, without the race detector, which makes processes
// several times slower. Only the tests' own process can run under it.
package cmdtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var (
	dir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "cmdtest-") })
	// built maps the name of a command to a function that builds the command once.
	built sync.Map
)

// Build builds a command of the module, such as "svc", once for all tests of the process. It
// returns the binary's path.
func Build(t testing.TB, name string) string {
	t.Helper()
	once, _ := built.LoadOrStore(name, sync.OnceValues(func() (string, error) { return build(name) }))
	path, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func build(name string) (string, error) {
	dir, err := dir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "partnerbilling/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// Main runs the tests with run, such as m.Run, removes the binaries, and returns the exit code.
func Main(run func() int) int {
	code := run()
	built.Range(func(any, any) bool { // without a built command, dir would create the folder
		if dir, err := dir(); err == nil {
			_ = os.RemoveAll(dir)
		}
		return false
	})
	return code
}
