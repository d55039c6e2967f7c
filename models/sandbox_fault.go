package models

import (
	"errors"
	"time"
)

// SandboxFault is a fault of the whole sandbox rail.
type SandboxFault string

// The faults.
const (
	SandboxFaultBankDown    SandboxFault = "bankDown"    // new debits are not made, and may be tried again
	SandboxFaultAnswersLost SandboxFault = "answersLost" // debits are made, and their first answers are lost
)

// SandboxFaults lists every fault.
var SandboxFaults = []SandboxFault{SandboxFaultBankDown, SandboxFaultAnswersLost}

// MaxSandboxFault is the maximum duration of a fault.
const MaxSandboxFault = 24 * time.Hour

// ErrSandboxFault says that a text names no fault, or that a duration is negative or exceeds
// MaxSandboxFault.
var ErrSandboxFault = errors.New("models: no such fault of the sandbox")
