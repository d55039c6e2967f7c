package models

import (
	"errors"
	"fmt"
)

// Environment tells whether a service moves real money.
type Environment string

// The environments.
const (
	EnvSandbox    Environment = "sandbox"
	EnvProduction Environment = "production"
)

// Deployment identifies the environment and the rail that a database belongs to. It keeps processes
// of another environment, or with another rail, off the database. Once written, a field stays; only
// ReplaceRail changes the rail.
type Deployment struct {
	Environment Environment `bun:"environment"`
	// Rail names the adapter of the payment rail. RailID identifies the gateway that the adapter
	// reaches. Both are empty until a process with a rail joins.
	Rail   string `bun:"rail,nullzero"`
	RailID string `bun:"rail_id"`
	// WebhookLoopback allows webhooks to loopback addresses, for a service on a single machine.
	// Check ignores it.
	WebhookLoopback bool `bun:"webhook_loopback"`
}

var (
	// ErrOtherDeployment says that a process and the database do not belong together.
	ErrOtherDeployment = errors.New("models: the database belongs to another deployment")
	// ErrInDoubt refuses another rail while debits or payments have an unknown outcome.
	ErrInDoubt = errors.New("models: debits or payments are in doubt")
)

// Check returns ErrOtherDeployment if a process of deployment own must not use the database of
// deployment d. An empty rail on either side matches.
func (d Deployment) Check(own Deployment) error {
	switch {
	case d.Environment != own.Environment:
		return fmt.Errorf("%w: the database is of the environment %s, this process of %s", ErrOtherDeployment, d.Environment,
			own.Environment)
	case own.Rail != "" && d.Rail != "" && (d.Rail != own.Rail || d.RailID != own.RailID):
		return fmt.Errorf("%w: the rail of the database is %s, of this process %s", ErrOtherDeployment, d.railName(), own.railName())
	}
	return nil
}

func (d Deployment) railName() string {
	if d.RailID == "" {
		return d.Rail
	}
	return d.Rail + " " + d.RailID
}
