// Package cmdtest builds the module's commands for tests that run them as processes.
//
// The commands are built as they are deployed. They never use the race detector, which would make
// them several times slower. Only the tests' own process can run under the race detector.
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
	// dir returns the folder of the binaries. The first call creates the folder.
	dir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "cmdtest-") })
	// built maps the name of a command to a function that builds the command once, and returns the
	// path of the binary.
	built sync.Map
)

// Build builds a command of the module, such as "svc", and returns the path of the binary. It
// builds each command once for all tests of the process. If the build fails, the test fails. Tests
// that call Build need [Main] to remove the binaries.
func Build(t testing.TB, name string) string {
	t.Helper()
	once, _ := built.LoadOrStore(name, sync.OnceValues(func() (string, error) { return build(name) }))
	path, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// build builds a command, and returns the path of the binary.
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

// Main is the body of a TestMain. It calls run, usually m.Run, removes the built binaries, and
// returns the exit code of run.
func Main(run func() int) int {
	code := run()
	built.Range(func(any, any) bool { // only if Build was called: dir would create the folder
		if dir, err := dir(); err == nil {
			_ = os.RemoveAll(dir)
		}
		return false
	})
	return code
}
