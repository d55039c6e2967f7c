package models

import (
	"errors"
	"fmt"
)

// Environment is where a service runs: with real money, or without.
type Environment string

// The environments.
const (
	EnvSandbox    Environment = "sandbox"
	EnvProduction Environment = "production"
)

// Deployment identifies the service and the rail that a database belongs to. It is written once. It
// keeps processes of another service, or with another rail, off the database.
type Deployment struct {
	Environment Environment `bun:"environment"`
	// Rail is the adapter of the payment rail; RailID identifies the rail behind it. Both are empty
	// until a process with a rail joins.
	Rail   string `bun:"rail,nullzero"`
	RailID string `bun:"rail_id"`
	// WebhookLoopback allows webhooks to loopback addresses, for a service on a single machine.
	WebhookLoopback bool `bun:"webhook_loopback"`
}

var (
	// ErrOtherDeployment says that a process and the database do not belong together.
	ErrOtherDeployment = errors.New("the database belongs to another deployment")
	// ErrInDoubt says that debits or payments have an unknown outcome.
	ErrInDoubt = errors.New("models: debits or payments are in doubt")
)

// Differs returns ErrOtherDeployment if a process configured as own must not use a database of d. A
// process without a rail fits any rail.
func (d Deployment) Differs(own Deployment) error {
	switch {
	case d.Environment != own.Environment:
		return fmt.Errorf("%w: it is of the environment %s, and this process of %s", ErrOtherDeployment, d.Environment,
			own.Environment)
	case own.Rail != "" && d.Rail != "" && (d.Rail != own.Rail || d.RailID != own.RailID):
		return fmt.Errorf("%w: its rail is %s, and that of this process %s", ErrOtherDeployment, d.railName(), own.railName())
	}
	return nil
}

func (d Deployment) railName() string {
	if d.RailID == "" {
		return d.Rail
	}
	return d.Rail + " " + d.RailID
}
