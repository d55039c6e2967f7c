package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// haDeployment is a topology of Postgres and Redis servers that deploy/ha/up has started, with a
// fresh database. Scripts of deploy/ha fail it over. Replication is synchronous, so that no
// promotion loses a commit.
type haDeployment struct {
	scripts  string   // directory of the scripts
	ownerURL string   // URL of the primary for the owner of the database, past the pooler
	env      []string // environment variables by which processes reach the servers
}

// openDeployment reads the description of a topology from the data folder of deploy/ha/up.
func openDeployment(dir string) (*haDeployment, error) {
	read := func(name string) (string, error) {
		content, err := os.ReadFile(filepath.Join(dir, name))
		return strings.TrimSpace(string(content)), err
	}
	scripts, err1 := read("scripts")
	ownerURL, err2 := read("owner-url")
	env, err3 := read("process.env")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("--deployment: %w: is it the data folder of deploy/ha/up?", err)
	}
	d := &haDeployment{scripts: scripts, ownerURL: ownerURL}
	for _, line := range strings.Split(env, "\n") {
		if !strings.HasPrefix(line, "SVC_MASTER_KEY_FILE=") { // the run has a key of its own
			d.env = append(d.env, line)
		}
	}
	return d, nil
}

// scriptTimeout bounds a script of a deployment.
const scriptTimeout = 5 * time.Minute

// script runs a script of the deployment and returns how long it took. The error contains its
// output.
func (d *haDeployment) script(ctx context.Context, name string, args ...string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, scriptTimeout)
	defer cancel()
	began := time.Now()
	out, err := exec.CommandContext(ctx, filepath.Join(d.scripts, name), args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return time.Since(began), err
}

// failOverDeployment kills the primary of the deployment under load, and waits for the next one and
// for a successful answer of the service. Then it kills the master of Redis, and waits for the next
// one. It returns when all servers are replicated again.
func (h *ha) failOverDeployment(ctx context.Context) (done promotion, err error) {
	d := h.fleet.deployed
	if err := wait(ctx, between(h.random, promotionInterval/5, promotionInterval*4/5)); err != nil {
		return done, err
	}
	if done.Promoted, err = d.script(ctx, "failover", "postgres"); err != nil {
		return done, err
	}
	ready := time.Now()
	if err := h.fleet.probe(ctx); err != nil {
		return done, err
	}
	done.Answered = time.Since(ready)
	if done.Redis, err = d.script(ctx, "failover", "redis"); err != nil {
		return done, err
	}
	done.Rebuilt, err = d.script(ctx, "ready")
	return done, err
}
