package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// The oldest supported major versions.
const (
	minPostgres = 15
	minRedis    = 7
)

// MissingError reports a program that is not installed, or only in an unsupported version.
type MissingError struct {
	Program string // the program and version: "PostgreSQL 15 or newer"
	Command string // a shell command that installs the program on this operating system
	Found   string // the unsupported version that was found and its folder or path, or empty
}

func (e *MissingError) Error() string {
	found := ""
	if e.Found != "" {
		found = " (found " + e.Found + ")"
	}
	return fmt.Sprintf("%s is not installed%s; install it with: %s", e.Program, found, e.Command)
}

// pgBinaries is a PostgreSQL installation.
type pgBinaries struct {
	dir   string // the folder of the programs
	major int    // the major version
}

// findPostgres returns an installation that the account can run: the first in PATH if that is
// usable, else the newest. If major is not 0, the installation must have that major version. If
// there is none, it returns a [*MissingError].
func findPostgres(ctx context.Context, acc account, major int) (pgBinaries, error) {
	missing := &MissingError{
		Program: fmt.Sprintf("PostgreSQL %d or newer", minPostgres), Command: installCommand("postgresql"),
	}
	if major != 0 {
		missing.Program = fmt.Sprintf("PostgreSQL %d, which created the data in this folder,", major)
		missing.Command = installCommand(fmt.Sprintf("postgresql-%d", major))
	}
	var best pgBinaries
	for _, dir := range postgresDirs() {
		if !isFile(filepath.Join(dir, "initdb")) || !acc.canReach(dir) {
			continue
		}
		v, err := majorVersion(ctx, filepath.Join(dir, "postgres"), pgVersion)
		switch {
		case err != nil:
		case v < minPostgres || major != 0 && v != major:
			missing.Found = fmt.Sprintf("version %d in %s", v, dir)
		case onPath(dir):
			return pgBinaries{dir, v}, nil
		case v > best.major:
			best = pgBinaries{dir, v}
		}
	}
	switch {
	case ctx.Err() != nil: // the loop counts an interrupted version query as "not found"
		return best, ctx.Err()
	case best.major == 0:
		return best, missing
	}
	return best, nil
}

// PostgresPrograms returns the folder of PostgreSQL's programs, such as psql: of the first
// installation in PATH if that is usable, else of the newest. It returns a [*MissingError] if there
// is none.
func PostgresPrograms(ctx context.Context) (string, error) {
	acc, err := serverAccount(os.TempDir())
	if err != nil {
		return "", err
	}
	found, err := findPostgres(ctx, acc, 0)
	return found.dir, err
}

// postgresDirs returns the folders that may contain postgres and initdb, those in PATH first. It
// resolves links, because initdb needs postgres in its own folder.
func postgresDirs() []string {
	var dirs []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres")); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	} {
		found, _ := filepath.Glob(pattern) // the only error is a bad pattern
		dirs = append(dirs, found...)
	}
	return dirs
}

// onPath reports whether the postgres in PATH is the one in dir.
func onPath(dir string) bool {
	path, err := exec.LookPath("postgres")
	if err != nil {
		return false
	}
	real, err := filepath.EvalSymlinks(path)
	return err == nil && filepath.Dir(real) == dir
}

// findRedis returns the path of a redis-server that the account can run, or a [*MissingError].
func findRedis(ctx context.Context, acc account) (string, error) {
	missing := &MissingError{Program: fmt.Sprintf("Redis %d or newer", minRedis),
		Command: installCommand("redis-server")}
	candidates := []string{"/usr/bin/redis-server", "/opt/homebrew/bin/redis-server", "/usr/local/bin/redis-server",
		"/home/linuxbrew/.linuxbrew/bin/redis-server"}
	if path, err := exec.LookPath("redis-server"); err == nil {
		candidates = append([]string{path}, candidates...)
	}
	for _, path := range candidates {
		real, err := filepath.EvalSymlinks(path)
		if err != nil || !acc.canReach(filepath.Dir(real)) {
			continue
		}
		v, err := majorVersion(ctx, path, redisVersion)
		if err == nil && v >= minRedis {
			return path, nil
		}
		if err == nil {
			missing.Found = fmt.Sprintf("version %d in %s", v, path)
		}
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return "", missing
}

var (
	pgVersion    = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)
	redisVersion = regexp.MustCompile(`v=(\d+)\.`)
)

// majorVersion returns the major version that a program prints for --version. The first group of
// the pattern is the version.
func majorVersion(ctx context.Context, path string, pattern *regexp.Regexp) (int, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("%s --version: %w", path, err)
	}
	m := pattern.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s --version: no version in %q", path, out)
	}
	return strconv.Atoi(string(m[1]))
}

// installCommand returns the command that installs a Debian package, or its Homebrew counterpart.
func installCommand(pkg string) string {
	if runtime.GOOS == "darwin" {
		pkg = strings.Replace(pkg, "postgresql-", "postgresql@", 1)
		switch pkg {
		case "postgresql":
			pkg = "postgresql@16"
		case "redis-server":
			pkg = "redis"
		}
		return "brew install " + pkg
	}
	return "sudo apt-get install " + pkg
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// dataVersion returns the major version of PostgreSQL that created the data in dir, or 0 if dir has
// no data.
func dataVersion(dir string) (int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the data: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}
