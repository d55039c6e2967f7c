package models

import (
	"errors"
	"fmt"
)

// Environment tells whether a deployment moves real money.
type Environment string

// The environments.
const (
	EnvSandbox    Environment = "sandbox"    // for tests by partners; moves no money
	EnvProduction Environment = "production" // moves real money
)

// Deployment is the environment and the rail that a database, or a process, belongs to. A process
// must not use the database of another deployment; see Check. The database stores its Deployment
// for ever, except that Store.ReplaceRail changes the rail.
type Deployment struct {
	Environment Environment `bun:"environment"`
	// Rail names the adapter of the payment rail, and RailID identifies the gateway that the
	// adapter reaches. Both are "" for a process without a rail, and for a database that no process
	// with a rail has joined.
	Rail   string `bun:"rail,nullzero"`
	RailID string `bun:"rail_id"`
	// WebhookLoopback allows webhooks to loopback addresses, for a service on a single machine. Any
	// process may set it for its database, so Check ignores it.
	WebhookLoopback bool `bun:"webhook_loopback"`
}

var (
	// ErrOtherDeployment says that a process and the database do not belong together.
	ErrOtherDeployment = errors.New("models: the database belongs to another deployment")
	// ErrInDoubt says that debits or payments are in doubt, so that the rail cannot be replaced.
	ErrInDoubt = errors.New("models: debits or payments are in doubt")
)

// Check returns ErrOtherDeployment if a process of deployment own must not use a database of
// deployment d: the environments differ, or both have rails that differ.
func (d Deployment) Check(own Deployment) error {
	switch {
	case d.Environment != own.Environment:
		return fmt.Errorf("%w: the database is of the environment %s, this process of %s", ErrOtherDeployment,
			d.Environment, own.Environment)
	case own.Rail != "" && d.Rail != "" && (d.Rail != own.Rail || d.RailID != own.RailID):
		return fmt.Errorf("%w: the rail of the database is %s, of this process %s", ErrOtherDeployment,
			d.railName(), own.railName())
	}
	return nil
}

// railName names the rail in error messages: its adapter, and RailID unless that is "".
func (d Deployment) railName() string {
	if d.RailID == "" {
		return d.Rail
	}
	return d.Rail + " " + d.RailID
}
